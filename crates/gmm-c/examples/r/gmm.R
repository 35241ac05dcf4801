# A model of gmm in R. After `cargo build --release -p gmm-c`, in this folder:
#
#   PKG_CPPFLAGS=-I../../include PKG_LIBS="-L../../../../target/release -lgmm_c" R CMD SHLIB gmm.c
#   LD_LIBRARY_PATH=../../../../target/release Rscript gmm.R model.json rows.csv

dyn.load(Sys.getenv("GMM_R_SHLIB", "gmm.so"))

gmm_load <- function(path, threads = 0L) .Call("r_gmm_load", path, as.integer(threads))

by_rows <- function(x) {
  x <- t(as.matrix(x))
  storage.mode(x) <- "double"
  x
}

# Log densities of the rows of `x`.
gmm_score_samples <- function(model, x) .Call("r_gmm_score_samples", model, by_rows(x))

# Responsibilities of the components or clusters, and last of the noise; a row for each row of `x`.
gmm_predict_proba <- function(model, x) t(.Call("r_gmm_predict_proba", model, by_rows(x)))

# The component or cluster of largest responsibility, from 1; 0 for noise.
gmm_predict <- function(model, x) .Call("r_gmm_predict", model, by_rows(x))

arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) == 2) {
  model <- gmm_load(arguments[1])
  x <- read.csv(arguments[2])
  out <- cbind(gmm_predict(model, x), gmm_score_samples(model, x), gmm_predict_proba(model, x))
  for (i in seq_len(nrow(out))) cat(sprintf("%.17g", out[i, ]), "\n")
}
