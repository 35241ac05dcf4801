"""The examples of the book and the READMEs run, and print the output shown below them."""

import io
import re
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs/src").glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(page):
    """The Python blocks of a page, each with the output shown directly below it, or None."""
    blocks = BLOCK.findall(page.read_text())
    after = [*blocks[1:], ("", "")]
    return [
        (code, shown if kind == "text" else None)
        for (lang, code), (kind, shown) in zip(blocks, after)
        if lang == "python"
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows(page, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(ROOT)
    names = {"__name__": "__main__"}
    for code, shown in examples(page):
        if "import pymc" in code and find_spec("pymc") is None:
            continue
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), names)
        assert shown is None or printed.getvalue() == shown, code
    pyplot.close("all")


@pytest.mark.parametrize("page", ["README.md", "crates/gmm-python/README.md"])
def test_the_readmes_lines_run(page):
    names = {"X": np.random.default_rng(0).normal(size=(50, 2))}
    code = [code for code, _ in examples(ROOT / page)]
    assert code
    for one in code:
        # This block reads draws written by another command of the page.
        if "import arviz" not in one:
            exec(compile(one, page, "exec"), names)
