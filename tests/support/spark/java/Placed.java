import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.status.api.v1.TaskData;

/**
 * A streaming job on the nodes of a cluster that knows nothing of Holdfast: an aggregation, one batch. It says where its state
 * partitions ran, as {@code placed_job.py} does. Arguments: the query's name, new keys, bytes of each, executors to wait for.
 */
public final class Placed {
  public static void main(String[] arguments) throws Exception {
    SparkSession spark = SparkSession.builder().getOrCreate();
    SparkContext context = spark.sparkContext();
    context.setLogLevel("ERROR");
    while (context.getExecutorIds().size() < Integer.parseInt(arguments[3])) {
      Thread.sleep(50);
    }
    long began = System.nanoTime();
    String words = "transform(sequence(1, " + Integer.parseInt(arguments[2]) / 64 + "), n -> sha2(concat_ws('-', value, n), 256))";
    Dataset<Row> rows =
        spark
            .readStream()
            .format("rate-micro-batch")
            .option("rowsPerBatch", arguments[1])
            .option("numPartitions", "3")
            .load()
            .selectExpr("value AS key", "array_join(" + words + ", '') AS payload");
    StreamingQuery query =
        rows.groupBy("key")
            .agg(org.apache.spark.sql.functions.max("payload"))
            .writeStream()
            .queryName(arguments[0])
            .format("noop")
            .outputMode("update")
            .trigger(Trigger.AvailableNow())
            .start();
    query.awaitTermination();
    double seconds = (System.nanoTime() - began) / 1e9;
    List<String> stages = new ArrayList<>();
    for (Map<Integer, String> stage : hosts(context, query.runId().toString(), spark.conf().get("spark.sql.shuffle.partitions"))) {
      List<String> partitions = new ArrayList<>();
      stage.forEach((partition, host) -> partitions.add("\"" + partition + "\": \"" + host + "\""));
      stages.add("{" + String.join(", ", partitions) + "}");
    }
    System.out.printf(
        "{\"seconds\": %.2f, \"hosts\": [%s], \"batch\": %d}%n",
        seconds, String.join(", ", stages), query.lastProgress().batchId());
    spark.stop();
  }

  /** The host of each partition, for each stage of a run with as many tasks as there are partitions of state. */
  private static List<Map<Integer, String>> hosts(SparkContext context, String run, String partitions) {
    List<Map<Integer, String>> found = new ArrayList<>();
    SparkStatusTracker tracker = context.statusTracker();
    for (int job : tracker.getJobIdsForGroup(run)) {
      for (int stage : tracker.getJobInfo(job).get().stageIds()) {
        SparkStageInfo info = tracker.getStageInfo(stage).get();
        if (info.numTasks() == Integer.parseInt(partitions)) {
          Map<Integer, String> tasks = new TreeMap<>();
          scala.collection.Iterator<TaskData> each =
              context.statusStore().taskList(stage, info.currentAttemptId(), info.numTasks()).iterator();
          while (each.hasNext()) {
            TaskData task = each.next();
            tasks.put(task.index(), task.host());
          }
          found.add(tasks);
        }
      }
    }
    return found;
  }
}
