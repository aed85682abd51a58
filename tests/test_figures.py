"""Committed pictures and tables are those that the code of today makes."""

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_figures.py"))
MADE_FROM = json.loads((ROOT / "docs" / "_static" / "made_from.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MAKER["SOURCES"])
def test_nothing_is_older_than_the_code_that_makes_it(name):
    assert MADE_FROM[name] == MAKER["digest"](MAKER["SOURCES"][name]), (
        f"The code behind {name} has changed: run `make figures`, look at it, and commit it."
    )
    assert name == "before_after" or (ROOT / "docs" / "_static" / name).is_file()


def test_the_digest_is_that_of_the_code_alone(tmp_path):
    digest = MAKER["digest"]
    files = {
        "plain": "def f(x):\n    return x + 1\n",
        "spoken": '"""Doc."""\n\ndef f(x):\n    """Add."""\n    # one\n    return x + 1\n',
        "changed": "def f(x):\n    return x + 2\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    found = {name: digest([tmp_path / name]) for name in files}
    assert found["plain"] == found["spoken"] != found["changed"]


def tables():
    return [
        MAKER["MARKED"].search(page.read_text(encoding="utf-8"))[0] for page in MAKER["TABLE_PAGES"]
    ]


def test_the_first_pages_show_the_same_table():
    readme, home = tables()
    assert readme == home
    assert readme.count("\n| ") == 6


def test_the_first_table_is_within_its_errors_of_the_exact_values():
    rows = re.findall(r"\| [^|]+ \| [^|]+ \| ([\d.]+) ± ([\d.]+) \| ([\d.]+) \|", tables()[0])
    assert len(rows) == 3
    for mean, error, exact in rows:
        # Exact values have four decimals.
        assert abs(float(mean) - float(exact)) < 4 * float(error) + 5e-5


def test_every_picture_of_the_pages_is_there():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in re.findall(r"_static/([\w.]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / "docs" / "_static" / name).is_file(), f"{page.name}: {name}"
