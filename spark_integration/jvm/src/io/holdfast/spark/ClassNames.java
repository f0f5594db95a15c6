package io.holdfast.spark;

import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.management.JMException;
import javax.management.ObjectName;

/**
 * The names of the classes that a driver has loaded, kept for the next one, in which a thread loads them while Spark starts:
 * what the first batch needs is then there, and has been read and verified by a processor that had nothing else to do.
 *
 * <p>No class is initialized, so nothing of the job runs earlier than without this. A name that is not known any more, or names
 * something else, costs the search for it.
 *
 * <p>There is one exception: RocksDB's native library, which Spark unpacks from its jar and links in the first task that opens a
 * state store. If an earlier driver has needed it, Spark's own loader does that here, after the classes.
 */
public final class ClassNames {
    private static final String DIAGNOSTICS = "com.sun.management:type=DiagnosticCommand";
    /** The names of many times as many classes as a driver has. */
    private static final long MOST_BYTES = 16 << 20;

    private static final String HIERARCHY = "vmClassHierarchy";
    /** A line of the hierarchy: depth, name, and loader; a class without a name that can be looked up has another slash. */
    private static final Pattern LINE = Pattern.compile("[| ]*--([^/ ]+)/[^/ ]+(?: .*)?");

    /** Spark's own, in all versions. It tries once, and whoever asks later gets the same answer. The object behind it, with a
     * {@code $}, is loaded in drivers that open state stores. */
    private static final String LIBRARY_LOADER = "org.apache.spark.sql.execution.streaming.state.RocksDBLoader";

    /** Far more than the library takes. */
    private static final long LIBRARY_BYTES = 64L << 20;

    private ClassNames() {}

    /**
     * Loads the classes that a file names, a line each; returns the thread that does it. It is not started where there is only
     * one processor, which Spark's own thread needs.
     *
     * <p>The names are divided into parts. Those of the part {@code leftOut} (below zero: of none) are not loaded, so that
     * {@link #write} finds which of them are needed.
     */
    public static Thread load(String file, int parts, int leftOut) {
        Thread thread = new Thread(() -> loadAll(Paths.get(file), parts, leftOut), "holdfast-classes");
        thread.setDaemon(true);
        if (Runtime.getRuntime().availableProcessors() > 1) {
            thread.start();
        }
        return thread;
    }

    /**
     * Writes the names of all classes that are loaded and can be loaded by name, whole or not at all; returns their number. The
     * JVM stands still for it, for about 50 ms.
     */
    public static int write(String file) throws IOException, JMException {
        String[] signature = {String[].class.getName()};
        Object hierarchy =
                ManagementFactory.getPlatformMBeanServer()
                        .invoke(new ObjectName(DIAGNOSTICS), HIERARCHY, new Object[] {new String[0]}, signature);
        Set<String> names = new LinkedHashSet<>(); // Java 21 lists some classes twice
        for (String line : hierarchy.toString().split("\n")) {
            Matcher found = LINE.matcher(line);
            if (found.matches() && isKnown(found.group(1))) {
                names.add(found.group(1));
            }
        }
        Path written = Paths.get(file + ".new");
        Files.write(written, names);
        Files.move(written, Paths.get(file), StandardCopyOption.ATOMIC_MOVE);
        return names.size();
    }

    private static void loadAll(Path file, int parts, int leftOut) {
        List<String> names;
        try {
            if (Files.size(file) > MOST_BYTES) {
                return;
            }
            names = Files.readAllLines(file);
        } catch (IOException | RuntimeException problem) {
            return; // as when there is none yet
        }
        for (String name : names) {
            if (Math.floorMod(name.hashCode(), parts) != leftOut) {
                isKnown(name);
            }
        }
        if (names.contains(LIBRARY_LOADER + "$")) {
            loadLibrary();
        }
    }

    /**
     * Has RocksDB's native library unpacked and linked. Where it may not fit, this is left to the first state store: there may be
     * room by then, and Spark does not try again.
     */
    private static void loadLibrary() {
        File directory = new File(System.getProperty("java.io.tmpdir"));
        if (!directory.canWrite() || directory.getUsableSpace() < LIBRARY_BYTES) {
            return;
        }
        try {
            Class.forName(LIBRARY_LOADER, true, ClassNames.class.getClassLoader()).getMethod("loadLibrary").invoke(null);
        } catch (ReflectiveOperationException | LinkageError problem) {
            // whoever needs the library is told by the loader
        }
    }

    /** Loads and links a class; says whether there is one. */
    private static boolean isKnown(String name) {
        try {
            Class.forName(name, false, ClassNames.class.getClassLoader()).getDeclaredConstructors(); // which links it
            return true;
        } catch (ClassNotFoundException | LinkageError | RuntimeException problem) {
            return false;
        }
    }
}
