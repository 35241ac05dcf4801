"""The numbered examples run, and each is listed in the table of their README."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples/python"
EXAMPLES = [path.name for path in sorted(FOLDER.glob("[0-9][0-9]_*.py"))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_finds_its_own_answer_right(name, tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / name], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_examples_are_numbered_listed_and_say_how_to_run_them():
    table = (FOLDER / "README.md").read_text()
    assert sorted({int(name[:2]) for name in EXAMPLES}) == list(range(1, 7))
    for name in EXAMPLES:
        text = (FOLDER / name).read_text()
        assert f"python examples/python/{name}" in ast.get_docstring(ast.parse(text)), name
        assert len(text.splitlines()) <= 50, name
        assert f"]({name})" in table, name
