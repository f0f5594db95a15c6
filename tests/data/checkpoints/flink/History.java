import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * A job with keyed state, split and union list state, and a source with a coordinator. Arguments: seconds to run, a directory
 * for savepoints ("-": none), then key=value of Flink's configuration; "sample.slow-ms" delays each record, so that channels
 * fill, "sample.payload-bytes" is the size of a state, and "sample.finite" adds operators that end at once.
 */
public final class History {
  static final class Payload extends KeyedProcessFunction<Long, Long, Long> {
    private final long slowMilliseconds;
    private final int payloadBytes;
    private transient ValueState<byte[]> state;

    Payload(long slowMilliseconds, int payloadBytes) {
      this.slowMilliseconds = slowMilliseconds;
      this.payloadBytes = payloadBytes;
    }

    @Override
    public void open(OpenContext context) {
      state = getRuntimeContext().getState(new ValueStateDescriptor<>("payload", byte[].class));
    }

    @Override
    public void processElement(Long value, Context context, Collector<Long> out) throws Exception {
      Thread.sleep(slowMilliseconds);
      byte[] payload = new byte[payloadBytes];
      new Random(value).nextBytes(payload);
      state.update(payload);
      out.collect(value);
    }
  }

  static final class Listed implements MapFunction<Long, Long>, CheckpointedFunction {
    private transient ListState<Long> split;
    private transient ListState<Long> union;
    private long last;

    @Override
    public Long map(Long value) {
      last = value;
      return value;
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
      split.update(List.of(last, last + 1));
      union.update(List.of(last));
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
      split = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("split", Types.LONG));
      union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union", Types.LONG));
    }
  }

  public static void main(String[] arguments) throws Exception {
    Configuration configuration = new Configuration();
    for (int i = 2; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      configuration.setString(pair[0], pair[1]);
    }
    StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
    var generator =
        new DataGeneratorSource<Long>(n -> n, Long.MAX_VALUE, RateLimiterStrategy.perSecond(400), Types.LONG);
    environment
        .fromSource(generator, WatermarkStrategy.noWatermarks(), "numbers")
        .uid("numbers")
        .map(new Listed())
        .uid("listed")
        .keyBy(value -> value % 997)
        .process(
            new Payload(
                Long.parseLong(configuration.getString("sample.slow-ms", "0")),
                Integer.parseInt(configuration.getString("sample.payload-bytes", "2000"))))
        .uid("payload")
        .sinkTo(new DiscardingSink<>());
    if (configuration.containsKey("sample.finite")) {
      environment.fromSequence(0, 3).map(new Listed()).uid("finite").sinkTo(new DiscardingSink<>());
    }
    JobClient client = environment.executeAsync("history");
    System.out.println("job " + client.getJobID());
    Thread.sleep(1000L * Integer.parseInt(arguments[0]));
    if (!arguments[1].equals("-")) {
      for (SavepointFormatType type : List.of(SavepointFormatType.NATIVE, SavepointFormatType.CANONICAL)) {
        System.out.println(type + " " + client.triggerSavepoint(arguments[1], type).get());
      }
    }
    client.cancel().get();
    try {
      client.getJobExecutionResult().get(20, TimeUnit.SECONDS);
    } catch (java.util.concurrent.ExecutionException cancelled) {
      System.out.println("cancelled");
    }
    System.exit(0);
  }
}
