"""The scripts behind the numbers of the README and the documentation run."""

import runpy
import sys
from pathlib import Path

import pytest

import az_cv

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "arguments", "rows"),
    [
        ("before_after.py", [], 5),
        ("benchmarks/choices.py", ["--draws", "25"], 6),
        (
            "calibration/calibrate.py",
            "--targets gaussian-1 banana --kinds iid --draws 50 --replications 2".split(),
            4,
        ),
    ],
)
def test_script_prints_its_table(script, arguments, rows, monkeypatch, capsys):
    load = az_cv.load_eight_schools
    monkeypatch.setattr(az_cv, "load_eight_schools", lambda: load().isel(draw=slice(None, 100)))
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.syspath_prepend((EXAMPLES / script).parent)
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == rows + 2
    assert len({line.count("|") for line in lines}) == 1
