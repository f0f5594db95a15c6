package org.apache.spark.api.plugin;

public interface ExecutorPlugin {}
