package io.holdfast.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Gives drivers without Python what {@code holdfast_spark.configure} gives PySpark's: placement, reports of batches and a
 * working directory. {@code spark.plugins} names it. Executors need nothing of it.
 */
public final class HoldfastPlugin implements SparkPlugin {
    @Override
    public DriverPlugin driverPlugin() {
        return new DriverSide();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return null;
    }
}
