import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;

/**
 * Namenodes of one name (HA) with one journal, and a datanode, in one process, on ports of the loopback that they choose. The first is
 * active, all others are on standby. Each line of the input is a command, answered with "DONE" and the line: "active N" ends what
 * another one does and makes N the active one, "observer N" lets it answer reads alone, "stop N" ends it, "start N" starts it
 * again, and "only N" brings all of them up, with N as the active one.
 * Arguments: DIRECTORY NAMENODES [NAME=VALUE]...
 */
public class HaHdfs {
    private static final String NAME = "minidfs-ns";

    public static void main(String[] arguments) throws Exception {
        int namenodes = Integer.parseInt(arguments[1]);
        Configuration configuration = new Configuration();
        configuration.setInt("dfs.replication", 1);
        configuration.setLong("dfs.namenode.fs-limits.min-block-size", 0);
        configuration.set("dfs.datanode.hostname", "127.0.0.1");
        configuration.setBoolean("dfs.ha.tail-edits.in-progress", true);
        configuration.set("dfs.ha.tail-edits.period", "100ms");
        configuration.set(
            "dfs.client.failover.proxy.provider." + NAME,
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider");
        for (int each = 2; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            configuration.set(pair[0], pair[1]);
        }
        MiniDFSCluster cluster =
            new MiniDFSCluster.Builder(configuration, new File(arguments[0]))
                .nnTopology(MiniDFSNNTopology.simpleHATopology(namenodes))
                .numDataNodes(1)
                .build();
        cluster.waitActive();
        cluster.transitionToActive(0);
        StringBuilder ports = new StringBuilder();
        for (int each = 0; each < namenodes; each++) {
            ports.append(" ").append(cluster.getNameNode(each).getHttpAddress().getPort());
        }
        System.out.println("NAMENODES" + ports);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        int active = 0;
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ");
            int one = Integer.parseInt(words[1]);
            switch (words[0]) {
                case "active":
                    if (active >= 0) {
                        cluster.transitionToStandby(active);
                    }
                    makeActive(cluster, one);
                    active = one;
                    break;
                case "observer":
                    cluster.transitionToObserver(one);
                    break;
                case "only":
                    for (int each = 0; each < namenodes; each++) {
                        if (cluster.getNameNode(each) == null || !cluster.isNameNodeUp(each)) {
                            cluster.restartNameNode(each, false);
                        } else if (!cluster.getNameNode(each).isStandbyState()) {
                            cluster.transitionToStandby(each);
                        }
                    }
                    makeActive(cluster, one);
                    active = one;
                    break;
                case "stop":
                    cluster.shutdownNameNode(one);
                    active = one == active ? -1 : active;
                    break;
                case "start":
                    cluster.restartNameNode(one, false);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.println("DONE " + line);
        }
        System.exit(0);
    }

    /** Makes a namenode active; returns when the datanode has reported to it what it has. */
    private static void makeActive(MiniDFSCluster cluster, int one) throws Exception {
        cluster.transitionToActive(one);
        cluster.waitActive(one);
        while (!cluster.isNameNodeUp(one)) { // in safe mode
            Thread.sleep(10);
        }
    }
}
