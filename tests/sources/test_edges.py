"""Densities that end while they have not vanished are found beyond the outermost draws."""

import numpy as np
import pytest
import scipy.stats

import az_cv
from az_cv.sources.edges import find_edges

RNG = np.random.default_rng(3)
SETTINGS = {"family": "polynomial", "attach": False, "progressbar": False}


def normal(points):
    return -0.5 * (points**2).sum(axis=1)


def cut(points, inside):
    return np.where(inside, normal(points), -np.inf)


def truncated(n, low):
    return scipy.stats.truncnorm.rvs(low, np.inf, size=n, random_state=1)


PLANE = RNG.normal(size=(4000, 2))
NARROW = np.linalg.cholesky([[1.0, 0.99999], [0.99999, 1.0]])
POSITIVE = RNG.gamma(2.0, size=(1000, 1))

# Draws, log density, and what must be found.
CASES = {
    "truncated far out": (
        np.column_stack([truncated(1000, -2.0), RNG.normal(size=1000)]),
        lambda p: cut(p, p[:, 0] > -2),
        ["x_0 ends at -2"],
    ),
    "a slanted edge": (
        PLANE[PLANE.sum(axis=1) < 0.5],
        lambda p: cut(p, p.sum(axis=1) < 0.5),
        ["x_0", "x_1"],
    ),
    "a penalty instead of an end": (
        truncated(1000, 0.3)[:, None],
        lambda p: normal(p) - 1000.0 * (p[:, 0] < 0.3),
        ["x_0 ends at 0.3"],
    ),
    "normal": (PLANE, normal, []),
    "normal, strongly correlated": (
        PLANE @ NARROW.T,
        lambda p: normal(np.linalg.solve(NARROW, p.T).T),
        [],
    ),
    "a density that vanishes at its end": (
        POSITIVE,
        lambda p: np.where(p[:, 0] > 0, np.log(np.abs(p[:, 0])) - p[:, 0], -np.inf),
        [],
    ),
    "a kink": (RNG.laplace(size=(1000, 1)), lambda p: -np.abs(p[:, 0]), []),
    "a scale on its logarithm": (
        np.log(POSITIVE),
        lambda p: 2 * p[:, 0] - np.exp(p[:, 0]),
        [],
    ),
    "overflow far out": (
        RNG.normal(size=(1000, 1)),
        lambda p: np.where(np.abs(p[:, 0]) < 12, normal(p), np.nan),
        [],
    ),
}


@pytest.mark.parametrize(("draws", "density", "expected"), CASES.values(), ids=CASES)
def test_edges_are_found_and_nothing_else(draws, density, expected):
    names = [f"x_{j}" for j in range(draws.shape[1])]
    found = find_edges(draws, lambda points, _: density(points), names)
    assert len(found) == len(expected)
    for text, wanted in zip(found, expected):
        assert text.startswith(wanted)


def test_a_truncated_callable_is_refused_and_check_false_goes_on():
    jnp = pytest.importorskip("jax.numpy")
    draws = truncated(1000, -2.0).reshape(4, 250, 1)

    def log_density(x):
        return jnp.where(x[0] > -2.0, -0.5 * x[0] ** 2, -jnp.inf)

    with pytest.raises(ValueError, match=r"hard edges.*x_0 ends at -2\..*check=False"):
        az_cv.summary({"x": draws}, model=log_density, **SETTINGS)
    with pytest.warns(UserWarning, match="hard edges"):
        az_cv.summary({"x": draws}, model=log_density, check=False, **SETTINGS)
    report = az_cv.check_scores({"x": draws}, model=log_density)
    assert report.verdict == "fail"
    assert "hard edges" in report.problems[0]


@pytest.mark.pymc
def test_pymc_variables_without_their_transform_are_refused():
    pm = pytest.importorskip("pymc")
    from az_cv.sources.pymc_graph import untransformed_bounded

    with pm.Model() as model:
        pm.HalfNormal("bare", default_transform=None)
        pm.HalfNormal("scale")
        pm.Normal("free")
        pm.Uniform("share", 0, 1)
        pm.Poisson("count", 3.0)
    assert untransformed_bounded(model) == ["bare"]
    with pm.Model() as model:
        pm.HalfNormal("bare", default_transform=None)
    draws = np.abs(np.random.default_rng(0).normal(size=(4, 100)))
    with pytest.raises(ValueError, match=r"hard edges.*bare has bounds and no transform"):
        az_cv.summary({"bare": draws}, model=model, **SETTINGS)


@pytest.mark.long
def test_a_numpyro_factor_that_ends_the_density_is_found():
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    from numpyro import infer

    def model():
        x = numpyro.sample("x", numpyro.distributions.Normal(0.0, 1.0))
        numpyro.factor("end", jax.numpy.where(x < 0.5, 0.0, -jax.numpy.inf))

    kernel = infer.BarkerMH(model, init_strategy=infer.init_to_value(values={"x": 0.0}))
    mcmc = infer.MCMC(kernel, num_warmup=100, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.key(0))
    assert "x ends at 0.5" in az_cv.scores(mcmc, progressbar=False).attrs["hard_edges"]
