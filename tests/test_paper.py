"""The paper's experiments run, give sensible tables, and their page is what the tables say."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

PAPER = Path(__file__).parents[1] / "examples" / "paper"


@pytest.fixture
def script(monkeypatch):
    """Import a script of examples/paper afresh."""
    monkeypatch.syspath_prepend(PAPER)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(PAPER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("polynomials", []),
        ("genz", []),
        ("gaussian_processes", []),
        ("lotka_volterra", []),
        ("logistic", ["--only", "sonar"]),
        ("logistic", ["--only", "madelon"]),
        ("lidar", []),
    ],
)
def test_experiment_in_quick_mode(name, arguments, script, tmp_path):
    script(name).main([*arguments, "--quick", "--output", str(tmp_path)])
    page = script("page")
    rows = page.read_all(tmp_path)
    assert {"plain", "default"} < {row.method for row in rows}
    assert all(np.isfinite(row.mae) and row.repetitions == 2 for row in rows)
    if name == "polynomials":
        exact = [row.mae for row in rows if row.method == "default"]
        assert max(exact) < 1e-12
    (tmp_path / "_static").mkdir()
    text = page.write_page(rows, tmp_path)
    assert all(row.method in text for row in rows)


def test_joint_simulation_of_integrand_and_integral(script):
    """The integral that comes with a function is the average of the function."""
    module = script("gaussian_processes")
    rng = np.random.default_rng(0)
    mixture = module.Mixture(2, rng)
    x, y = mixture.sample(4000, rng), mixture.sample(4000, rng)
    squares = ((x[:, None] - y) ** 2).sum(axis=2)
    covariance = module.AMPLITUDE**2 * np.exp(-0.5 * squares / module.LENGTH**2)
    np.testing.assert_allclose(
        covariance.mean(axis=1), mixture.integrated_covariance(x), atol=5 * 0.5 / 4000**0.5
    )
    assert covariance.mean() == pytest.approx(mixture.twice_integrated_covariance(), abs=0.02)


def test_mixture_score(script):
    module = script("gaussian_processes")
    mixture = module.Mixture(3, np.random.default_rng(1))
    x = mixture.sample(5, np.random.default_rng(2))

    def log_density(x):
        from scipy.stats import multivariate_normal

        parts = zip(mixture.weights, mixture.means, mixture.covariances)
        return np.log(sum(w * multivariate_normal(m, c).pdf(x) for w, m, c in parts))

    step = 1e-5
    shifts = step * np.eye(3)
    numeric = [(log_density(x + e) - log_density(x - e)) / (2 * step) for e in shifts]
    np.testing.assert_allclose(mixture.score(x), np.transpose(numeric), rtol=1e-6, atol=1e-6)


def test_mala_samples_a_gaussian(script):
    """Means and variances of a correlated Gaussian, and the scores that come with the draws."""
    import jax.numpy as jnp

    covariance = np.array([[2.0, 0.9], [0.9, 1.0]])
    precision = np.linalg.inv(covariance)
    x, s = script("mala").sample(
        lambda x: -0.5 * x @ jnp.asarray(precision) @ x,
        np.zeros((8, 2)),
        num_warmup=1000,
        num_draws=1000,
        thin=4,
    )
    np.testing.assert_allclose(s, -x @ precision, atol=1e-9)
    flat = x.reshape(-1, 2)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.cov(flat.T), covariance, atol=0.2)


def test_page_is_what_the_results_say(script, tmp_path):
    """The committed page cannot drift from the committed tables."""
    page = script("page")
    rows = page.read_all(PAPER / "results")
    committed = PAPER.parents[1] / "docs" / "paper.md"
    assert committed.exists() == bool(rows)
    if rows:
        (tmp_path / "_static").mkdir()
        more_chains = page.read_all(PAPER / "results" / "hundred_chains")
        assert page.write_page(rows, tmp_path, more_chains) == committed.read_text()


def test_readme_has_the_ratios_of_the_results(script):
    rows = script("experiment").read(PAPER / "results" / "sonar.csv")
    mae = {(row.case, row.method): row.mae for row in rows}
    ratios = [
        mae[case, "default"] / mae[case, "plain"]
        for case in ("coefficients, n = 1000", "coefficients, n = 4000")
    ]
    readme = (PAPER.parents[1] / "README.md").read_text()
    assert "**{:.2f} / {:.2f}**".format(*ratios) in readme


def test_hindsight_on_the_product_peak(script):
    """The best of three kernels beats plain averaging, whichever way it answers."""
    found = script("product_peak_grid").main(["--quick", "--dimensions", "5"])[5]
    samples = [script("genz").product_peak(5, 1000, seed) for seed in range(2)]
    plain = np.mean([abs(sample.f.mean() - sample.truth) for sample in samples])
    assert len(found) == 3
    assert all(error < plain for error, _ in found.values())


@pytest.mark.long
def test_errors_of_lidar_chains(script):
    """One z for each chain and function; two badly adapted chains say no more than that."""
    found = script("lidar_errors").main(["--quick"])
    assert found[100].shape == (2, 5)
    assert np.isfinite(found[100]).all()
