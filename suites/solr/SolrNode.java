import java.util.Properties;
import org.apache.solr.embedded.JettyConfig;
import org.apache.solr.embedded.JettySolrRunner;

/**
 * One node of a SolrCloud: Solr in a Jetty on 127.0.0.1, as Solr's own tests start it.
 *
 * <p>Solr's archive with its start script is not on Maven Central; its jars are, and with them {@link
 * JettySolrRunner}. Where ZooKeeper is, the node learns from the system property {@code zkHost}.
 *
 * <p>Arguments: the node's folder, with a {@code solr.xml}; the port. Ends on SIGTERM, after it has told the cluster.
 */
public final class SolrNode {
  private SolrNode() {}

  public static void main(String[] args) throws Exception {
    if (args.length != 2) {
      System.err.println("usage: SolrNode FOLDER PORT");
      System.exit(2);
    }
    int port = Integer.parseInt(args[1]);
    // solr.xml fills these in: under this address the node is known to the others.
    System.setProperty("host", "127.0.0.1");
    System.setProperty("hostPort", args[1]);
    JettyConfig config = JettyConfig.builder().setContext("/solr").setPort(port).stopAtShutdown(false).build();
    JettySolrRunner node = new JettySolrRunner(args[0], new Properties(), config);
    Thread stop = new Thread(() -> stop(node), "stop");
    Runtime.getRuntime().addShutdownHook(stop);
    // The same port or none: a proxy and the other nodes look for it there.
    node.start(true);
    System.out.println("node ready: http://127.0.0.1:" + port + "/solr");
    Thread.currentThread().join();
  }

  private static void stop(JettySolrRunner node) {
    try {
      node.stop();
    } catch (Exception error) {
      // Nobody is left who could do something about it; the exit code is that of the signal in any case.
      System.err.println("the node did not stop in good order: " + error);
    }
  }
}
