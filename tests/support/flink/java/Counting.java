import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job whose state can be checked by itself: the numbers 0, 1, 2, …, counted by their remainders, each remainder with a
 * payload that follows from the last number. Whoever restores another state than belongs to the source's position fails at
 * the next number of that remainder, with "wrong at N". Arguments: key=value of Flink's configuration. Prints "first N" (the
 * first number it is given), and then "at N" about once a second. A line "FORMAT DIRECTORY" of its input makes it take a
 * savepoint, and print "savepoint PATH", or "failed REASON". Runs until it is killed, or fails.
 */
public final class Counting {
  static final int KEYS = 500;
  private static final int RECORDS_PER_SECOND = 2000;
  private static final int PAYLOAD_LONGS = 128;

  /** The first number that the run in this JVM was given. */
  static volatile CompletableFuture<Long> first = new CompletableFuture<>();

  /** Done when every key has been found as it should be. */
  static volatile CompletableFuture<Void> whole = new CompletableFuture<>();

  private static final Set<Long> CHECKED = ConcurrentHashMap.newKeySet();

  /** Another state was restored than belongs to the source's position. */
  static final class WrongStateException extends Exception {
    WrongStateException(String message) {
      super(message);
    }
  }

  static final class Count extends KeyedProcessFunction<Long, Long, Long> {
    private transient ValueState<Long> count;
    private transient ValueState<long[]> payload;

    @Override
    public void open(OpenContext context) {
      count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
      payload = getRuntimeContext().getState(new ValueStateDescriptor<>("payload", long[].class));
    }

    @Override
    public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
      long expected = number / KEYS;
      long found = count.value() == null ? 0 : count.value();
      if (found != expected || (expected > 0 && !java.util.Arrays.equals(payload.value(), payload(number - KEYS)))) {
        var wrong = new WrongStateException("wrong at " + number + ": counted " + found + ", not " + expected);
        System.out.println(wrong.getMessage());
        throw wrong;
      }
      count.update(found + 1);
      payload.update(payload(number));
      if (CHECKED.add(number % KEYS) && CHECKED.size() == KEYS) {
        whole.complete(null);
      }
      out.collect(number);
    }

    private static long[] payload(long number) {
      long[] payload = new long[PAYLOAD_LONGS];
      java.util.Arrays.fill(payload, number);
      return payload;
    }
  }

  static final class Teller extends RichMapFunction<Long, Long> {
    private transient boolean hasTold;

    @Override
    public Long map(Long number) {
      if (!hasTold) {
        hasTold = true;
        System.out.println("first " + number);
        first.complete(number);
      } else if (number % RECORDS_PER_SECOND == 0) {
        System.out.println("at " + number);
      }
      return number;
    }
  }

  /** The environment with the job in it, and nothing checked yet. */
  static StreamExecutionEnvironment prepared(Configuration configuration) {
    CHECKED.clear();
    first = new CompletableFuture<>();
    whole = new CompletableFuture<>();
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
    var numbers =
        new DataGeneratorSource<Long>(
            n -> n, Long.MAX_VALUE, RateLimiterStrategy.perSecond(RECORDS_PER_SECOND), Types.LONG);
    environment
        .fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
        .setParallelism(1)
        .uid("numbers")
        .map(new Teller())
        .setParallelism(1)
        .uid("teller")
        .keyBy(number -> number % KEYS)
        .process(new Count())
        .uid("count")
        .sinkTo(new DiscardingSink<>());
    return environment;
  }

  static Configuration configuration(String[] arguments) {
    Configuration configuration = new Configuration();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      configuration.setString(pair[0], pair[1]);
    }
    return configuration;
  }

  private static void takeSavepoints(JobClient job) {
    new BufferedReader(new InputStreamReader(System.in))
        .lines()
        .map(line -> line.split(" ", 2))
        .map(words -> job.triggerSavepoint(words[1], SavepointFormatType.valueOf(words[0])))
        .map(taken -> taken.handle((path, problem) -> problem == null ? "savepoint " + path : "failed " + problem).join())
        .forEach(System.out::println);
  }

  public static void main(String[] arguments) throws Exception {
    JobClient job = prepared(configuration(arguments)).executeAsync("counting");
    System.out.println("job " + job.getJobID());
    Thread savepoints = new Thread(() -> takeSavepoints(job));
    savepoints.setDaemon(true);
    savepoints.start();
    job.getJobExecutionResult().get();
  }
}
