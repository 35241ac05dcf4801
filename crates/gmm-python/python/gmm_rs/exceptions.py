"""What can go wrong, as exceptions. All errors are `ValueError`, which is what users of scikit-learn catch."""

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
    """Any error of this package's engines."""


class DataError(GmmError):
    """Data that cannot be used: names row and column."""


class ParameterError(GmmError):
    """A parameter outside its range, or parameters that do not fit together or to the data."""


class NumericalError(GmmError):
    """A fit that ran into a singular covariance or into numbers that are none: names iteration and component."""


class OutOfMemoryError(GmmError, MemoryError):
    """More memory wanted than is free, found out before any was taken: names both in bytes."""


class DeviceError(GmmError, RuntimeError):
    """A device that is not there or cannot be used."""


class FileError(GmmError):
    """A file that is not what it should be: names the file and the place in it. What the system says is an `OSError`."""


class DataWarning(UserWarning):
    """Data on which a fit goes through but may not mean what it should."""


class SamplingInterrupted(KeyboardInterrupt):
    """Ctrl-C while chains were drawn.

    Attributes
    ----------
    checkpoint : bytes
        The chains so far, for the `checkpoint` of :func:`gmm_rs.mcmc`.
    """

    def __init__(self, checkpoint):
        super().__init__("interrupted; .checkpoint keeps the chains")
        self.checkpoint = checkpoint
