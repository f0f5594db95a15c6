package io.holdfast.spark;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The plugin in the driver: it starts {@link Companion}, which knows what to do, and lets it hear of queries. No fault reaches
 * Spark; each is a line in the log, and the job runs as it would without Holdfast.
 */
final class DriverSide implements DriverPlugin {
    /** Set by {@code configure} and {@code holdfast-pyspark}, which have done in Python what would be done here. */
    private static final String IS_CONFIGURED = "spark.holdfast.configured";

    /** Tells {@code place_state} that this is here. */
    private static final String IS_HERE = "spark.holdfast.plugin";

    private static final String PLUGINS = "spark.plugins";
    private static final String LISTENERS = "spark.sql.streaming.streamingQueryListeners";
    private static final String LOCAL_DIRECTORY = "spark.local.dir";
    /** A daemon that is being replaced, or a busy machine, may take this long to answer. */
    private static final long DIRECTORY_MILLISECONDS = 20_000;

    private static final Logger LOG = LoggerFactory.getLogger("io.holdfast.spark");
    /** The directories that this process holds to its end, by the names of applications: a process may run several in turn. */
    private static final Map<String, String> HELD = new ConcurrentHashMap<>();

    private Companion companion;

    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
        try {
            SparkConf conf = plugin.conf();
            remove(conf, PLUGINS, HoldfastPlugin.class.getName()); // executors get the settings from here, but not the class
            if (!Boolean.parseBoolean(conf.get(IS_CONFIGURED, "false"))) {
                begin(context, conf);
            }
        } catch (IOException | InterruptedException | RuntimeException | LinkageError problem) {
            if (problem instanceof InterruptedException) {
                Thread.currentThread().interrupt();
            }
            LOG.warn("this job runs without Holdfast: " + problem.getMessage());
        }
        return Collections.emptyMap();
    }

    @Override
    public void shutdown() {
        if (companion != null) {
            QueryListener.forget(companion);
            companion.close();
        }
    }

    private void begin(SparkContext context, SparkConf conf) throws IOException, InterruptedException {
        companion = Companion.started(conf, new SparkInternals(context));
        boolean isLocal = context.master().split("\\[")[0].equals("local");
        String name = context.appName();
        String held = HELD.getOrDefault(name, "");
        String directory = companion.hello(name, processId(), isLocal, held, DIRECTORY_MILLISECONDS);
        if (!directory.isEmpty()) {
            HELD.put(name, directory);
            useLocally(conf, directory);
        }
        if (!isLocal) {
            context.addSparkListener(new ExecutorListener(companion));
        }
        QueryListener.tell(companion);
        String others = conf.get(LISTENERS, "");
        conf.set(LISTENERS, (others.isEmpty() ? "" : others + ",") + QueryListener.class.getName());
        conf.set(IS_HERE, "true"); // last: from here on nobody else does what this does
    }

    /**
     * Lets state stores of a driver that works itself, and native libraries, be in the directory. Spark has chosen the place of
     * its shuffle files already when it makes plugins.
     */
    private static void useLocally(SparkConf conf, String directory) {
        conf.set(LOCAL_DIRECTORY, directory);
        System.setProperty("java.io.tmpdir", directory);
        SparkInternals.chooseLocalDirectoriesAnew();
    }

    private static void remove(SparkConf conf, String list, String element) {
        String others =
                Arrays.stream(conf.get(list, "").split(","))
                        .filter(each -> !each.trim().equals(element))
                        .collect(Collectors.joining(","));
        if (others.isEmpty()) {
            conf.remove(list);
        } else {
            conf.set(list, others);
        }
    }

    private static String processId() {
        return ManagementFactory.getRuntimeMXBean().getName().split("@")[0]; // Java 8 has no other way
    }
}
