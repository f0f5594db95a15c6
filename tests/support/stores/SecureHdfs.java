import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.Token;

/**
 * A namenode and a datanode that want Kerberos, and a KDC, in one process, on ports of the loopback that they choose. The
 * directory /holdfast belongs to the user holdfast. DIRECTORY has keytabs of that user and of another one, "stranger". Each
 * line of the input is answered with a delegation token of the user holdfast.
 * Arguments: DIRECTORY [NAME=VALUE]...
 */
public class SecureHdfs {
    private static final String USER = "holdfast";

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        File kdcDirectory = new File(directory, "kdc");
        kdcDirectory.mkdirs();
        MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), kdcDirectory);
        kdc.start();
        String keytab = new File(directory, "keytab").getPath();
        kdc.createPrincipal(new File(keytab), "hdfs/localhost", "HTTP/localhost");
        for (String user : new String[] {USER, "stranger"}) {
            kdc.createPrincipal(new File(directory, user + ".keytab"), user);
        }
        System.out.println("KDC " + kdc.getPort());

        Configuration configuration = new Configuration();
        configuration.set("hadoop.security.authentication", "kerberos");
        for (String each : new String[] {"namenode", "datanode"}) {
            configuration.set("dfs." + each + ".kerberos.principal", "hdfs/localhost@" + kdc.getRealm());
            configuration.set("dfs." + each + ".keytab.file", keytab);
        }
        configuration.set("dfs.namenode.kerberos.internal.spnego.principal", "HTTP/localhost@" + kdc.getRealm());
        for (String each : new String[] {"dfs.web", "hadoop.http"}) {
            configuration.set(each + ".authentication.type", "kerberos");
            configuration.set(each + ".authentication.kerberos.principal", "HTTP/localhost@" + kdc.getRealm());
            configuration.set(each + ".authentication.kerberos.keytab", keytab);
        }
        configuration.setBoolean("dfs.block.access.token.enable", true);
        configuration.setBoolean("ignore.secure.ports.for.testing", true);
        configuration.setInt("dfs.replication", 1);
        configuration.set("dfs.datanode.hostname", "127.0.0.1");
        for (int each = 1; each < arguments.length; each++) {
            String[] pair = arguments[each].split("=", 2);
            configuration.set(pair[0], pair[1]);
        }
        UserGroupInformation.setConfiguration(configuration);
        File data = new File(directory, "data");
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration, data).numDataNodes(1).build();
        cluster.waitActive();
        FileSystem files = cluster.getFileSystem();
        Path place = new Path("/" + USER);
        files.mkdirs(place, new FsPermission("700"));
        files.setOwner(place, USER, USER);
        System.out.println("READY " + cluster.getNameNodePort() + " " + cluster.getNameNode().getHttpAddress().getPort());

        UserGroupInformation user =
            UserGroupInformation.loginUserFromKeytabAndReturnUGI(
                USER + "@" + kdc.getRealm(), new File(directory, USER + ".keytab").getPath());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            Token<?> token = user.doAs((PrivilegedExceptionAction<Token<?>>) () -> {
                try (FileSystem own = FileSystem.newInstance(cluster.getURI(), configuration)) {
                    return own.getDelegationToken(USER);
                }
            });
            System.out.println("TOKEN " + token.encodeToUrlString());
        }
        System.exit(0);
    }
}
