package io.holdfast.spark;

import java.lang.reflect.Method;

/** Calls by name, for what has other signatures in other versions of Spark and Scala. */
final class Calls {
    private Calls() {}

    static Class<?> type(String name) throws ClassNotFoundException {
        return Class.forName(name, true, org.apache.spark.SparkContext.class.getClassLoader());
    }

    /** Returns the one instance of an object of Scala's. */
    static Object module(String name) throws ReflectiveOperationException {
        return type(name).getField("MODULE$").get(null);
    }

    static Object call(Object target, String name, Object... arguments) throws ReflectiveOperationException {
        return method(target.getClass(), name, arguments).invoke(target, arguments);
    }

    static Method method(Class<?> type, String name, Object... arguments) throws NoSuchMethodException {
        for (Method method : type.getMethods()) {
            if (method.getName().equals(name) && takes(method.getParameterTypes(), arguments)) {
                method.setAccessible(true); // a public method of a class that may not be
                return method;
            }
        }
        throw new NoSuchMethodException(type.getName() + "." + name);
    }

    private static boolean takes(Class<?>[] parameters, Object[] arguments) {
        if (parameters.length != arguments.length) {
            return false;
        }
        for (int i = 0; i < arguments.length; i++) {
            boolean isFlag = parameters[i] == boolean.class && arguments[i] instanceof Boolean;
            if (!isFlag && !parameters[i].isInstance(arguments[i])) {
                return false;
            }
        }
        return true;
    }
}
