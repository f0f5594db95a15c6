package io.holdfast.spark;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The locations of the tasks of Spark's managers. Everything is called with the scheduler's lock held, as Spark does. */
final class TaskLocations {
    private static final String SCHEDULER = "org.apache.spark.scheduler.";

    /** Tells where a task belongs. */
    interface Places {
        /** Returns the executors of each of its places, the best first; null of a task that nobody knows. */
        List<List<FurtherPlaces.Executor>> of(Object task) throws ReflectiveOperationException;
    }

    private final Object scheduler;
    private final Map<Class<?>, Field> fields = new HashMap<>();
    private final Class<?> manager = Calls.type(SCHEDULER + "TaskSetManager");
    private final Class<?> executorLocation = Calls.type(SCHEDULER + "ExecutorCacheTaskLocation");
    private final Object nowhere = Calls.module("scala.collection.immutable.Nil$");
    private final Object unchanged = Calls.module("scala.None$");
    private final Method tasks = manager.getMethod("tasks");
    private final Method preferred = Calls.type(SCHEDULER + "Task").getMethod("preferredLocations");
    private final Constructor<?> newLocation = executorLocation.getConstructor(String.class, String.class);
    private final Method executorId = executorLocation.getMethod("executorId");
    private final Method addPending = manager.getMethod("addPendingTask", int.class, boolean.class, boolean.class);
    private final Method resetTimer = Calls.method(manager, "resetDelayScheduleTimer", unchanged);
    private final Method isAlive;

    TaskLocations(Object scheduler) throws ReflectiveOperationException {
        this.scheduler = scheduler;
        isAlive = Calls.method(scheduler.getClass(), "isExecutorAlive", "");
    }

    boolean isManager(Object member) {
        return manager.isInstance(member);
    }

    Object[] tasks(Object manager) throws ReflectiveOperationException {
        return (Object[]) tasks.invoke(manager);
    }

    /** Gives those of a manager's tasks that belong to a lost executor the locations of other places; returns of how many. */
    int move(Object manager, Set<String> lost, Places places) throws ReflectiveOperationException {
        Object[] all = tasks(manager);
        int[] running = (int[]) Calls.call(manager, "copiesRunning");
        boolean[] successful = (boolean[]) Calls.call(manager, "successful");
        int moved = 0;
        for (int i = 0; i < all.length; i++) {
            List<List<FurtherPlaces.Executor>> found = prefers(all[i], lost) ? places.of(all[i]) : null;
            if (found != null) {
                field(all[i].getClass()).set(all[i], locations(found, lost));
                if (running[i] == 0 && !successful[i]) {
                    addPending.invoke(manager, i, true, false); // the others' managers do so
                }
                moved++;
            }
        }
        if (moved > 0) {
            waitAnew(manager);
        }
        return moved;
    }

    /** Lets a manager wait for the tasks' locations from now on, if it has not given up doing so. */
    void goOnWaiting(Object manager) throws ReflectiveOperationException {
        resetTimer.invoke(manager, unchanged);
    }

    /** Lets a manager wait as long as when the stage began, though it may have given up. */
    private void waitAnew(Object manager) throws ReflectiveOperationException {
        Calls.call(manager, "recomputeLocality");
        Object nearest = Calls.type(SCHEDULER + "TaskLocality").getMethod("PROCESS_LOCAL").invoke(null);
        resetTimer.invoke(manager, Calls.type("scala.Some").getConstructor(Object.class).newInstance(nearest));
    }

    private boolean prefers(Object task, Set<String> executors) throws ReflectiveOperationException {
        Object each = Calls.call(preferred.invoke(task), "iterator");
        while ((Boolean) Calls.call(each, "hasNext")) {
            Object location = Calls.call(each, "next");
            if (executorLocation.isInstance(location) && executors.contains((String) executorId.invoke(location))) {
                return true;
            }
        }
        return false;
    }

    /**
     * Returns the locations of all executors of the first place that has some left; none if no place has. A task without locations
     * waits for nobody, where one of an executor that is gone would.
     */
    private Object locations(List<List<FurtherPlaces.Executor>> places, Set<String> lost) throws ReflectiveOperationException {
        for (List<FurtherPlaces.Executor> place : places) {
            Object found = nowhere;
            for (FurtherPlaces.Executor each : place) {
                if (!lost.contains(each.id) && (Boolean) isAlive.invoke(scheduler, each.id)) {
                    found = Calls.call(found, "$colon$colon", newLocation.newInstance(each.host, each.id));
                }
            }
            if (found != nowhere) {
                return found;
            }
        }
        return nowhere;
    }

    private Field field(Class<?> task) throws NoSuchFieldException {
        Field field = fields.get(task);
        if (field == null) {
            field = task.getDeclaredField("preferredLocs");
            field.setAccessible(true);
            fields.put(task, field);
        }
        return field;
    }
}
