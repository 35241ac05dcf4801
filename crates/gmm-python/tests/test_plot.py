"""Plot functions return axes with the expected content."""

import numpy as np
import polars as pl
import pytest
from conftest import KINDS, model
from sklearn.exceptions import NotFittedError

from gmm_rs import exceptions, plot

pytest.importorskip("matplotlib").use("agg")
pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def no_figures_are_left():
    yield
    pyplot.close("all")


@pytest.mark.parametrize("kind", KINDS)
def test_every_component_has_its_ellipses(rows, kind):
    ax = plot.ellipses(model(3, kind, random_state=0).fit(rows), rows, columns=(0, 2))
    assert len(ax.patches) == 6 and ax.get_xlabel() == "column 0" and ax.get_ylabel() == "column 2"


def test_an_ellipse_has_the_components_size():
    one = model(1, reg_covar=0.0)
    one.weights_, one.means_ = np.ones(1), np.zeros((1, 2))
    one.covariances_ = np.array([[[4.0, 0.0], [0.0, 1.0]]])
    (ellipse,) = plot.ellipses(one, levels=[1.0]).patches
    assert (ellipse.width, ellipse.height, ellipse.angle % 180) == pytest.approx((4.0, 2.0, 0.0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_density_is_highest_where_the_mixture_is(rows, kind):
    ax = plot.density(model(3, kind, random_state=0).fit(rows), columns=(1, 2), resolution=20)
    assert ax.collections


def test_the_trace_has_a_point_for_each_iteration(rows):
    one = model(random_state=0).fit(rows)
    assert len(plot.trace(one).lines[0].get_xdata()) == one.n_iter_


def test_the_criterion_has_a_line_for_each_kind(rows):
    models = [model(k, kind, random_state=0).fit(rows) for k in (1, 2, 3) for kind in ("full", "diag")]
    ax = plot.bic(models, rows)
    assert [line.get_label() for line in ax.lines] == ["full", "diag"]


def test_a_frame_is_drawn_with_its_names(rows):
    frame = pl.DataFrame({name: rows[:, i] for i, name in enumerate("abc")})
    ax = plot.ellipses(model(random_state=0).fit(frame), frame, columns=(2, 0))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("c", "a")
    assert sum(len(group.get_offsets()) for group in ax.collections) == len(rows)


def test_what_cannot_be_drawn_is_refused_before_a_figure_appears(rows):
    for columns in [(0, 3), (-1, 0), (0,), (0, 1, 2)]:
        for draw in (plot.ellipses, plot.density):
            with pytest.raises(exceptions.ParameterError, match="two column indices from 0 to 2"):
                draw(model(random_state=0).fit(rows), columns=columns)
    for draw in (plot.ellipses, plot.density, plot.trace):
        with pytest.raises(NotFittedError):
            draw(model())
    assert pyplot.get_fignums() == []
