import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/** A streaming job that knows nothing of Holdfast: a count by key, one batch. Argument: the query's name. */
public final class Counts {
  public static void main(String[] arguments) throws Exception {
    SparkSession spark = SparkSession.builder().getOrCreate();
    Dataset<Row> rows = spark.readStream().format("rate-micro-batch").option("rowsPerBatch", "10").load();
    StreamingQuery query =
        rows.groupBy("value")
            .count()
            .writeStream()
            .queryName(arguments[0])
            .format("noop")
            .outputMode("update")
            .trigger(Trigger.AvailableNow())
            .start();
    query.awaitTermination();
    System.out.println(spark.conf().get("spark.local.dir", "none"));
    spark.stop();
  }
}
