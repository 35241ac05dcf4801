"""Progress on standard output, in scikit-learn's words."""

from time import perf_counter


class Verbose:
    """Prints as ``verbose`` and ``verbose_interval`` say; `follow` is what `_core.fit` calls, or None for silence."""

    def __init__(self, verbose, interval, tol):
        self.level = int(verbose)
        self.interval = interval
        self.tol = tol
        self.restart = 0
        self._current = None
        self._last = (0.0, float("inf"))
        self._begun = self._looked = 0.0
        self.follow = self._follow if self.level > 0 else None

    def _follow(self, restart, iteration, mean, change):
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
