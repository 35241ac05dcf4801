/* The functions that gmm.R calls. R stores matrices by columns, gmm by rows: gmm.R transposes. */
#include "gmm.h"

#include <R.h>
#include <Rinternals.h>

static void finalize(SEXP pointer) {
  gmm_free(R_ExternalPtrAddr(pointer));
  R_ClearExternalPtr(pointer);
}

SEXP r_gmm_load(SEXP path, SEXP threads) {
  gmm_model *model;
  SEXP pointer;
  if (gmm_load(translateCharUTF8(STRING_ELT(path, 0)), (size_t)asInteger(threads), &model) != GMM_OK) {
    error("%s", gmm_last_error());
  }
  pointer = PROTECT(R_MakeExternalPtr(model, R_NilValue, R_NilValue));
  R_RegisterCFinalizerEx(pointer, finalize, TRUE);
  UNPROTECT(1);
  return pointer;
}

/* `rows` is a d x n matrix of doubles; log densities, (n,). */
SEXP r_gmm_score_samples(SEXP pointer, SEXP rows) {
  size_t d = (size_t)nrows(rows), n = (size_t)ncols(rows);
  SEXP out = PROTECT(allocVector(REALSXP, (R_xlen_t)n));
  if (gmm_score_samples(R_ExternalPtrAddr(pointer), REAL(rows), n, d, REAL(out)) != GMM_OK) {
    error("%s", gmm_last_error());
  }
  UNPROTECT(1);
  return out;
}

/* `rows` is a d x n matrix of doubles; labels from 1, and 0 for noise, (n,). */
SEXP r_gmm_predict(SEXP pointer, SEXP rows) {
  size_t d = (size_t)nrows(rows), n = (size_t)ncols(rows), i;
  SEXP out = PROTECT(allocVector(INTSXP, (R_xlen_t)n));
  if (gmm_predict(R_ExternalPtrAddr(pointer), REAL(rows), n, d, INTEGER(out)) != GMM_OK) {
    error("%s", gmm_last_error());
  }
  for (i = 0; i < n; i++) {
    INTEGER(out)[i]++;
  }
  UNPROTECT(1);
  return out;
}

/* `rows` is a d x n matrix of doubles; responsibilities, a matrix of n columns. */
SEXP r_gmm_predict_proba(SEXP pointer, SEXP rows) {
  const gmm_model *model = R_ExternalPtrAddr(pointer);
  size_t d = (size_t)nrows(rows), n = (size_t)ncols(rows);
  SEXP out = PROTECT(allocMatrix(REALSXP, (int)gmm_n_responsibilities(model), (int)n));
  if (gmm_predict_proba(model, REAL(rows), n, d, REAL(out)) != GMM_OK) {
    error("%s", gmm_last_error());
  }
  UNPROTECT(1);
  return out;
}
