import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/**
 * A streaming job that knows nothing of Holdfast: a count by key. Arguments: the query's name, and how many batches it runs
 * (without: one).
 */
public final class Counts {
  public static void main(String[] arguments) throws Exception {
    SparkSession spark = SparkSession.builder().getOrCreate();
    Dataset<Row> rows = spark.readStream().format("rate-micro-batch").option("rowsPerBatch", "10").load();
    int batches = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 1;
    StreamingQuery query =
        rows.groupBy("value")
            .count()
            .writeStream()
            .queryName(arguments[0])
            .format("noop")
            .outputMode("update")
            .trigger(batches > 1 ? Trigger.ProcessingTime(0) : Trigger.AvailableNow())
            .start();
    while (batches > 1 && query.isActive() && (query.lastProgress() == null || query.lastProgress().batchId() < batches - 1)) {
      query.awaitTermination(20);
    }
    if (batches > 1) {
      query.stop();
    }
    query.awaitTermination();
    System.out.println(spark.conf().get("spark.local.dir", "none"));
    spark.stop();
  }
}
