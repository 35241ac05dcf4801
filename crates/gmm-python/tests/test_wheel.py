"""Content of the wheel besides the modules: metadata, licences, and a stripped module of bounded size.

`cargo xtask wheel` runs this test on the wheel for distribution, and sets GMM_WHEEL_TAG to its expected platform tag.
"""

import os
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

WHEEL = distribution("gmm_rs")


def module():
    """The path of the compiled module."""
    found = [file for file in WHEEL.files if re.fullmatch(r"gmm_rs/_core.*\.(so|pyd)", str(file))]
    assert len(found) == 1, found
    return Path(found[0].locate())


def test_the_metadata_says_what_the_package_is():
    said = WHEEL.metadata
    assert said["Name"] in ("gmm_rs", "gmm-rs") and re.fullmatch(r"\d+\.\d+\.\d+", said["Version"])
    assert said["Requires-Python"] == ">=3.11" and said["Summary"]
    assert said["License-Expression"] == "MIT OR Apache-2.0"
    assert {"numpy>=1.26", "scikit-learn>=1.6"} <= {one.replace(" ", "") for one in said.get_all("Requires-Dist")}
    classifiers = said.get_all("Classifier")
    assert "Programming Language :: Python :: 3.11" in classifiers and "Typing :: Typed" in classifiers
    # With a license expression, PEP 639 forbids these classifiers.
    assert not any(one.startswith("License ::") for one in classifiers)


def test_both_licences_are_there_and_are_those_of_the_repository():
    assert sorted(WHEEL.metadata.get_all("License-File")) == ["LICENSE-APACHE", "LICENSE-MIT"]
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        held = [file for file in WHEEL.files if file.name == name]
        assert len(held) == 1 and "dist-info" in str(held[0])
        assert held[0].locate().read_bytes() == (ROOT / name).read_bytes()


def test_the_description_is_the_readme_and_links_to_nothing_that_is_not_there():
    text = WHEEL.metadata.get_payload() or WHEEL.metadata["Description"]
    assert text.lstrip().startswith("# gmm_rs") and WHEEL.metadata["Description-Content-Type"].startswith("text/markdown")
    links = re.findall(r"\]\(([^)\s]+)\)|<a [^>]*href=[\"']([^\"']+)|<img [^>]*src=[\"']([^\"']+)", text)
    relative = [one for found in links for one in found if one and not re.match(r"https://|mailto:|#", one)]
    assert relative == []
    for line in WHEEL.metadata.get_all("Project-URL") or []:
        assert re.search(r", https://", line)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="another form of module")
def test_the_module_is_stripped_and_of_bounded_size():
    elf = pytest.importorskip("elftools.elf.elffile")
    with module().open("rb") as file:
        sections = {section.name: section["sh_size"] for section in elf.ELFFile(file).iter_sections()}
    assert ".text" in sections
    assert [name for name in sections if name.startswith((".debug", ".zdebug")) or name == ".symtab"] == []
    # 28 MB, of which 18 MB are code, as built for distribution. What the other tests use is built in less time: 42 and 24 MB.
    most, most_code = (30e6, 19e6) if os.environ.get("GMM_WHEEL_TAG") else (44e6, 26e6)
    assert module().stat().st_size < most and sections[".text"] < most_code


def test_stubs_and_marker_are_there():
    names = {str(file) for file in WHEEL.files}
    assert "gmm_rs/py.typed" in names
    sources = {name for name in names if re.fullmatch(r"gmm_rs/[a-z]\w*\.py", name)}
    assert {name + "i" for name in sources} - names <= {"gmm_rs/exceptions.pyi"}
    assert not any("tests" in name or name.endswith((".rs", ".toml")) for name in names)


def test_the_tag_is_the_one_that_was_asked_for():
    tags = re.findall(r"^Tag: (.*)$", WHEEL.read_text("WHEEL"), re.MULTILINE)
    # One module for CPython 3.11 and later.
    assert tags and all(tag.startswith("cp311-abi3-") for tag in tags)
    wanted = os.environ.get("GMM_WHEEL_TAG")
    if wanted is None:
        pytest.skip("built for this machine")
    assert any(wanted in tag for tag in tags), tags
