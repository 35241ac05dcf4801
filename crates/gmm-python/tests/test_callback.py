"""A callback is called for each iteration, and can stop the fit."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from conftest import model, start
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning


class Recorder:
    """Records its arguments, and stops the fit at a given iteration."""

    def __init__(self, last=None):
        self.told, self.last = [], last

    def __call__(self, iteration, lower_bound):
        self.told.append((iteration, lower_bound))
        return iteration == self.last


def test_it_is_told_each_iteration_and_its_lower_bound(rows):
    told = Recorder()
    one = model(random_state=0, callback=told).fit(rows)
    assert told.told == list(enumerate(one.lower_bounds_, start=1))
    np.testing.assert_array_equal(one.means_, model(random_state=0).fit(rows).means_)


def test_something_true_ends_the_fit_there_without_a_warning(rows):
    given = start(rows, 3, "full")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = model(callback=Recorder(last=3), tol=0.0, max_iter=50, **given).fit(rows)
    with pytest.warns(ConvergenceWarning):
        three = model(tol=0.0, max_iter=3, **given).fit(rows)
    np.testing.assert_array_equal(one.means_, three.means_)
    assert (one.n_iter_, one.converged_, one.lower_bounds_) == (3, False, three.lower_bounds_)


def test_ending_one_start_ends_the_others_too_and_the_best_is_kept(rows):
    seen = []

    def end_the_second(iteration, lower_bound):
        seen.append((iteration, lower_bound))
        return [i for i, _ in seen].count(1) == 2

    one = model(random_state=0, n_init=5, init_params="random", max_iter=7, tol=0.0, callback=end_the_second).fit(rows)
    assert [i for i, _ in seen] == [1, 2, 3, 4, 5, 6, 7, 1]
    # Seven iterations reach a higher likelihood than one.
    assert one.n_iter_ == 7 and one.lower_bound_ == seen[6][1]


def test_starts_that_are_partly_given_end_as_well(rows):
    told = Recorder(last=2)
    one = model(callback=told, n_init=4, tol=0.0, random_state=0, means_init=rows[:3]).fit(rows)
    assert one.n_iter_ == 2 and len(told.told) == 2


def test_what_it_raises_ends_the_fit(rows):
    def fail(iteration, lower_bound):
        if iteration == 2:
            raise LookupError("enough")

    one = model(random_state=0, tol=0.0, callback=fail)
    with pytest.raises(LookupError, match="enough"):
        one.fit(rows)
    assert not hasattr(one, "means_")
    assert model(random_state=0).fit(rows).converged_


def test_a_warm_start_tells_every_iteration_once(rows):
    told = Recorder()
    one = model(random_state=0, warm_start=True, callback=told, max_iter=2, tol=1e-12)
    with pytest.warns(ConvergenceWarning):
        one.fit(rows).fit(rows)
    assert [i for i, _ in told.told] == [1, 2, 1, 2]
    one.set_params(tol=10.0).fit(rows)
    assert told.told[4:] == [(1, one.lower_bound_)]


def test_it_goes_with_verbose(rows, capsys):
    told = Recorder(last=2)
    model(random_state=0, tol=0.0, verbose=1, verbose_interval=1, callback=told).fit(rows)
    assert capsys.readouterr().out == "Initialization 0\n  Iteration 1\n  Iteration 2\nInitialization did not converge.\n"


def test_it_is_a_parameter_as_others_are(rows):
    one = model(random_state=0, callback=Recorder())
    assert one.get_params()["callback"] is one.callback
    for other in (clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert len(other.fit(rows).callback.told) == other.n_iter_
    assert one.callback.told == []
    with pytest.raises(ValueError, match="'callback' parameter"):
        model(callback="print").fit(rows)


def test_it_may_fit_another_mixture(rows):
    def another(iteration, lower_bound):
        model(2, random_state=0).fit(rows)

    assert model(random_state=0, callback=another).fit(rows).converged_
