package org.apache.spark.api.plugin;

import org.apache.spark.SparkConf;

public interface PluginContext {
    SparkConf conf();
}
