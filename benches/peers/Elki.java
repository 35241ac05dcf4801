import elki.clustering.ClusteringAlgorithm;
import elki.clustering.em.EM;
import elki.clustering.em.KDTreeEM;
import elki.clustering.em.models.MultivariateGaussianModel;
import elki.clustering.em.models.MultivariateGaussianModelFactory;
import elki.clustering.em.models.TextbookMultivariateGaussianModel;
import elki.clustering.em.models.TextbookMultivariateGaussianModelFactory;
import elki.data.NumberVector;
import elki.database.StaticArrayDatabase;
import elki.database.relation.Relation;
import elki.datasource.ArrayAdapterDatabaseConnection;
import elki.logging.LoggingConfiguration;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/**
 * Times iterations of ELKI's EM from a given start; called by elki.py.
 *
 * <p>Arguments: em or tree; files of rows and of means (64-bit floats, little-endian); numbers of rows, columns and components; the
 * variance of every component; iterations; and for the tree mbw, tau and tauclass of KDTreeEM. Prints a line for each iteration: the
 * mean log-likelihood of the mixture that it starts from, and its milliseconds.
 */
public class Elki {
  private static double[][] read(String file, int rows, int columns) throws IOException {
    double[][] all = new double[rows][columns];
    byte[] bytes = new byte[8 * columns];
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(file), 1 << 20))) {
      for (double[] row : all) {
        in.readFully(bytes);
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().get(row);
      }
    }
    return all;
  }

  /** Models of equal weight with one covariance. */
  private static <M> List<M> start(double[][] means, Function<double[], M> model) {
    List<M> all = new ArrayList<>();
    for (double[] mean : means) {
      all.add(model.apply(mean.clone()));
    }
    return all;
  }

  public static void main(String[] arguments) throws IOException {
    int n = Integer.parseInt(arguments[3]), d = Integer.parseInt(arguments[4]), k = Integer.parseInt(arguments[5]);
    double[][] rows = read(arguments[1], n, d), means = read(arguments[2], k, d), covariance = new double[d][d];
    for (int i = 0; i < d; i++) {
      covariance[i][i] = Double.parseDouble(arguments[6]);
    }
    int iterations = Integer.parseInt(arguments[7]);
    ClusteringAlgorithm<?> algorithm;
    if (arguments[0].equals("tree")) {
      double mbw = Double.parseDouble(arguments[8]), tau = Double.parseDouble(arguments[9]);
      double tauclass = Double.parseDouble(arguments[10]);
      algorithm = new KDTreeEM(k, mbw, tau, tauclass, 0.0, new TextbookMultivariateGaussianModelFactory(null) {
        @Override
        public List<TextbookMultivariateGaussianModel> buildInitialModels(Relation<? extends NumberVector> all, int k) {
          return start(means, mean -> new TextbookMultivariateGaussianModel(1.0 / k, mean, covariance));
        }
      }, iterations, iterations, false, false);
    } else {
      algorithm = new EM<>(new MultivariateGaussianModelFactory(null) {
        @Override
        public List<MultivariateGaussianModel> buildInitialModels(Relation<? extends NumberVector> all, int k) {
          return start(means, mean -> new MultivariateGaussianModel(1.0 / k, mean, covariance));
        }
      }, k, 0.0, iterations, iterations, false, false, 0.0);
    }
    StaticArrayDatabase database = new StaticArrayDatabase(new ArrayAdapterDatabaseConnection(rows), null);
    database.initialize();

    // Both log the mean log-likelihood once per iteration.
    LoggingConfiguration.setStatistics();
    Logger root = Logger.getLogger("");
    for (Handler handler : root.getHandlers()) {
      root.removeHandler(handler);
    }
    root.addHandler(new Handler() {
      private long last = System.nanoTime();
      private int seen = 0;

      @Override
      public void publish(LogRecord record) {
        long now = System.nanoTime();
        String[] words = record.getMessage().split(": ");
        if (words[0].endsWith(".loglikelihood")) {
          System.out.println(words[1] + " " + (now - last) / 1e6);
          System.out.flush();
          seen++;
          if (seen == iterations) {
            // What follows assigns rows to components.
            Runtime.getRuntime().halt(0);
          }
        }
        last = System.nanoTime();
      }

      @Override
      public void flush() {}

      @Override
      public void close() {}
    });
    algorithm.autorun(database);
  }
}
