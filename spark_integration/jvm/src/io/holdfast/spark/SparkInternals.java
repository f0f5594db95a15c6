package io.holdfast.spark;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import javax.management.JMException;
import org.apache.spark.SparkContext;

/**
 * Answers questions about a driver, from private parts of Spark that have been the same from 3.5 to 4.3 but for what is in
 * their signatures (Scala's collections, the packages of classes). So all of them are called by name.
 */
final class SparkInternals {
    private static final String STATE = "org.apache.spark.sql.execution.streaming.state.";
    private static final int STORE_FIELDS = 5;

    private final SparkContext context;

    SparkInternals(SparkContext context) {
        this.context = context;
    }

    /** Forgets where Spark puts local files, so that it looks at the settings again. */
    static void chooseLocalDirectoriesAnew() {
        try {
            Calls.call(Calls.module("org.apache.spark.util.Utils$"), "clearLocalRootDirs");
        } catch (ReflectiveOperationException unknown) {
            throw new IllegalStateException("this Spark has other ways: " + unknown, unknown);
        }
    }

    /** Answers one; the list can be added to. */
    List<String> answer(String kind, String[] about) throws IOException, JMException, ReflectiveOperationException {
        List<String> found = new ArrayList<>();
        switch (kind) {
            case "age":
                found.add(Long.toString(System.currentTimeMillis() - (Long) Calls.call(context, "startTime")));
                break;
            case "executors":
                addExecutors(found);
                break;
            case "query":
                addQuery(found, about[0]);
                break;
            case "jobs":
                int[] jobs = (int[]) Calls.call(Calls.call(context, "statusTracker"), "getJobIdsForGroup", about[0]);
                found.add(Integer.toString(jobs.length));
                break;
            case "tell":
                found.add(Integer.toString(tell(about)));
                break;
            case "elsewhere":
                found.add(Integer.toString(elsewhere(about)));
                break;
            case "further-places":
                found.add(Integer.toString(LostExecutors.of(context).tell(about)));
                break;
            case "load-classes":
                ClassNames.load(about[0], Integer.parseInt(about[1]), Integer.parseInt(about[2]));
                break;
            case "write-classes":
                found.add(Integer.toString(ClassNames.write(about[0])));
                break;
            default:
                throw new IllegalArgumentException("nobody knows " + kind);
        }
        return found;
    }

    /**
     * Adds id, host, cores and the attribute NODE of the executors that get tasks now: not of those that are being decommissioned, though they are
     * active, nor of those whose block manager has not registered yet.
     */
    private void addExecutors(List<String> found) throws ReflectiveOperationException {
        Object scheduler = Calls.call(context, "taskScheduler");
        Object executors = Calls.call(Calls.call(context, "statusStore"), "executorList", true);
        Object each = Calls.call(executors, "iterator");
        while ((Boolean) Calls.call(each, "hasNext")) {
            Object executor = Calls.call(each, "next");
            String id = (String) Calls.call(executor, "id");
            String address = (String) Calls.call(executor, "hostPort");
            String host = address.substring(0, Math.max(0, address.lastIndexOf(':'))).replaceAll("[\\[\\]]", "");
            int cores = (Integer) Calls.call(executor, "totalCores");
            boolean isActive = (Boolean) Calls.call(executor, "isActive");
            boolean isLeaving = isDefined(Calls.call(scheduler, "getExecutorDecommissionState", id));
            if (!id.equals("driver") && isActive && cores > 0 && !host.isEmpty() && !isLeaving) {
                found.add(id);
                found.add(host);
                found.add(Integer.toString(cores));
                Object node = Calls.call(Calls.call(executor, "attributes"), "get", "NODE");
                found.add(isDefined(node) ? (String) Calls.call(node, "get") : "");
            }
        }
    }

    /** Adds checkpoint, state below it, analyzed plan and number of partitions of a query; nothing if it has ended. */
    private void addQuery(List<String> found, String id) throws ReflectiveOperationException {
        Object active = Calls.call(Calls.call(session(), "sharedState"), "activeStreamingQueries");
        Object execution = ((Map<?, ?>) active).get(UUID.fromString(id));
        if (execution == null) {
            return;
        }
        Object settings = Calls.call(Calls.call(execution, "sparkSession"), "conf");
        found.add((String) Calls.call(execution, "resolvedCheckpointRoot"));
        found.add((String) Calls.call(execution, "checkpointFile", "state"));
        found.add(Calls.call(execution, "analyzedPlan").toString());
        found.add((String) Calls.call(settings, "get", "spark.sql.shuffle.partitions"));
    }

    /** Tells the coordinator of state stores where each one is; returns how many were told. */
    private int tell(String[] about) throws ReflectiveOperationException {
        Object coordinator = coordinator();
        Object none = Calls.module("scala.collection.immutable.Nil$");
        Method report = null;
        int count = 0;
        for (int i = 2; i < about.length; i += STORE_FIELDS, count++) {
            Object store = store(about, i);
            if (report == null) {
                report = Calls.method(coordinator.getClass(), "reportActiveInstance", store, about[i + 3], about[i + 4], none);
            }
            report.invoke(coordinator, store, about[i + 3], about[i + 4], none);
        }
        return count;
    }

    /** Returns how many state stores the coordinator knows with another executor now: its locations end with the id. */
    private int elsewhere(String[] about) throws ReflectiveOperationException {
        Object coordinator = coordinator();
        int found = 0;
        for (int i = 2; i < about.length; i += STORE_FIELDS) {
            Object where = Calls.call(coordinator, "getLocation", store(about, i));
            if (isDefined(where) && !Calls.call(where, "get").toString().endsWith("_" + about[i + 4])) {
                found++;
            }
        }
        return found;
    }

    /** Returns the id of a store: {@code about} begins with the state's place and the run; operator, partition, name follow. */
    private static Object store(String[] about, int i) throws ReflectiveOperationException {
        Object store =
                Calls.type(STATE + "StateStoreId")
                        .getConstructor(String.class, long.class, int.class, String.class)
                        .newInstance(about[0], Long.parseLong(about[i]), Integer.parseInt(about[i + 1]), about[i + 2]);
        return Calls.type(STATE + "StateStoreProviderId")
                .getConstructor(store.getClass(), UUID.class)
                .newInstance(store, UUID.fromString(about[1]));
    }

    /** The reference is made with the session's settings from Spark 4.1 on. */
    private Object coordinator() throws ReflectiveOperationException {
        Object environment = Calls.call(context, "env");
        Object companion = Calls.module(STATE + "StateStoreCoordinatorRef$");
        try {
            return Calls.call(companion, "forDriver", environment);
        } catch (NoSuchMethodException moved) {
            return Calls.call(companion, "forDriver", environment, Calls.call(Calls.call(session(), "sessionState"), "conf"));
        }
    }

    /** Returns any session of the application. */
    private static Object session() throws ReflectiveOperationException {
        Object companion;
        try {
            companion = Calls.module("org.apache.spark.sql.classic.SparkSession$");
        } catch (ClassNotFoundException earlier) {
            companion = Calls.module("org.apache.spark.sql.SparkSession$");
        }
        return Calls.call(Calls.call(companion, "getDefaultSession"), "get");
    }

    private static boolean isDefined(Object option) throws ReflectiveOperationException {
        return (Boolean) Calls.call(option, "isDefined");
    }
}
