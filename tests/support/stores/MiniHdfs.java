import java.io.File;
import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A namenode and a datanode in one process, on ports of the loopback that they choose. Arguments: DIRECTORY [NAME=VALUE]... */
public class MiniHdfs {
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setInt("dfs.replication", 1);
        configuration.setLong("dfs.namenode.fs-limits.min-block-size", 0);
        configuration.set("dfs.datanode.hostname", "127.0.0.1");
        for (int each = 1; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            configuration.set(pair[0], pair[1]);
        }
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, new File(arguments[0])).numDataNodes(1).build();
        cluster.waitActive();
        InetSocketAddress http = cluster.getNameNode().getHttpAddress();
        InetSocketAddress web = http != null ? http : cluster.getNameNode().getHttpsAddress();
        System.out.println("READY " + cluster.getNameNodePort() + " " + web.getPort());
        Thread.sleep(Long.MAX_VALUE);
    }
}
