package io.holdfast.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
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
 * <p>All of Spark that is used here is private to it, and has been the same from 3.5 to 4.3. No fault reaches Spark: each is a
 * line in the log, and the tasks go where they would have gone.
 */
public final class LostExecutors implements InvocationHandler {
    private static final String SCHEDULER = "org.apache.spark.scheduler.";
    private static final String NAME = "holdfast: tasks of executors that are lost";
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
    private final Constructor<?> noManagers = schedulable.getMethod("getSortedTaskSetQueue").getReturnType().getConstructor();
    private final Method members = schedulable.getMethod("schedulableQueue");
    private final Method tasksOf = manager.getMethod("tasks");
    private final Method partition = Calls.type(SCHEDULER + "Task").getMethod("partitionId");
    private final Method partitions = Calls.type(SCHEDULER + "Task").getMethod("numPartitions");
    private final Method preferred = Calls.type(SCHEDULER + "Task").getMethod("preferredLocations");
    private final Constructor<?> newLocation = executorLocation.getConstructor(String.class, String.class);
    private final Method executorId = executorLocation.getMethod("executorId");
    private final Method addPending = manager.getMethod("addPendingTask", int.class, boolean.class, boolean.class);
    private final Method isAlive;

    /** Joins the scheduler's pool; fails where Spark has no such thing. */
    public LostExecutors(SparkContext context) throws ReflectiveOperationException {
        scheduler = Calls.call(context, "taskScheduler");
        pool = Calls.call(scheduler, "rootPool");
        isAlive = Calls.method(scheduler.getClass(), "isExecutorAlive", "");
        Object member = Proxy.newProxyInstance(schedulable.getClassLoader(), new Class<?>[] {schedulable}, this);
        Calls.call(pool, "addSchedulable", member);
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
    public Object invoke(Object member, Method method, Object[] arguments) throws ReflectiveOperationException {
        switch (method.getName()) {
            case "executorLost":
            case "executorDecommission":
                moveTasksOf((String) arguments[0]);
                return null;
            case "name":
            case "toString":
                return NAME;
            case "weight":
                return 1; // others are divided by it
            case "equals":
                return member == arguments[0];
            case "hashCode":
                return System.identityHashCode(this);
            case "getSortedTaskSetQueue":
                return noManagers.newInstance();
            default:
                Class<?> result = method.getReturnType();
                return result == int.class ? (Object) 0 : result == boolean.class ? (Object) false : null;
        }
    }

    private void moveTasksOf(String executor) {
        try {
            synchronized (scheduler) { // as whoever calls a manager
                moveTasks(executor, (Collection<?>) members.invoke(pool));
            }
        } catch (ReflectiveOperationException | RuntimeException | LinkageError problem) {
            Throwable cause = problem instanceof InvocationTargetException ? problem.getCause() : problem;
            LOG.warn("tasks of executor " + executor + " go to any other: " + cause);
        }
    }

    /** Moves those of the managers in a pool, and in pools in it. */
    private void moveTasks(String executor, Collection<?> pooled) throws ReflectiveOperationException {
        for (Object each : pooled) {
            if (manager.isInstance(each)) {
                moveTasks(executor, each);
            } else {
                Collection<?> inside = (Collection<?>) members.invoke(each);
                moveTasks(executor, inside == null ? new ArrayList<>() : inside);
            }
        }
    }

    private void moveTasks(String executor, Object manager) throws ReflectiveOperationException {
        Properties properties = (Properties) Calls.call(Calls.call(manager, "taskSet"), "properties");
        String run = properties == null ? null : properties.getProperty(RUN);
        FurtherPlaces places = run == null ? null : runs.get(run);
        if (places == null || (Boolean) Calls.call(manager, "isZombie")) {
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
