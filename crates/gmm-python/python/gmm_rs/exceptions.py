"""Exceptions and warnings. All errors are subclasses of `ValueError`, as scikit-learn's users expect."""

__all__ = [
    "DataError",
    "DataWarning",
    "DeviceError",
    "FileError",
    "GmmError",
    "NumericalError",
    "OutOfMemoryError",
    "ParameterError",
    "SamplingInterrupted",
]


class GmmError(ValueError):
    """Base class of the errors of this package."""


class DataError(GmmError):
    """Invalid data. The message names row and column."""


class ParameterError(GmmError):
    """A parameter out of range, or parameters that do not match each other or the data."""


class NumericalError(GmmError):
    """A singular covariance, or NaN or infinity during a fit. The message names iteration and component."""


class OutOfMemoryError(GmmError, MemoryError):
    """Not enough free memory, checked before allocating. The message gives required and free bytes."""


class DeviceError(GmmError, RuntimeError):
    """A device that is not available or has failed."""


class FileError(GmmError):
    """A file with invalid content. The message names the file and the position. I/O errors are `OSError`."""


class DataWarning(UserWarning):
    """Data for which the result of a fit or of sampling may not be reliable."""


class SamplingInterrupted(KeyboardInterrupt):
    """Raised by Ctrl-C while chains are drawn.

    Attributes
    ----------
    checkpoint : bytes
        The chains so far, for the argument `checkpoint` of :func:`gmm_rs.mcmc`.
    """

    def __init__(self, checkpoint):
        super().__init__("interrupted; the attribute .checkpoint contains the chains so far")
        self.checkpoint = checkpoint
