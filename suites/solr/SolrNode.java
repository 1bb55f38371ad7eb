import java.util.Properties;
import org.apache.solr.embedded.JettyConfig;
import org.apache.solr.embedded.JettySolrRunner;

/**
 * One node of a SolrCloud: Solr in a Jetty on 127.0.0.1, as Solr's own tests start it.
 *
 * <p>Maven Central has Solr's jars with {@link JettySolrRunner}, but not its archive with the start script. The system
 * property {@code zkHost} has the address of ZooKeeper.
 *
 * <p>Arguments: the node's folder, with a {@code solr.xml}; the port. On SIGTERM the node leaves the cluster and exits.
 */
public final class SolrNode {
  private SolrNode() {}

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("usage: SolrNode FOLDER PORT");
      System.exit(2);
    }
    int port = Integer.parseInt(args[1]);
    // solr.xml uses these properties: the address by which the other nodes know this one.
    System.setProperty("host", "127.0.0.1");
    System.setProperty("hostPort", args[1]);
    JettyConfig config = JettyConfig.builder().setContext("/solr").setPort(port).stopAtShutdown(false).build();
    JettySolrRunner node = new JettySolrRunner(args[0], new Properties(), config);
    Thread stop = new Thread(() -> stop(node), "stop");
    Runtime.getRuntime().addShutdownHook(stop);
    // No other port: a proxy and the other nodes expect this one.
    node.start(true);
    System.out.println("node ready: http://127.0.0.1:" + port + "/solr");
    Thread.currentThread().join();
  }

  private static void stop(JettySolrRunner node) {
    try {
      node.stop();
    } catch (Exception error) {
      // Nothing can handle the error any more; the exit code is that of the signal anyway.
      System.err.println("the node did not stop in good order: " + error);
    }
  }
}
