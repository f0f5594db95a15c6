package org.apache.spark.scheduler;

public class SparkListenerExecutorRemoved {
    public native String executorId();
}
