import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobmaster.JobResult;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;

/**
 * Restores the counting job from one checkpoint after the other, on one cluster: each line of its input is the URI of one.
 * The answer is "restored N" when every key was found as it should be, N the first number after the restore; "wrong at N"
 * when one was not; or "refused REASON". Arguments: key=value of Flink's configuration.
 */
public final class Restoring {
  private static final int SECONDS = 150;

  private static String restored(MiniCluster cluster, Configuration configuration) throws Exception {
    JobGraph job = Counting.prepared(configuration).getStreamGraph().getJobGraph();
    CompletableFuture<JobResult> end = cluster.submitJob(job).thenCompose(done -> cluster.requestJobResult(job.getJobID()));
    try {
      CompletableFuture.anyOf(Counting.whole, end).get(SECONDS, TimeUnit.SECONDS);
      if (end.isDone()) {
        end.get().toJobExecutionResult(Restoring.class.getClassLoader());
      }
    } catch (Exception problem) {
      return told(problem);
    }
    cluster.cancelJob(job.getJobID()).get(SECONDS, TimeUnit.SECONDS);
    end.get(SECONDS, TimeUnit.SECONDS);
    return "restored " + Counting.first.get();
  }

  private static String told(Throwable problem) {
    Throwable root = problem;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    if (root instanceof Counting.WrongStateException) {
      return root.getMessage();
    }
    return ("refused " + root.getClass().getSimpleName() + ": " + root.getMessage()).replaceAll("\\s+", " ");
  }

  private static void restoreAll(String[] arguments) throws Exception {
    Configuration ofCluster = Counting.configuration(arguments);
    ofCluster.setString("rest.bind-port", "0"); // any free one: others may have 8081
    var settings = new MiniClusterConfiguration.Builder().setConfiguration(ofCluster);
    MiniCluster cluster = new MiniCluster(settings.setNumTaskManagers(1).setNumSlotsPerTaskManager(2).build());
    cluster.start();
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Configuration configuration = Counting.configuration(arguments);
      configuration.setString("execution.state-recovery.path", line);
      System.out.println("answer " + restored(cluster, configuration));
    }
  }

  /** Flink's threads would keep this process, and whoever waits for an answer, when this one ends by an exception. */
  public static void main(String[] arguments) {
    try {
      restoreAll(arguments);
      System.exit(0);
    } catch (Exception problem) {
      Thread.getAllStackTraces().forEach((thread, stack) -> System.err.println(thread + " " + Arrays.toString(stack)));
      problem.printStackTrace();
      System.exit(1);
    }
  }
}
