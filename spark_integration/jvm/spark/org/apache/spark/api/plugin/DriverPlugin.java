package org.apache.spark.api.plugin;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkContext;

public interface DriverPlugin {
    default Map<String, String> init(SparkContext context, PluginContext plugin) {
        return Collections.emptyMap();
    }

    default void shutdown() {}
}
