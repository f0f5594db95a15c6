package io.holdfast.spark;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.management.JMException;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The process beside the driver that decides where partitions go, as it does for PySpark: {@code holdfast-spark-driver}. It
 * hears of queries by its standard input, asks about Spark by its standard output, a line each ({@link Line}), and ends with its
 * input.
 *
 * <p>Nothing that happens to it holds the driver up: lines wait in a queue that drops what it has no room for.
 */
final class Companion {
    /** The path of the command, for a node on which it is in none of the usual places. */
    private static final String COMMAND_KEY = "spark.holdfast.command";

    private static final String COMMAND = "holdfast-spark-driver";
    private static final List<String> PLACES = Arrays.asList("/usr/lib/holdfast/bin", "/opt/holdfast/bin");
    private static final int MOST_WAITING = 1000;
    private static final long END_SECONDS = 3;
    private static final String QUESTION = "ask";
    private static final String DIRECTORY = "directory";
    private static final Logger LOG = LoggerFactory.getLogger("io.holdfast.spark");

    private final Process process;
    private final SparkInternals spark;
    private final BlockingQueue<String> unsent = new LinkedBlockingQueue<>(MOST_WAITING);
    private final Map<String, CompletableFuture<String>> awaited = new ConcurrentHashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool(daemons());
    private volatile boolean isClosed;
    private volatile boolean hasEnded;

    private Companion(Process process, SparkInternals spark) {
        this.process = process;
        this.spark = spark;
    }

    static Companion started(SparkConf conf, SparkInternals spark) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(conf.get(COMMAND_KEY, command()));
        Companion companion = new Companion(builder.redirectError(ProcessBuilder.Redirect.INHERIT).start(), spark);
        companion.threads.execute(companion::sendAll);
        companion.threads.execute(companion::readAll);
        return companion;
    }

    /** Introduces the driver; returns its working directory, or an empty string if it has none or that takes too long. */
    String hello(String name, String pid, boolean isLocal, String held, long milliseconds) throws InterruptedException {
        return answer(DIRECTORY, milliseconds, "hello", name, pid, Boolean.toString(isLocal), held);
    }

    /** Tells of a query that is about to start, and waits until Spark knows where its state is, but no longer than this. */
    void started(String query, String run, String name, long milliseconds) {
        try {
            answer(run, milliseconds, "started", query, run, name);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    void tell(String... fields) {
        unsent.offer(Line.of(fields));
    }

    /** Lets it send what it has, for a moment, and end. */
    void close() {
        isClosed = true;
        unsent.offer("");
        try {
            if (!process.waitFor(END_SECONDS, TimeUnit.SECONDS)) {
                process.destroy();
            }
        } catch (InterruptedException stopped) {
            process.destroy();
            Thread.currentThread().interrupt();
        }
        threads.shutdownNow();
    }

    private String answer(String key, long milliseconds, String... fields) throws InterruptedException {
        CompletableFuture<String> answer = new CompletableFuture<>();
        awaited.put(key, answer);
        tell(fields);
        try {
            return hasEnded ? "" : answer.get(milliseconds, TimeUnit.MILLISECONDS);
        } catch (ExecutionException | TimeoutException late) {
            return "";
        } finally {
            awaited.remove(key);
        }
    }

    private void sendAll() {
        try (Writer input = new BufferedWriter(new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8))) {
            for (String line = unsent.take(); !line.isEmpty(); line = unsent.take()) {
                input.write(line);
                input.write('\n');
                if (unsent.isEmpty()) {
                    input.flush();
                }
            }
        } catch (IOException | InterruptedException ended) {
            unsent.clear(); // the reader tells of the end
        }
    }

    private void readAll() {
        try (BufferedReader output =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                String[] fields = Line.fields(line);
                if (fields[0].equals(QUESTION) && fields.length > 2) {
                    threads.execute(() -> answer(fields));
                } else if (fields.length == 2) {
                    settle(fields[0], fields[1]);
                } else {
                    throw new IOException("nobody understands " + line);
                }
            }
        } catch (IOException | RuntimeException problem) {
            process.destroy();
        }
        hasEnded = true;
        awaited.values().forEach(each -> each.complete(""));
        if (!isClosed) {
            LOG.warn(COMMAND + " has ended: Spark places partitions by itself, and batches are not reported");
        }
    }

    private void settle(String key, String value) {
        CompletableFuture<String> answer = awaited.get(key);
        if (answer != null) {
            answer.complete(value);
        }
    }

    /** Answers a question about Spark: its number, the kind, and what it is about. */
    private void answer(String[] question) {
        String number = question[1];
        try {
            List<String> found = spark.answer(question[2], Arrays.copyOfRange(question, 3, question.length));
            found.add(0, number);
            found.add(0, "answer");
            tell(found.toArray(new String[0]));
        } catch (IOException | JMException | ReflectiveOperationException | RuntimeException | LinkageError problem) {
            Throwable cause = problem.getCause() == null ? problem : problem.getCause();
            tell("fault", number, cause.toString());
        }
    }

    private static String command() {
        String path = System.getenv("PATH");
        for (String place : ((path == null ? "" : path + File.pathSeparator) + String.join(File.pathSeparator, PLACES))
                .split(File.pathSeparator)) {
            File found = new File(place, COMMAND);
            if (!place.isEmpty() && found.canExecute()) {
                return found.getPath();
            }
        }
        return COMMAND; // so the error names it
    }

    private static ThreadFactory daemons() {
        return work -> {
            Thread thread = new Thread(work, "holdfast-companion");
            thread.setDaemon(true);
            return thread;
        };
    }
}
