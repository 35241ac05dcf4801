"""What :class:`gmm_rs.mixture.GaussianMixture` offers beyond scikit-learn's class: imputation and conversions."""

from gmm_rs import _missing
from gmm_rs._convert import from_sklearn, to_sklearn


class BeyondSklearn:
    """Methods of a fitted mixture that scikit-learn's class does not have."""

    def impute(self, X, how="mean", n_draws=None):
        """Replace missing values, which are NaN, by what the mixture says about them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows. Nothing need be missing.

        how : {'mean', 'mode', 'draw'}, default='mean'
            'mean': the mean given the observed values of the row; 'mode': the mean in the component that is most probable
            given these; 'draw': a draw given these, by `random_state`.

        n_draws : int, default=None
            Number of draws, for multiple imputation: see :func:`gmm_rs.imputation.pool`. The result is then of shape
            (n_draws, n, d).

        Returns
        -------
        X : ndarray of shape (n, d) or (n_draws, n, d)
            float64 rows; observed values are unchanged.
        """
        return _missing.impute(self, X, how, n_draws)

    def to_sklearn(self):
        """Convert to a :class:`sklearn.mixture.GaussianMixture`, fitted if this estimator is fitted.

        Returns
        -------
        estimator : sklearn.mixture.GaussianMixture
            Without the parameters and attributes that only this class has (`device`, `precision`, `n_jobs`,
            `init_rows`, `callback`, `prior`, `floor`, `floor_relative`, `drop_starved`, `labels`, the `fixed_` and shared
            parts, `missing`, `engine_`). A mixture with noise is an error.
        """
        return to_sklearn(self)

    def to_onnx(self, path=None, *, precision="f32"):
        """Convert to an ONNX model of standard operators (opset 13), for other programs.

        Its input `X`, of shape (N, d), has the given precision. Its outputs are `label`, int64, `responsibilities`, of
        shape (N, k), and `log_density`, as :meth:`predict`, :meth:`predict_proba` and :meth:`score_samples` return them.
        If the model was read from a file that combines components into clusters, the first two are those of clusters.

        Parameters
        ----------
        path : path, default=None
            File to write, whole or not at all; None means to return the bytes.
        precision : {'f32', 'f64'}, default='f32'
            Precision of rows, parameters and results.

        Returns
        -------
        onnx : bytes or None
            The model, if `path` is None.

        Raises
        ------
        OSError
            If the file cannot be written.
        ParameterError
            A `ValueError`, if the precision is unknown.
        FileError
            A `ValueError`, if a number exceeds the range of the precision.
        """
        # The module imports the estimators.
        from gmm_rs.files import to_onnx

        return to_onnx(self, path, precision)

    @classmethod
    def from_sklearn(cls, estimator, **parameters):
        """Convert from a :class:`sklearn.mixture.GaussianMixture`, fitted if that estimator is fitted.

        Parameters
        ----------
        estimator : sklearn.mixture.GaussianMixture
            The estimator to convert.
        **parameters
            Further parameters of this class, such as ``device='cpu'``.

        Returns
        -------
        estimator : GaussianMixture
        """
        return from_sklearn(cls, estimator, parameters)
