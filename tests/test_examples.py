"""The scripts behind the numbers of the README and the documentation run."""

import runpy
import sys
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("name", ["banana", "eight-schools", "genz", "location-scale", "logistic"])
def test_calibration_target_is_what_it_says(name):
    """Scores are gradients of the log density, and independent draws have its moments."""
    import jax

    problems = runpy.run_path(str(EXAMPLES / "calibration" / "targets.py"))["PROBLEMS"]
    problem = problems[name]()
    x = problem.sample(np.random.default_rng(0), 20_000)
    with jax.enable_x64(True):
        gradients = np.asarray(jax.vmap(jax.grad(problem.log_density))(x[:100]))
    np.testing.assert_allclose(problem.score(x[:100]), gradients, rtol=1e-9, atol=1e-9)
    f = problem.functions(x)
    centred = f - problem.mean
    assert np.all(np.abs(centred.mean(axis=0)) < 4.5 * problem.sd / len(x) ** 0.5)
    spread = (centred**2).std(axis=0) / len(x) ** 0.5
    assert np.all(np.abs((centred**2).mean(axis=0) - problem.sd**2) < 6 * spread)
    scores = problem.score(x)
    assert np.all(np.abs(scores.mean(axis=0)) < 4.5 * scores.std(axis=0) / len(x) ** 0.5)
