package org.apache.spark;

public class SparkContext {
    public native String appName();

    public native String master();
}
