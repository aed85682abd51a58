"""Kernel systems through JAX, as on a graphics card: here on JAX's own processor device."""

from dataclasses import fields

import jax
import numpy as np
import pytest

import az_cv
from az_cv.engine.cache import clear_cache
from az_cv.families import Ensemble, HierarchicalKernel, Kernel, Polynomial, accelerator
from az_cv.families.accelerator import Accelerator
from az_cv.families.hierarchy.conditional_fit import fit_conditional
from az_cv.solvers.linear import family_systems
from az_cv.solvers.linear.device_inverse import invert_on_device
from az_cv.solvers.linear.dual_system import factorise_dual
from az_cv.solvers.linear.inverse import assemble_gram

CARD = Accelerator(jax.devices("cpu")[0])
KERNELS = {
    "imq": Kernel(length_scale=2.0),
    "smooth imq": Kernel(length_scale=2.0, exponent=1.5),
    "gaussian": Kernel("gaussian", length_scale=2.0),
    "rational quadratic": Kernel("rational_quadratic", length_scale=2.0),
    "matern": Kernel("matern", nu=3.5, length_scale=2.0),
    "paper": Kernel("paper", length_scale=2.0),
    "anova": Kernel("anova", length_scale=2.0),
    "second order": Kernel(operator="scalar_langevin", length_scale=2.0),
    "paper, second order": Kernel("paper", operator="scalar_langevin", length_scale=2.0),
    "sum": Ensemble([Kernel(length_scale=2.0), Kernel("gaussian", length_scale=1.0)]),
}


@pytest.fixture
def draws():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(90, 6))
    return x, -x + 0.1 * x**2


def lower(matrix):
    return np.tril(np.asarray(matrix))


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_the_same_there(name, draws):
    kernel = KERNELS[name]
    assert kernel.portable
    there = CARD.matrix(kernel, *draws)
    assert there.dtype == "float64"
    expected = lower(assemble_gram(kernel.gram, *draws))
    np.testing.assert_allclose(lower(there), expected, rtol=1e-11, atol=1e-11)


def test_the_hierarchical_kernel_is_the_same_there(draws):
    x, s = draws
    view = HierarchicalKernel(top=[0]).lift(x, s, x)[0]
    kernel = view.family.variants(view.x, view.s)[0]
    there = CARD.matrix(kernel, view.x, view.s)
    np.testing.assert_allclose(lower(there), lower(kernel.matrix(view.x, view.s)), rtol=1e-10)


def test_what_jax_lacks_stays_where_it_is():
    assert not Kernel("matern", nu=2.7).portable
    assert not Ensemble([Kernel(), Polynomial(order=1)]).portable
    assert Ensemble([Kernel(), Polynomial(order=1)], semi_exact=True).portable


@pytest.mark.parametrize("length", [1, 7])
def test_a_system_there_gives_the_same_fits(length, draws):
    x, s = draws
    kernel, outputs = Kernel(length_scale=3.0), np.column_stack([x[:, 0] ** 2, x[:, 1] > 0])
    folds = [np.arange(k, min(k + length, 90)) for k in range(0, 90, length)]
    features = Polynomial(order=1, degree_scale=1.0).features(x, s)
    here = factorise_dual(
        assemble_gram(kernel.gram, x, s), folds, ridge=1e-6, exact_features=(None, features)
    )
    there = factorise_dual(
        CARD.matrix(kernel, x, s), folds, ridge=1e-6, exact_features=(None, features)
    )
    distinct = [np.arange(k, k + 2) for k in range(0, 90, 2)]
    for one, other in zip(
        here.fit(outputs, distinct=distinct), there.fit(outputs, distinct=distinct)
    ):
        for name in ("intercept", "residual", "adjusted", "leave_one_out", "log_evidence"):
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-6)


def test_a_singular_matrix_is_told():
    with jax.enable_x64(True):
        matrix = jax.numpy.ones((30, 30))
    assert invert_on_device(matrix, 0.0) is None


def test_a_summary_there_is_the_same(monkeypatch):
    data = az_cv.load_eight_schools().sel(draw=slice(0, 249))
    here = az_cv.summary(data, var_names=["mu", "tau"], attach=False)
    clear_cache()
    monkeypatch.setattr(family_systems, "accelerator_for", lambda *_: CARD)
    monkeypatch.setattr("az_cv.solvers.linear.inverse.WORTHWHILE", 0)
    asked = []
    monkeypatch.setattr(
        Accelerator,
        "matrix",
        lambda self, *args, _made=Accelerator.matrix: asked.append(args) or _made(self, *args),
    )
    there = az_cv.summary(data, var_names=["mu", "tau"], attach=False)
    clear_cache()
    assert asked
    for column, error in (("mean", "mcse_mean"), ("sd", "mcse_sd")):
        assert (np.abs(there[column] - here[column]) < 0.01 * here[error]).all()
        np.testing.assert_allclose(there[error], here[error], rtol=0.01)


def test_no_card_without_a_plugin(monkeypatch):
    monkeypatch.setattr(accelerator, "find_spec", lambda name: None)
    monkeypatch.setattr(accelerator, "entry_points", lambda group: ())
    assert accelerator.find_accelerator.__wrapped__() is None


def test_no_card_where_jax_sees_none(monkeypatch):
    monkeypatch.setattr(accelerator, "find_spec", lambda name: object())
    monkeypatch.setattr(jax, "devices", lambda *names: [CARD.device])
    assert accelerator.find_accelerator.__wrapped__() is None


def test_a_card_holds_as_many_draws_as_its_memory(monkeypatch):
    class Card:
        def memory_stats(self):
            return {"bytes_limit": 100e9}

    assert Accelerator(Card()).max_draws == 25_000
    assert CARD.max_draws == 0


def test_the_conditional_distribution_is_the_same_there(draws, monkeypatch):
    x, s = draws
    top, rest = x[:, :2], x[:, 2:]
    score = -rest * np.exp(top[:, :1])
    steep = fit_conditional(top, rest, score, x[:, :3], np.array([0.5, 0.2]))
    assert steep.precisions.ndim == 3 and steep.steps.any()
    here = steep.move(top, s[:, :2], rest, score)
    monkeypatch.setattr("az_cv.families.hierarchy.conditional.find_accelerator", lambda: CARD)
    monkeypatch.setattr("az_cv.families.hierarchy.conditional.WORTHWHILE", 0)
    there = steep.move(top, s[:, :2], rest, score)
    for field in fields(here):
        assert isinstance(getattr(there, field.name), np.ndarray)
        np.testing.assert_allclose(
            getattr(there, field.name), getattr(here, field.name), rtol=1e-9, atol=1e-9
        )
