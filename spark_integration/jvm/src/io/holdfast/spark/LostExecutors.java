package io.holdfast.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sends the tasks of an executor that is lost, or is to go, to those that have the state of their partitions.
 *
 * <p>Spark asks where a stage's partitions belong when the stage begins. A task that is run anew has the locations of then, so
 * it goes to whichever executor is free, which fetches its state. The scheduler tells whatever is in its root pool that an
 * executor is lost, with its lock held, and offers the tasks to nobody before all have heard it. So this is a member of that
 * pool, which never has tasks, and gives those of others new locations. It does not matter whether a task's own manager has
 * put it back into its queues before or does so afterwards.
 *
 * <p>All of Spark that is used here is private to it, and has been the same from 3.5 to 4.3. No fault reaches Spark: it is a
 * line in the log, once, and the tasks go where they would have gone.
 */
public final class LostExecutors implements PoolMember.Hearer {
    private static final String SCHEDULER = "org.apache.spark.scheduler.";
    /** The property of a task's job that has a streaming query's run. */
    private static final String RUN = "spark.jobGroup.id";

    private static final Logger LOG = LoggerFactory.getLogger("io.holdfast.spark");

    private final Object scheduler;
    private final Object pool;
    private final Map<String, FurtherPlaces> runs = new ConcurrentHashMap<>();
    private final Map<Class<?>, Field> locations = new HashMap<>();
    private final Class<?> schedulable = Calls.type(SCHEDULER + "Schedulable");
    private final Class<?> manager = Calls.type(SCHEDULER + "TaskSetManager");
    private final Class<?> executorLocation = Calls.type(SCHEDULER + "ExecutorCacheTaskLocation");
    private final Method members = schedulable.getMethod("schedulableQueue");
    private final Method tasksOf = manager.getMethod("tasks");
    private final Method partition = Calls.type(SCHEDULER + "Task").getMethod("partitionId");
    private final Method partitions = Calls.type(SCHEDULER + "Task").getMethod("numPartitions");
    private final Method preferred = Calls.type(SCHEDULER + "Task").getMethod("preferredLocations");
    private final Constructor<?> newLocation = executorLocation.getConstructor(String.class, String.class);
    private final Method executorId = executorLocation.getMethod("executorId");
    private final Method addPending = manager.getMethod("addPendingTask", int.class, boolean.class, boolean.class);
    private final Method isAlive;
    private String problem = "";

    private LostExecutors(Object scheduler, Object pool) throws ReflectiveOperationException {
        this.scheduler = scheduler;
        this.pool = pool;
        isAlive = Calls.method(scheduler.getClass(), "isExecutorAlive", "");
    }

    /**
     * Returns the one in the scheduler's pool, which joins it the first time, however many sessions ask. Fails where Spark has no
     * such thing.
     */
    public static synchronized LostExecutors of(SparkContext context) throws ReflectiveOperationException {
        Object scheduler = Calls.call(context, "taskScheduler");
        Object pool = Calls.call(scheduler, "rootPool");
        PoolMember.Hearer there = PoolMember.of(pool);
        if (there instanceof LostExecutors) {
            return (LostExecutors) there;
        }
        LostExecutors made = new LostExecutors(scheduler, pool);
        PoolMember.join(pool, made);
        return made;
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
        synchronized (scheduler) { // as whoever calls a manager; of an executor that is to go, Spark tells without it
            moveTasks(executor, pool);
        }
    }

    /** Moves those of a manager, or of the managers in a pool and in pools in it. */
    private void moveTasks(String executor, Object member) {
        try {
            if (manager.isInstance(member)) {
                moveTasksOf(executor, member);
                return;
            }
            Collection<?> inside = (Collection<?>) members.invoke(member);
            for (Object each : inside == null ? Collections.emptyList() : inside) {
                moveTasks(executor, each);
            }
        } catch (ReflectiveOperationException | RuntimeException | LinkageError fault) {
            tell(executor, fault);
        }
    }

    /** Says in the log why tasks are left, but not what it has just said: there may be thousands of executors. */
    private void tell(String executor, Throwable fault) {
        String cause = String.valueOf(fault instanceof InvocationTargetException ? fault.getCause() : fault);
        if (!cause.equals(problem)) {
            problem = cause;
            LOG.warn("tasks of executor " + executor + " go to any other: " + cause);
        }
    }

    private void moveTasksOf(String executor, Object manager) throws ReflectiveOperationException {
        Properties properties = (Properties) Calls.call(Calls.call(manager, "taskSet"), "properties");
        String run = properties == null ? null : properties.getProperty(RUN);
        FurtherPlaces places = run == null ? null : runs.get(run);
        if (places == null || (Boolean) Calls.call(manager, "isZombie") || (Boolean) Calls.call(manager, "isBarrier")) {
            return;
        }
        Object[] tasks = (Object[]) tasksOf.invoke(manager);
        int[] running = (int[]) Calls.call(manager, "copiesRunning");
        boolean[] successful = (boolean[]) Calls.call(manager, "successful");
        int moved = 0;
        for (int i = 0; i < tasks.length; i++) {
            Object found = prefers(tasks[i], executor) ? locations(tasks[i], places, executor) : null;
            if (found != null) {
                field(tasks[i].getClass()).set(tasks[i], found);
                if (running[i] == 0 && !successful[i]) {
                    addPending.invoke(manager, i, true, false); // the others' managers do so
                }
                moved++;
            }
        }
        if (moved > 0) {
            waitForLocations(manager);
            LOG.warn(moved + " tasks of executor " + executor + " belong where their state is");
        }
    }

    private boolean prefers(Object task, String executor) throws ReflectiveOperationException {
        Object each = Calls.call(preferred.invoke(task), "iterator");
        while ((Boolean) Calls.call(each, "hasNext")) {
            Object location = Calls.call(each, "next");
            if (executorLocation.isInstance(location) && executor.equals(executorId.invoke(location))) {
                return true;
            }
        }
        return false;
    }

    /** Returns the locations of all executors of a task's first place that has some left; null if none has. */
    private Object locations(Object task, FurtherPlaces places, String lost) throws ReflectiveOperationException {
        Object none = Calls.module("scala.collection.immutable.Nil$");
        int count = (Integer) partitions.invoke(task);
        for (List<FurtherPlaces.Executor> place : places.of(count, (Integer) partition.invoke(task))) {
            Object found = none;
            for (FurtherPlaces.Executor each : place) {
                if (!each.id.equals(lost) && (Boolean) isAlive.invoke(scheduler, each.id)) {
                    found = Calls.call(found, "$colon$colon", newLocation.newInstance(each.host, each.id));
                }
            }
            if (found != none) {
                return found;
            }
        }
        return null;
    }

    /** Lets a manager wait for tasks' locations as long as when the stage began, though it may have given up doing so. */
    private static void waitForLocations(Object manager) throws ReflectiveOperationException {
        Calls.call(manager, "recomputeLocality");
        Object nearest = Calls.type(SCHEDULER + "TaskLocality").getMethod("PROCESS_LOCAL").invoke(null);
        Object some = Calls.type("scala.Some").getConstructor(Object.class).newInstance(nearest);
        Calls.call(manager, "resetDelayScheduleTimer", some);
    }

    private Field field(Class<?> task) throws NoSuchFieldException {
        Field field = locations.get(task);
        if (field == null) {
            field = task.getDeclaredField("preferredLocs");
            field.setAccessible(true);
            locations.put(task, field);
        }
        return field;
    }
}
