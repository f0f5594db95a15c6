import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job whose state can be checked by itself: the numbers 0, 1, 2, …, counted by their remainders, each remainder with a
 * payload that follows from the last number. Whoever restores another state than belongs to the source's position fails at
 * the next number. Arguments: key=value of Flink's configuration. Prints "first N" (the first number it is given), and then
 * "at N" about once a second. Runs until it is killed, or fails.
 */
public final class Counting {
  private static final long KEYS = 500;
  private static final int RECORDS_PER_SECOND = 2000;
  private static final int PAYLOAD_LONGS = 128;

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
      if (found != expected || (expected > 0 && payload.value()[(int) (number % PAYLOAD_LONGS)] != number - KEYS)) {
        System.out.println("wrong at " + number + ": counted " + found + ", not " + expected);
        Runtime.getRuntime().halt(3);
      }
      count.update(found + 1);
      long[] next = new long[PAYLOAD_LONGS];
      java.util.Arrays.fill(next, number);
      payload.update(next);
      out.collect(number);
    }
  }

  static final class Teller extends org.apache.flink.api.common.functions.RichMapFunction<Long, Long> {
    private transient boolean hasTold;

    @Override
    public Long map(Long number) {
      if (!hasTold) {
        hasTold = true;
        System.out.println("first " + number);
      } else if (number % RECORDS_PER_SECOND == 0) {
        System.out.println("at " + number);
      }
      return number;
    }
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    for (String argument : arguments) {
      String[] pair = argument.split("=", 2);
      configuration.setString(pair[0], pair[1]);
    }
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
    JobClient job = environment.executeAsync("counting");
    System.out.println("job " + job.getJobID());
    job.getJobExecutionResult().get();
  }
}
