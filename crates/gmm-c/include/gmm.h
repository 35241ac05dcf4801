/* Gaussian mixture models in C. Made from crates/gmm-c/src/lib.rs by `cargo xtask c-header`: do not edit. */

#ifndef GMM_H
#define GMM_H

#include <stddef.h>
#include <stdint.h>

/*
 The version of this interface. A program that was compiled with another one must be compiled again; it can compare
 with gmm_abi_version().
 */
#define GMM_ABI_VERSION 2

/*
 Success.
 */
#define GMM_OK 0

/*
 An argument is invalid: a null pointer, a wrong number of columns, no rows, or a path that is not UTF-8.
 */
#define GMM_INVALID_ARGUMENT 2

/*
 The model or the rows are invalid, such as a value that is NaN or infinite.
 */
#define GMM_BAD_DATA 3

/*
 There is not enough memory, or no thread can be started.
 */
#define GMM_NO_RESOURCES 5

/*
 The file cannot be read.
 */
#define GMM_FILE 6

/*
 An internal error: please report it.
 */
#define GMM_FAULT 70

/*
 A model that is ready to evaluate rows.
 */
typedef struct gmm_model gmm_model;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of this interface that the library has: GMM_ABI_VERSION of its header.
 */
uint32_t gmm_abi_version(void);

/*
 What was wrong with the last call in this thread that failed: one line of UTF-8, which names file and field, or row
 and column. It is valid until the next call in this thread fails, and empty if none has.
 */
const char *gmm_last_error(void);

/*
 Reads a model file of any form that gmm reads: JSON, safetensors, and those of Kaldi and mclust.

 `path` is UTF-8. Evaluations use `threads` threads, at most 1024; 0 means one per available core. On success
 `*model` is a model, to be freed by gmm_free; otherwise it is NULL.

 Noise, clusters and the posterior of variational Bayes are part of the model: results are those of gmm score and gmm
 predict.

 # Safety
 `path` is a string that ends with a zero byte, `model` is valid for a write; or either is NULL, which is an error.
 */
int gmm_load(const char *path, size_t threads, gmm_model **model);

/*
 Frees a model. NULL is allowed.

 # Safety
 `model` is from gmm_load and is not used again, also not by a call in progress.
 */
void gmm_free(gmm_model *model);

/*
 Number of columns `d` of the model; 0 for NULL.

 # Safety
 `model` is from gmm_load, or NULL.
 */
size_t gmm_n_features(const gmm_model *model);

/*
 Number of components `k` of the model; 0 for NULL.

 # Safety
 `model` is from gmm_load, or NULL.
 */
size_t gmm_n_components(const gmm_model *model);

/*
 Number of responsibilities of a row: of the components, or of the clusters if components were combined, and one more, the
 last, if the model has noise; 0 for NULL.

 # Safety
 `model` is from gmm_load, or NULL.
 */
size_t gmm_n_responsibilities(const gmm_model *model);

/*
 Writes the natural logarithm of each row's density to `log_densities`, n numbers; of a model by variational Bayes that of
 its posterior predictive density.

 `rows` has n * d numbers in row-major order, of the model's d columns. A row's result does not depend on other rows.
 Any thread may call this, also with the same model: the first call uses the threads of the model, others at the same
 time their own.

 # Safety
 `model` is from gmm_load; `rows` is valid for reads of n * d numbers, `log_densities` for writes of n, and they do
 not overlap. NULL is an error.
 */
int gmm_score_samples(const gmm_model *model,
                      const double *rows,
                      size_t n,
                      size_t d,
                      double *log_densities);

/*
 Writes the component, or cluster, of largest responsibility of each row, from 0, to `labels`, n numbers; -1 is noise.

 # Safety
 As for gmm_score_samples.
 */
int gmm_predict(const gmm_model *model, const double *rows, size_t n, size_t d, int32_t *labels);

/*
 Writes the responsibilities of each row to `responsibilities`, n * gmm_n_responsibilities numbers in row-major order.
 Each row sums to 1.

 # Safety
 As for gmm_score_samples, with as many numbers.
 */
int gmm_predict_proba(const gmm_model *model, const double *rows, size_t n, size_t d, double *responsibilities);

/*
 As gmm_score_samples, for rows of float, with the results of gmm for a file of such rows: products are computed in single
 precision, and sums in double.

 # Safety
 As for gmm_score_samples.
 */
int gmm_score_samples_f32(const gmm_model *model,
                          const float *rows,
                          size_t n,
                          size_t d,
                          double *log_densities);

/*
 As gmm_predict, for rows of float, with the results of gmm for a file of such rows: products are computed in single
 precision, and sums in double.

 # Safety
 As for gmm_predict.
 */
int gmm_predict_f32(const gmm_model *model, const float *rows, size_t n, size_t d, int32_t *labels);

/*
 As gmm_predict_proba, for rows of float, with the results of gmm for a file of such rows: products are computed in single
 precision, and sums in double.

 # Safety
 As for gmm_predict_proba.
 */
int gmm_predict_proba_f32(const gmm_model *model,
                          const float *rows,
                          size_t n,
                          size_t d,
                          double *responsibilities);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GMM_H */
