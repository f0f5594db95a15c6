package io.holdfast.spark;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * A member of the root pool of Spark's scheduler, in the place of a {@code Schedulable}, that never has tasks.
 *
 * <p>Spark calls it in the threads of its scheduler, with its lock held, each time that it offers anything. So nothing is made or
 * looked up in a call, and nothing can be thrown but what {@link Hearer} throws.
 */
final class PoolMember implements InvocationHandler {
    /** Hears what a pool's members are told. It throws nothing. */
    interface Hearer {
        /** Hears that an executor is lost, or is to go. */
        void executorLost(String id);

        /** Hears that tasks are about to be offered to executors. */
        void beforeOffers();
    }

    private static final String NAME = "holdfast: tasks of executors that are lost";
    private static final String SCHEDULER = "org.apache.spark.scheduler.";

    final Hearer hearer;
    private final Object noTasks;
    private final Object noMode;
    /** Who asks a pool's members for theirs, to show them say, expects a queue. */
    private final ConcurrentLinkedQueue<Object> noMembers = new ConcurrentLinkedQueue<>();

    private PoolMember(Hearer hearer, Class<?> schedulable) throws ReflectiveOperationException {
        this.hearer = hearer;
        this.noTasks = schedulable.getMethod("getSortedTaskSetQueue").getReturnType().getConstructor().newInstance();
        this.noMode = Calls.type(SCHEDULER + "SchedulingMode").getMethod("NONE").invoke(null);
    }

    /** Returns who hears what a pool's members are told; null if nobody has joined it. */
    static Hearer of(Object pool) throws ReflectiveOperationException {
        Object member = Calls.call(pool, "getSchedulableByName", NAME);
        Object handler = member != null && Proxy.isProxyClass(member.getClass()) ? Proxy.getInvocationHandler(member) : null;
        return handler instanceof PoolMember ? ((PoolMember) handler).hearer : null;
    }

    /** Lets somebody hear what a pool's members are told. Fails where Spark has no such thing. */
    static void join(Object pool, Hearer hearer) throws ReflectiveOperationException {
        Class<?> schedulable = Calls.type(SCHEDULER + "Schedulable");
        PoolMember handler = new PoolMember(hearer, schedulable);
        Object member = Proxy.newProxyInstance(schedulable.getClassLoader(), new Class<?>[] {schedulable}, handler);
        Calls.call(pool, "addSchedulable", member);
    }

    @Override
    public Object invoke(Object member, Method method, Object[] arguments) {
        switch (method.getName()) {
            case "executorLost":
            case "executorDecommission":
                hearer.executorLost((String) arguments[0]);
                return null;
            case "getSortedTaskSetQueue": // Spark asks for it when it is to offer anything, and at no other time
                hearer.beforeOffers();
                return noTasks;
            case "schedulableQueue":
                return noMembers;
            case "schedulingMode":
                return noMode;
            case "name":
            case "toString":
                return NAME;
            case "weight":
                return 1; // others are divided by it
            case "equals":
                return member == arguments[0];
            case "hashCode":
                return System.identityHashCode(this);
            default:
                Class<?> result = method.getReturnType();
                return result == int.class ? (Object) 0 : result == boolean.class ? (Object) false : null;
        }
    }
}
