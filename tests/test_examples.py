"""The scripts behind the numbers of the README and the documentation run."""

import csv
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import az_cv

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCS = EXAMPLES.parent / "docs"


@pytest.mark.parametrize(
    ("script", "arguments", "rows"),
    [
        ("before_after.py", [], 5),
        ("benchmarks/choices.py", ["--draws", "25"], 6),
        ("benchmarks/sparse_polynomials.py", ["--dimensions", "6", "--draws", "25", "40"], 2),
        (
            "calibration/calibrate.py",
            "--targets gaussian-1 banana --kinds iid --draws 50 --replications 2".split(),
            4,
        ),
        (
            "approximate/calibration.py",
            ["--only", "banana, d = 2", "--replications", "1", "--routes", "weights"],
            2,
        ),
        (
            "hierarchical/left_out.py",
            ["--classes", "banana", "--draws", "50", "--replications", "1"],
            2,
        ),
        (
            "evidence/calibration.py",
            ["--only", "normal, normal prior", "--draws", "50", "--replications", "1"],
            1,
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


def test_the_models_of_the_page_on_sampling_longer_are_there(monkeypatch):
    """Eight of them, each in a row of the page; the two of the script have finite gradients."""
    import jax

    monkeypatch.syspath_prepend(EXAMPLES / "hierarchical")
    for name in ("benchmark", "models"):  # other examples have modules of these names
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    script = runpy.run_path(str(EXAMPLES / "benchmarks" / "worth.py"))
    page = (DOCS / "sample_longer.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| [\w, ]+ \| \d", line)]
    assert len(rows) == len(script["EVERY"]) == 8
    assert sorted(int(row[8].removesuffix(" |")) for row in rows) == sorted(
        make(0).dimension for make in script["EVERY"].values()
    )
    for row in rows:
        # Gain times seconds, over seconds; every number on the page has two digits.
        worth, gain, summary, on, draws = (
            float(re.match(r"[\d.,]+", cell)[0].replace(",", "")) for cell in row[1:6]
        )
        assert on == pytest.approx(gain * draws, rel=0.12)
        assert worth == pytest.approx(on / summary, rel=0.12)
    for name in ("eight schools", "small logistic regression"):
        model = script["EVERY"][name](0)
        gradient = jax.grad(model)(0.1 * np.ones(model.dimension))
        assert gradient.shape == (model.dimension,)
        assert np.isfinite(gradient).all()
    assert script["text"](12_345.6) == "12,000"


def test_the_table_on_evidence_is_that_of_its_files(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES / "evidence")
    script = runpy.run_path(str(EXAMPLES / "evidence" / "calibration.py"))
    errors = np.array([0.01, -0.02, 0.03])
    rows = [
        dict(zip(script["COLUMNS"], ("gamma-Poisson", k, error, 0.01, 10 * error, 0.1, 0.9)))
        for k, error in enumerate(errors)
    ]
    file = script["file_of"](tmp_path, "gamma-Poisson")
    written = script["write"](file, iter(rows))
    next(written)
    assert len(file.read_text().splitlines()) == 2  # the first is there before the second is made
    assert list(written) == rows[1:]
    *_, line = script["table"](tmp_path).splitlines()
    rms = np.sqrt((errors**2).mean())
    expected = (
        f"| gamma-Poisson | 1 | 3 | {10 * rms:.1e} | {rms:.1e} | 10 | {100 * rms:.2f} | 0.33 |"
    )
    assert line == expected


@pytest.mark.parametrize(
    "name",
    ["banana", "eight-schools", "genz", "location-scale", "logistic", "modes-2", "rare-mode-2"],
)
def test_calibration_target_is_what_it_says(name, monkeypatch):
    """Scores are gradients of the log density, and independent draws have its moments."""
    import jax

    monkeypatch.syspath_prepend(EXAMPLES / "calibration")
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


def test_heavy_tails_are_those_of_student(monkeypatch):
    """The characteristic function of a t with three degrees of freedom is known."""
    monkeypatch.syspath_prepend(EXAMPLES / "calibration")
    problem = runpy.run_path(str(EXAMPLES / "calibration" / "targets.py"))["heavy_tails"]()
    cosine, twice = ((1 + u * 3**0.5) * np.exp(-u * 3**0.5) for u in (1, 2))
    np.testing.assert_allclose(problem.mean[0], cosine, rtol=1e-8)
    np.testing.assert_allclose(problem.sd[0], np.sqrt((1 + twice) / 2 - cosine**2), rtol=1e-8)


def test_the_columns_of_rare_modes_are_those_of_the_page():
    script = runpy.run_path(str(EXAMPLES / "calibration" / "rare_modes.py"))
    cell = {"draws": 250, "d": 3, "seed": 0, "seen": 7}
    values = {"mean": (1.5, 2.5, 40), "second moment": (3.5, 4.5, 1), "across": (5.5, 6.5, 1)}
    rows = [
        {**cell, "of": name, "z": z, "plain_z": plain, "gain": gain}
        for name, (z, plain, gain) in values.items()
    ]
    header, _, line = script["table"](rows, ["draws", "d"]).splitlines()
    page = (DOCS / "error_bars.md").read_text(encoding="utf-8")
    assert f"\n{header.replace(' (unseen)', '')}\n" in page  # which counts both
    assert line == "| 250 | 3 | 40 | 1 (0) | 1.50, 2.50 | 3.50, 4.50 | 3.5, 4.5 | 0 | 5.5 |"


def test_the_page_has_the_ablation_of_the_results(monkeypatch):
    """The table is what the script makes of its results, and knows every rule of today."""
    monkeypatch.syspath_prepend(EXAMPLES / "calibration")
    ablation = runpy.run_path(str(EXAMPLES / "calibration" / "ablation.py"))
    with (EXAMPLES / "calibration" / "results" / "ablation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert ablation["table"](rows) in (DOCS / "error_bars.md").read_text(encoding="utf-8")
    assert {row["without"] for row in rows} == {"nothing", *ablation["RULES"]}
    cells = {(row["target"], row["draws"]) for row in rows}
    assert cells == {(name, f"{kind} {c} x {n}") for name, kind, c, n in ablation["CELLS"]}


def test_a_rule_that_is_switched_off_is_off(monkeypatch):
    """Without the error beyond the draws the error is smaller, and the rules come back."""
    monkeypatch.syspath_prepend(EXAMPLES / "calibration")
    ablation = runpy.run_path(str(EXAMPLES / "calibration" / "ablation.py"))
    problem = ablation["PROBLEMS"]["banana"]()
    x = problem.sample(np.random.default_rng(0), 200).reshape(4, 50, 2)
    rules = list(ablation["RULES"])
    found = ablation["replicate"](("banana", x, rules))
    assert found.shape == (1 + len(rules), 2, 4)
    gains = dict(zip(["nothing", *rules], found[:, 1]))
    assert (gains["error beyond the draws"] >= gains["nothing"]).all()
    assert (gains["error beyond the draws"] > 100 * gains["nothing"]).any()
    assert (gains["Student's t"] >= gains["nothing"]).all()
    again = ablation["replicate"](("banana", x, []))
    np.testing.assert_array_equal(again[0], found[0])
