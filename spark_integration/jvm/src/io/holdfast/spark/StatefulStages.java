package io.holdfast.spark;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.WeakHashMap;
import org.apache.spark.SparkContext;

/**
 * Finds the partition of a query's state that a task works on, in the way in which Spark finds where a task belongs: from the last
 * RDD of its stage back to the nearest one with state stores.
 *
 * <p>The number of the task does not tell it. A stage may have no state, other data too (a union), several partitions in a task
 * (coalesce), or an operator that is not divided, which has one task where the query's others have many.
 */
final class StatefulStages {
    private static final String STREAMING = "org.apache.spark.sql.execution.streaming.";

    private final Object stages;
    private final Class<?> narrow = Calls.type("org.apache.spark.NarrowDependency");
    private final Method dependencies = Calls.type("org.apache.spark.rdd.RDD").getMethod("dependencies");
    private final Method parents = narrow.getMethod("getParents", int.class);
    private final Method parent = narrow.getMethod("rdd");
    /** Where classes of RDDs have the run of their query, or what knows it; null for those without state. */
    private final Map<Class<?>, Field> runs = new WeakHashMap<>();

    StatefulStages(SparkContext context) throws ReflectiveOperationException {
        stages = Calls.call(Calls.call(context, "dagScheduler"), "stageIdToStage");
        Calls.type(STREAMING + "state.BaseStateStoreRDD"); // or nothing would be found
    }

    /**
     * Returns the last RDD of a stage; null if it is not there. The scheduler's own thread changes what is looked at; a stage that
     * has tasks is there since before it had any.
     */
    Object lastRdd(Object stage) throws ReflectiveOperationException {
        Object found = Calls.call(stages, "get", stage);
        return (Boolean) Calls.call(found, "isDefined") ? Calls.call(Calls.call(found, "get"), "rdd") : null;
    }

    /** Returns the partition of the state of a run's query that a partition of an RDD is made of; null if there is none. */
    Integer partition(Object last, int of, String run) throws ReflectiveOperationException {
        Deque<List<Object>> left = new ArrayDeque<>();
        Set<List<Object>> seen = new HashSet<>(); // there may be more ways than could ever be gone
        left.add(Arrays.asList(last, of));
        while (!left.isEmpty()) {
            List<Object> next = left.remove();
            if (!seen.add(next)) {
                continue;
            }
            Object rdd = next.get(0);
            if (run.equals(runOf(rdd))) {
                return (Integer) next.get(1);
            }
            Object each = Calls.call(dependencies.invoke(rdd), "iterator");
            while ((Boolean) Calls.call(each, "hasNext")) {
                Object dependency = Calls.call(each, "next");
                if (narrow.isInstance(dependency)) {
                    Object number = Calls.call(parents.invoke(dependency, next.get(1)), "iterator");
                    while ((Boolean) Calls.call(number, "hasNext")) {
                        left.add(Arrays.asList(parent.invoke(dependency), Calls.call(number, "next")));
                    }
                }
            }
        }
        return null;
    }

    private String runOf(Object rdd) throws ReflectiveOperationException {
        if (!runs.containsKey(rdd.getClass())) {
            runs.put(rdd.getClass(), fieldOf(rdd.getClass()));
        }
        Field field = runs.get(rdd.getClass());
        Object found = field == null ? null : field.get(rdd);
        return found == null ? "" : (found instanceof UUID ? found : Calls.call(found, "queryRunId")).toString();
    }

    private static Field fieldOf(Class<?> rdd) {
        for (Class<?> type = rdd; type != null && type.getName().startsWith(STREAMING); type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                String kind = field.getType().getName();
                if (field.getType() == UUID.class || kind.startsWith(STREAMING) && kind.endsWith(".StatefulOperatorStateInfo")) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        return null;
    }
}
