/* Scores rows with a model: score MODEL [NUMBER ..], where the numbers are rows of d, one after another. Prints the label (-1 is
 * noise), the log density and the responsibilities of each.
 *
 *   cargo build --release -p gmm-c
 *   cc crates/gmm-c/examples/score.c -Icrates/gmm-c/include -Ltarget/release -lgmm_c -Wl,-rpath,target/release -o score
 *   ./score model.json 3.6 79
 */
#include "gmm.h"

#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what) {
  fprintf(stderr, "%s: %s\n", what, gmm_last_error());
  return EXIT_FAILURE;
}

int main(int argc, char **argv) {
  gmm_model *model;
  double *rows, *densities, *responsibilities;
  int32_t *labels;
  size_t n, k, d, i, c;
  int status = EXIT_FAILURE;

  if (argc < 2) {
    fprintf(stderr, "usage: score MODEL [NUMBER ..]\n");
    return EXIT_FAILURE;
  }
  if (gmm_abi_version() != GMM_ABI_VERSION) {
    fprintf(stderr, "the library has another interface than the header: compile again\n");
    return EXIT_FAILURE;
  }
  if (gmm_load(argv[1], 1, &model) != GMM_OK) {
    return failed("gmm_load");
  }
  d = gmm_n_features(model);
  k = gmm_n_responsibilities(model);
  n = (size_t)(argc - 2) / d;

  rows = malloc((n * d + 1) * sizeof *rows);
  densities = malloc((n + 1) * sizeof *densities);
  responsibilities = malloc((n * k + 1) * sizeof *responsibilities);
  labels = malloc((n + 1) * sizeof *labels);
  if (rows && densities && responsibilities && labels) {
    for (i = 0; i < n * d; i++) {
      rows[i] = strtod(argv[2 + i], NULL);
    }
    if (gmm_score_samples(model, rows, n, d, densities) != GMM_OK) {
      failed("gmm_score_samples");
    } else if (gmm_predict(model, rows, n, d, labels) != GMM_OK) {
      failed("gmm_predict");
    } else if (gmm_predict_proba(model, rows, n, d, responsibilities) != GMM_OK) {
      failed("gmm_predict_proba");
    } else {
      for (i = 0; i < n; i++) {
        printf("%ld %.17g", (long)labels[i], densities[i]);
        for (c = 0; c < k; c++) {
          printf(" %.17g", responsibilities[i * k + c]);
        }
        printf("\n");
      }
      status = EXIT_SUCCESS;
    }
  }
  free(rows);
  free(densities);
  free(responsibilities);
  free(labels);
  gmm_free(model);
  return status;
}
