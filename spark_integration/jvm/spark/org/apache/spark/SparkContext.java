package org.apache.spark;

import org.apache.spark.scheduler.SparkListenerInterface;

public class SparkContext {
    public native String appName();

    public native String master();

    public native void addSparkListener(SparkListenerInterface listener);
}
