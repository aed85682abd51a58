"""Every family with every solver that accepts it, on targets where the answer is known."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from az_cv import SGD, Ensemble, Exact, Kernel, NeuralNetwork, Polynomial
from az_cv.engine.choices import resolve_family
from az_cv.engine.engine import run_engine
from az_cv.families import Potential, paper_kernels
from az_cv.solvers import Fitted, Lasso, Member, RandomSubsets, Solver
from az_cv.testing import Gaussian, Genz


@dataclass(frozen=True)
class Cosines:
    """A family of somebody's own, given by features: images of cos(a x_j)."""

    frequency: float = 0.5

    def variants(self, x, s):
        return [Cosines(a) for a in (0.3, 0.5, 0.8)]

    def num_features(self, d):
        return d

    def features(self, x, s):
        a = self.frequency
        return -a * np.sin(a * x) * s - a**2 * np.cos(a * x)

    def gram(self, x, s, y, t):
        return self.features(x, s) @ self.features(y, t).T


@dataclass(frozen=True)
class Bumps:
    """A family of somebody's own, given by a Stein kernel alone."""

    def variants(self, x, s):
        return [self]

    def num_features(self, d):
        return None

    def features(self, x, s):
        raise NotImplementedError

    def gram(self, x, s, y, t):
        return Kernel("gaussian", length_scale=3.0).gram(x, s, y, t)


@dataclass(frozen=True)
class PerChain:
    """A solver of somebody's own: least squares without a chain, evaluated there."""

    def accepts(self, family):
        return isinstance(family, Cosines | Polynomial)

    def prepare(self, family, task):
        if not self.accepts(family):
            raise TypeError(f"PerChain takes no {type(family).__name__}. Use solver=Exact().")
        features = family.variants(task.x, task.s)[0].features(task.x, task.s)
        return Regression(np.column_stack([np.ones(len(features)), features]), task.shape)


@dataclass(frozen=True)
class Regression:
    design: Any
    shape: tuple[int, int]

    def fit(self, outputs, *, steps=False):
        adjusted = outputs.copy()
        for chain in np.array_split(np.arange(len(outputs)), self.shape[0]):
            rest = np.setdiff1d(np.arange(len(outputs)), chain)
            coefficients = np.linalg.lstsq(self.design[rest], outputs[rest])[0]
            adjusted[chain] -= self.design[chain, 1:] @ coefficients[1:]
        chains = adjusted.reshape(*self.shape, -1)
        return Fitted([Member("own", adjusted.mean(axis=0), chains, np.zeros(outputs.shape[1]))])


FAMILIES = {
    "order 1": Polynomial(1),
    "order 2": Polynomial(2),
    "order 3, no interactions": Polynomial(3, interactions=False),
    "dual order 4": Polynomial(7),
    "order 3 of one coordinate": Polynomial(3, coordinates=[1]),
    "order 1 + order 3 of one": Ensemble([Polynomial(1), Polynomial(3, coordinates=[1])]),
    "imq": Kernel(),
    "gaussian": Kernel("gaussian", length_scale=4.0),
    "rational quadratic": Kernel("rational_quadratic", length_scale=4.0),
    "matern": Kernel("matern", length_scale=4.0),
    "paper": Kernel("paper", length_scale="median", alpha_1=0.1),
    "anova": Kernel("anova"),
    "anova, nystrom": Kernel("anova", centres=30),
    "second order": Kernel("gaussian", "scalar_langevin", length_scale=4.0),
    "nystrom": Kernel(length_scale=8.0, centres=30),
    "kernel + polynomial": Ensemble([Kernel(length_scale=4.0), Polynomial(2)]),
    "two kernels + polynomial": Ensemble([*paper_kernels(0.1), Polynomial(2)]),
    "semi-exact": Ensemble([Kernel(length_scale=4.0), Polynomial(2)], semi_exact=True),
}
FAMILIES |= {
    "network": NeuralNetwork((8,), networks=1),
    "own potential": Potential(
        lambda params, x: params["a"] * (x**2).sum(), lambda key, d, q: {"a": np.zeros(q)}
    ),
    "own features": Cosines(),
    "own kernel": Bumps(),
}
SOLVERS = {
    "auto": Exact(),
    "fixed ridge": Exact(ridge=1e-6),
    "sgd": SGD(num_epochs=5, batch_size=64, num_centres=40),
    "sgd of the paper": replace(SGD.paper(), num_epochs=5, num_centres=40),
    "lasso": Lasso(),
    "random subsets": RandomSubsets(num_fits=5),
    "own": PerChain(),
}
TARGET = Gaussian(np.array([[1.0, 0.5], [0.5, 2.0]]), mean=np.array([3.0, -1.0]))


@pytest.fixture(scope="module")
def draws():
    x = TARGET.sample(np.random.default_rng(5), 240)
    outputs = np.stack(list(TARGET.integrands(x).values()), axis=1)
    return (a.reshape(4, 60, -1) for a in (x, TARGET.score(x), outputs))


@pytest.fixture(scope="module")
def arrays(draws):
    return tuple(draws)


def folds_of(solver):
    """Return the folds to try; a solver of somebody's own need not know about all of them."""
    if isinstance(solver, Exact | Lasso | RandomSubsets):
        return ["auto", "chain", 0.5]
    return ["chain"] if solver != SOLVERS["sgd of the paper"] else [0.5]


CASES = [
    pytest.param(family, solver, folds, id=f"{name}, {how}, {folds}")
    for name, family in FAMILIES.items()
    for how, solver in SOLVERS.items()
    if solver.accepts(family)
    for folds in folds_of(solver)
]
REFUSED = [
    pytest.param(family, solver, id=f"{name}, {how}")
    for name, family in FAMILIES.items()
    for how, solver in SOLVERS.items()
    if not solver.accepts(family)
]


@pytest.mark.parametrize(("family", "solver", "folds"), CASES)
def test_estimates_are_right_and_never_worse_than_plain(family, solver, folds, arrays):
    x, s, outputs = arrays
    estimate = run_engine(
        x, s, outputs, family=family, solver=solver, folds=folds, random_seed=1
    ).estimate
    truth = np.array(list(TARGET.expectations().values()))
    assert (estimate.mcse <= estimate.plain_mcse).all()
    assert (np.abs(estimate.mean - truth) <= 5 * estimate.mcse + 1e-9).all()


@pytest.mark.parametrize(("family", "solver"), REFUSED)
def test_families_that_a_solver_does_not_accept_are_refused(family, solver, arrays):
    with pytest.raises(TypeError, match=r"Use solver="):
        run_engine(*arrays, family=family, solver=solver, folds="chain")


def test_every_solver_accepts_something_and_is_a_solver():
    for solver in SOLVERS.values():
        assert isinstance(solver, Solver)
        assert any(solver.accepts(family) for family in FAMILIES.values())
    accepted = [name for name, family in FAMILIES.items() if SOLVERS["sgd"].accepts(family)]
    assert set(FAMILIES) - set(accepted) == {"semi-exact"}


@pytest.mark.parametrize("name", ["own features", "own kernel", "order 2"])
def test_what_is_called_back_trains_as_what_is_compiled(name, arrays):
    """Gradient steps reach the exact solution whether the features come from JAX or from NumPy."""
    x, s, outputs = arrays
    solver = SGD(strength=1e-3, num_epochs=150, early_stopping=False, num_centres=240)
    family = FAMILIES[name].variants(x, s)[0] if name == "own features" else FAMILIES[name]
    trained = run_engine(x, s, outputs, family=family, solver=solver, folds="chain", random_seed=0)
    solved = run_engine(x, s, outputs, family=family, solver=Exact(ridge=1e-3), folds="chain")
    ratio = trained.estimate.adjusted.std(axis=(0, 1)) / solved.estimate.adjusted.std(axis=(0, 1))
    assert (ratio < 1.1).all()


@pytest.mark.parametrize("d", [1, 5, 20])
@pytest.mark.parametrize("folds", ["auto", "chain"])
def test_polynomials_are_exact_on_a_gaussian(d, folds, rng):
    factor = rng.normal(size=(d, d)) + 2 * np.eye(d)
    target = Gaussian(factor @ factor.T, mean=rng.normal(size=d))
    x = target.sample(rng, 1000)
    first, second = x, np.einsum("ni,nj->nij", x, x).reshape(1000, -1)[:, : 2 * d]
    truth = (target.covariance + np.outer(target.mean, target.mean)).ravel()[: 2 * d]
    shaped = [a.reshape(4, 250, -1) for a in (x, target.score(x), first, second)]
    for order, outputs, expected in ((1, shaped[2], target.mean), (2, shaped[3], truth)):
        estimate = run_engine(
            *shaped[:2], outputs, family=Polynomial(order), solver=Exact(ridge=1e-13), folds=folds
        ).estimate
        scale = outputs.std(axis=(0, 1))
        np.testing.assert_allclose(estimate.mean / scale, expected / scale, atol=1e-10)
        assert (estimate.adjusted.std(axis=(0, 1)) / scale < 1e-10).all()


def test_semi_exact_is_exact_on_the_polynomials(rng):
    x = rng.normal(size=(4, 50, 3))
    family = Ensemble([Kernel(length_scale=2.0), Polynomial(2)], semi_exact=True)
    estimate = run_engine(x, -x, x**2, family=family, solver=Exact(ridge=1e-4)).estimate
    np.testing.assert_allclose(estimate.mean, 1, atol=1e-9)


def test_large_systems_are_solved_in_parts(rng):
    x = rng.normal(size=(4, 100, 2))
    outputs = np.exp(0.3 * x[..., :1])
    kernel = Kernel(length_scale=8.0)
    whole = run_engine(x, -x, outputs, family=kernel, solver=Exact(ridge=1e-8)).estimate
    parts = run_engine(
        x, -x, outputs, family=kernel, solver=Exact(ridge=1e-8, max_draws=150)
    ).estimate
    assert abs(parts.mean[0] - np.exp(0.045)) < 5 * parts.mcse[0]
    assert parts.mcse[0] > whole.mcse[0]
    assert parts.mcse[0] < 1e-2 * parts.plain_mcse[0]


def test_marginal_likelihood_is_a_choice(rng):
    x = rng.normal(size=(4, 60, 2))
    solver = Exact(criterion="marginal_likelihood")
    estimate = run_engine(x, -x, np.cos(x[..., :1]), family="kernel", solver=solver).estimate
    assert abs(estimate.mean[0] - np.exp(-0.5)) < 5 * estimate.mcse[0]


def test_duplicated_draws_are_normal_input(rng):
    x = np.repeat(rng.normal(size=(4, 100, 2)), 3, axis=1)
    outputs = np.exp(0.5 * x[..., :1])
    estimate = run_engine(x, -x, outputs).estimate
    truth = np.exp(0.125)
    assert np.isfinite(estimate.mcse).all()
    assert abs(estimate.mean[0] - truth) < 5 * estimate.mcse[0]
    # A repeated draw is no new information: the plain error is that of 400 draws, not of 1200.
    assert estimate.plain_mcse[0] == pytest.approx(outputs.std() / 20, rel=0.3)


def test_peaks_gain_from_the_papers_kernel_in_one_dimension():
    target = Genz(a=5.0)
    x = target.sample(np.random.default_rng(2), 600).reshape(1, 600, 1)
    peak, truth = "gaussian peak", target.expectations()["gaussian peak"]
    outputs = target.integrands(x[0])[peak].reshape(1, 600, 1)
    default = run_engine(x, -x, outputs).estimate
    radial = run_engine(x, -x, outputs, family=Kernel()).estimate
    assert default.weights["paper kernel"][0] > 0.5
    several_peaks = resolve_family("auto", x[0], np.sin(3 * x[0]))
    assert Kernel("paper") not in several_peaks
    assert default.mcse[0] < 0.3 * radial.mcse[0]
    assert abs(default.mean[0] - truth) < 4 * default.mcse[0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"family": "spline"}, ValueError, r"family 'spline' is unknown. Choose from \['auto'"),
        ({"family": 3}, TypeError, "family must be a name in"),
        ({"solver": "newton"}, ValueError, "solver 'newton' is unknown"),
    ],
)
def test_unknown_choices_are_refused(arguments, error, message, rng):
    x = rng.normal(size=(4, 20, 2))
    with pytest.raises(error, match=message):
        run_engine(x, -x, x, **arguments)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Exact(ridge=-1), "ridge must be 'auto' or at least 0"),
        (lambda: Exact(criterion="aic"), "criterion 'aic' is unknown"),
    ],
)
def test_impossible_solvers_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
