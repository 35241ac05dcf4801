"""Documentation links in the HTML that notebooks show."""

import sklearn.mixture
from conftest import model
from sklearn.mixture._gaussian_mixture import GaussianMixture as Original
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gmm_rs import accel


def test_our_class_links_to_no_other_classs_documentation(rows):
    page = model(2).fit(rows)._repr_html_()
    assert model(2)._get_doc_link() == "" and 'href="https://scikit-learn.org' not in page
    # In a pipeline scikit-learn's own steps have their links.
    page = make_pipeline(StandardScaler(), model(2))._repr_html_()
    assert "StandardScaler.html" in page and "GaussianMixture.html" not in page


def test_the_class_that_stands_in_for_scikit_learns_links_to_its_page():
    accel.install()
    try:
        stands_in = sklearn.mixture.GaussianMixture

        class Own(stands_in):
            """A user's own."""

        assert stands_in()._get_doc_link() == Original()._get_doc_link() != ""
        assert stands_in()._get_doc_link() in stands_in()._repr_html_()
        assert Own()._get_doc_link() == ""
    finally:
        accel.uninstall()
