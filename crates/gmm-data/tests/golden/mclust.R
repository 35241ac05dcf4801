# Writes mclust_*.json: fits by mclust 6.0 (R 4.2), and the log densities that it computes for the first rows.
# Run from the root of the repository: Rscript crates/gmm-data/tests/golden/mclust.R
suppressMessages({library(mclust); library(jsonlite)})
x <- as.matrix(read.csv("data/old_faithful.csv"))

write <- function(name, fit, x, bare = FALSE) {
  out <- if (bare) fit$parameters else unclass(fit[c("modelName", "n", "d", "G", "loglik", "parameters")])
  first <- if (is.matrix(x)) x[1:5, ] else x[1:5]
  out$rows <- first
  out$log_density <- dens(first, fit$modelName, fit$parameters, logarithm = TRUE)
  if (!is.null(fit$parameters$Vinv)) {
    joint <- sapply(1:fit$G, function(k) fit$parameters$pro[k] * cdens(first, fit$modelName, fit$parameters)[, k])
    out$log_density <- log(rowSums(joint) + fit$parameters$pro[fit$G + 1] * fit$parameters$Vinv)
  }
  writeLines(toJSON(out, digits = NA), sprintf("crates/gmm-data/tests/golden/mclust_%s.json", name))
}

for (name in c("VVV", "EEE", "VVI", "VII", "EII", "EEI", "VEV"))
  write(name, Mclust(x, G = 2, modelNames = name, verbose = FALSE), x)
write("V", Mclust(x[, 2], G = 2, modelNames = "V", verbose = FALSE), x[, 2])
write("E", Mclust(x[, 2], G = 2, modelNames = "E", verbose = FALSE), x[, 2], bare = TRUE)
write("XXX", Mclust(x, G = 1, verbose = FALSE), x)
set.seed(1)
noise <- sample(c(TRUE, FALSE), nrow(x), TRUE, c(0.1, 0.9))
write("noise", Mclust(x, G = 2, modelNames = "VVV", initialization = list(noise = noise), verbose = FALSE), x)
