"""Progress of a fit: messages on standard output, formatted as scikit-learn's, and calls of the user's callback."""

from contextlib import contextmanager
from time import perf_counter


class Progress:
    """Prints according to ``verbose`` and ``verbose_interval``, and calls ``callback``.

    Attributes
    ----------
    follow : callable or None
        Function that `_core.fit` calls after each iteration; None if nothing is printed and there is no callback.
    waits : bool
        Whether the fit waits for the return value of `follow`, and stops if it is true.
    is_stopped : bool
        Whether the callback ended the fit.
    """

    def __init__(self, model):
        self.level = int(model.verbose)
        self.interval = model.verbose_interval
        self.tol = model.tol
        # scikit-learn's class does not have this parameter.
        self.callback = getattr(model, "callback", None)
        self.waits = self.callback is not None
        self.is_stopped = False
        self.restart = 0
        self._current = None
        self._last = (0.0, float("inf"))
        self._begun = self._looked = 0.0
        self.follow = self.tell if self.level > 0 or self.waits else None

    def tell(self, restart, iteration, mean, change):
        """Report one iteration; returns whether the fit should stop."""
        if self.level > 0:
            self._print(restart, iteration, mean, change)
        if self.callback is not None and self.callback(iteration, mean):
            self.is_stopped = True
        return self.is_stopped

    @contextmanager
    def silence(self):
        """Context in which nothing is reported."""
        follow, waits = self.follow, self.waits
        self.follow, self.waits = None, False
        try:
            yield
        finally:
            self.follow, self.waits = follow, waits

    def _print(self, restart, iteration, mean, change):
        current = (self.restart, restart)
        if current != self._current:
            self.end()
            self._current = current
            self._begun = self._looked = perf_counter()
            print(f"Initialization {self.restart + restart}")
        self._last = (mean, change)
        if iteration % self.interval == 0:
            now = perf_counter()
            if self.level == 1:
                print(f"  Iteration {iteration}")
            else:
                print(f"  Iteration {iteration}\t time lapse {now - self._looked:.5f}s\t ll change {change:.5f}")
            self._looked = now

    def end(self):
        """Print how the initialization ended, if there was one."""
        if self._current is None:
            return
        mean, change = self._last
        ended = "converged" if abs(change) < self.tol else "did not converge"
        if self.level == 1:
            print(f"Initialization {ended}.")
        else:
            lapse = perf_counter() - self._begun
            print(f"Initialization {ended}. time lapse {lapse:.5f}s\t lower bound {mean:.5f}.")
        self._current = None
