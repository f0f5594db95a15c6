package io.holdfast.spark;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends the tasks of an executor that is lost, or is to go, to those that have the state of their partitions, and lets tasks
 * wait for an executor that has their state.
 *
 * <p>Spark asks where a stage's partitions belong when the stage begins. A task that is run anew has the locations of then, so
 * it goes to whichever executor is free, which fetches its state. The scheduler tells whatever is in its root pool that an
 * executor is lost, with its lock held, and offers the tasks to nobody before all have heard it. So this hears of it as a member
 * of that pool, and gives the tasks of others new locations. It does not matter whether a task's own manager has put it back
 * into its queues before or does so afterwards. A stage that begins while Spark still believes that state is with an executor
 * that is gone, as one that is run again may, is looked at before its tasks are offered to anybody.
 *
 * <p>All of Spark that is used for it is private to it, and has been the same from 3.5 to 4.3. No fault reaches Spark: it is a
 * line in the log, once, and the tasks go where they would have gone.
 */
public final class LostExecutors implements PoolMember.Hearer {
    /** The property of a task's job that has a streaming query's run. */
    private static final String RUN = "spark.jobGroup.id";

    private static final String[] WAITS = {"spark.locality.wait", "spark.locality.wait.process"};
    /** More are not lost in the time that it takes to tell Spark of new places. */
    private static final int MOST_LOST = 1000;

    private static final Logger LOG = LoggerFactory.getLogger("io.holdfast.spark");

    private final Object scheduler;
    private final Object pool;
    private final boolean isPatient;
    private final TaskLocations locations;
    private final StatefulStages stages;
    private final Class<?> task = Calls.type("org.apache.spark.scheduler.Task");
    private final Method partition = task.getMethod("partitionId");
    private final Method partitions = task.getMethod("numPartitions");
    private final Method members = Calls.type("org.apache.spark.scheduler.Schedulable").getMethod("schedulableQueue");
    private final Map<String, FurtherPlaces> runs = new ConcurrentHashMap<>();
    // What follows is used with the scheduler's lock held.
    private final Set<String> lost = new LinkedHashSet<>();
    /** The managers that have been looked at, and until when their tasks wait, as {@code System.nanoTime} says. */
    private final Map<Object, Long> waiting = new WeakHashMap<>();

    private String problem = "";

    private LostExecutors(SparkContext context, Object scheduler, Object pool) throws ReflectiveOperationException {
        this.scheduler = scheduler;
        this.pool = pool;
        SparkConf conf = (SparkConf) Calls.call(context, "conf");
        isPatient = conf.get(WAITS[0], "").isEmpty() && conf.get(WAITS[1], "").isEmpty(); // the job has said nothing
        locations = new TaskLocations(scheduler);
        stages = stagesOf(context);
    }

    /**
     * Returns the one in the scheduler's pool, which joins it the first time, however many sessions ask. Fails where Spark has
     * no such thing.
     */
    public static synchronized LostExecutors of(SparkContext context) throws ReflectiveOperationException {
        Object scheduler = Calls.call(context, "taskScheduler");
        Object pool = Calls.call(scheduler, "rootPool");
        PoolMember.Hearer there = PoolMember.of(pool);
        if (there instanceof LostExecutors) {
            return (LostExecutors) there;
        }
        LostExecutors made = new LostExecutors(context, scheduler, pool);
        PoolMember.join(pool, made);
        return made;
    }

    private static StatefulStages stagesOf(SparkContext context) {
        try {
            return new StatefulStages(context);
        } catch (ReflectiveOperationException | RuntimeException | LinkageError unknown) {
            LOG.warn("stages with state are known by how many tasks they have alone: " + unknown);
            return null;
        }
    }

    /** Takes what {@link FurtherPlaces} reads, after the run that it is about, a word a line. */
    public int tell(String lines) {
        return tell(lines.split("\n"));
    }

    /** Takes what {@link FurtherPlaces} reads, after the run that it is about; returns of how many partitions. */
    int tell(String[] words) {
        FurtherPlaces places = new FurtherPlaces(words, 1);
        if (places.count() == 0) {
            runs.remove(words[0]);
        } else {
            runs.put(words[0], places);
        }
        return places.count();
    }

    @Override
    public void executorLost(String executor) {
        if (runs.isEmpty()) {
            return;
        }
        synchronized (scheduler) { // as whoever calls a manager; of an executor that is to go, Spark tells without it
            lost.add(executor);
            if (lost.size() > MOST_LOST) {
                lost.remove(lost.iterator().next());
            }
            withManagers(pool, this::look);
        }
    }

    @Override
    public void beforeOffers() {
        if (runs.isEmpty()) {
            return;
        }
        synchronized (scheduler) {
            withManagers(pool, this::letWait);
        }
    }

    private interface Work {
        void on(Object manager) throws ReflectiveOperationException;
    }

    /** Does something with a manager, or with the managers in a pool and in pools in it. */
    private void withManagers(Object member, Work work) {
        try {
            if (locations.isManager(member)) {
                work.on(member);
                return;
            }
            Collection<?> inside = (Collection<?>) members.invoke(member);
            for (Object each : inside == null ? Collections.emptyList() : inside) {
                withManagers(each, work);
            }
        } catch (ReflectiveOperationException | RuntimeException | LinkageError fault) {
            tell(fault);
        }
    }

    /** Says in the log why tasks are left alone, but not what it has just said: Spark offers them each second. */
    private void tell(Throwable fault) {
        String cause = String.valueOf(fault instanceof InvocationTargetException ? fault.getCause() : fault);
        if (!cause.equals(problem)) {
            problem = cause;
            LOG.warn("tasks of lost executors go to any other: " + cause);
        }
    }

    /**
     * Keeps a manager from giving its tasks to others than those who have their state. Spark does so when an executor has been
     * free for {@code spark.locality.wait}, whatever the task would cost there.
     */
    private void letWait(Object manager) throws ReflectiveOperationException {
        if (!waiting.containsKey(manager)) {
            look(manager);
        }
        if (waiting.get(manager) - System.nanoTime() > 0) {
            locations.goOnWaiting(manager);
        }
    }

    /** Looks at a manager that is new, or that may have tasks of an executor that has been lost. */
    private void look(Object manager) throws ReflectiveOperationException {
        long now = System.nanoTime();
        boolean isNew = waiting.putIfAbsent(manager, now) == null;
        Properties properties = (Properties) Calls.call(Calls.call(manager, "taskSet"), "properties");
        String run = properties == null ? null : properties.getProperty(RUN);
        FurtherPlaces places = run == null ? null : runs.get(run);
        if (places == null || (Boolean) Calls.call(manager, "isZombie") || (Boolean) Calls.call(manager, "isBarrier")) {
            return;
        }
        Object last = stages == null ? null : stages.lastRdd(Calls.call(manager, "stageId"));
        TaskLocations.Places placesOf =
                each -> {
                    Integer number = partition(each, last, run, places);
                    return number == null ? null : places.of(number);
                };
        int moved = lost.isEmpty() ? 0 : locations.move(manager, lost, placesOf);
        if (moved > 0) {
            LOG.warn(moved + " tasks of lost executors belong where their state is");
        }
        if (isPatient && (isNew || moved > 0) && areKnown(locations.tasks(manager), placesOf)) {
            waiting.put(manager, now + TimeUnit.MILLISECONDS.toNanos(places.waitMillis));
        }
    }

    /** Says whether all tasks have state, for the others would wait with them; in a union the first or the last ones have none. */
    private static boolean areKnown(Object[] tasks, TaskLocations.Places places) throws ReflectiveOperationException {
        return places.of(tasks[0]) != null && places.of(tasks[tasks.length - 1]) != null;
    }

    /** Returns the partition of the state that a task works on; null if it works on none. */
    private Integer partition(Object task, Object last, String run, FurtherPlaces places) throws ReflectiveOperationException {
        Integer number = (Integer) partition.invoke(task);
        if (last != null) {
            return stages.partition(last, number, run);
        }
        return places.hasOperatorOf((Integer) partitions.invoke(task)) ? number : null;
    }
}
