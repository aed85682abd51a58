"""Scores from plain functions against Gaussians, whose gradient is known."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.log_density import callable_scores, log_density_scores

RNG = np.random.default_rng(3)
PRECISION = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 3.0]])
DRAWS = RNG.normal(size=(2, 600, 3))


class Position(NamedTuple):
    loc: object
    scale: object


def log_density_of_vector(x):
    return -0.5 * x @ jnp.asarray(PRECISION) @ x


def log_density_of_dict(parameters):
    return -0.5 * jnp.sum(parameters["b"] ** 2) - 2.0 * parameters["a"] ** 2


def test_jax_log_density_of_a_vector_gives_its_gradient_in_double_precision():
    before = jax.config.jax_enable_x64
    scores = log_density_scores(DRAWS, log_density=log_density_of_vector, progressbar=False)

    np.testing.assert_allclose(scores.gradient, -DRAWS @ PRECISION, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(scores.unconstrained_draw, DRAWS)
    assert scores.unconstrained_parameter.values.tolist() == ["x_0", "x_1", "x_2"]
    assert jax.config.jax_enable_x64 == before


def test_two_dimensions_are_the_draws_of_one_chain():
    scores = log_density_scores(DRAWS[0], log_density=log_density_of_vector, progressbar=False)
    assert scores.gradient.shape == (1, 600, 3)


def test_jax_log_density_of_a_dict_keeps_names():
    draws = {"b": DRAWS[..., :2], "a": DRAWS[..., 2]}
    scores = log_density_scores(draws, log_density=log_density_of_dict, progressbar=False)

    gradient = scores.gradient.to_series().unstack("unconstrained_parameter")
    for name, expected in {"a": -4 * draws["a"], "b_1": -draws["b"][..., 1]}.items():
        np.testing.assert_allclose(gradient[name], expected.ravel(), rtol=1e-12)
    assert scores.unconstrained_parameter.values.tolist() == ["a", "b_0", "b_1"]


def test_any_pytree_will_do():
    draws = Position(jnp.asarray(DRAWS[..., 0]), jnp.asarray(DRAWS[..., 1:]))
    scores = log_density_scores(
        draws, log_density=lambda p: -0.5 * p.loc**2 - jnp.sum(p.scale**2), progressbar=False
    )
    factor = np.array([-1.0, -2.0, -2.0])
    np.testing.assert_allclose(scores.gradient, scores.unconstrained_draw * factor, rtol=1e-12)
    assert scores.unconstrained_parameter.values.tolist() == ["loc", "scale_0", "scale_1"]


@pytest.fixture
def tree():
    posterior = xr.Dataset(
        {"b": (("chain", "draw", "dim"), DRAWS[..., :2]), "a": (("chain", "draw"), DRAWS[..., 2])},
        coords={"chain": [4, 5], "draw": np.arange(10, 610)},
    )
    return xr.DataTree.from_dict({"posterior": posterior})


def test_variables_of_a_posterior_make_one_vector(tree):
    scores = log_density_scores(tree, log_density=log_density_of_vector, progressbar=False)

    np.testing.assert_allclose(scores.gradient, -DRAWS @ PRECISION, rtol=1e-12, atol=1e-13)
    assert scores.unconstrained_parameter.values.tolist() == ["b_0", "b_1", "a"]
    assert scores.chain.values.tolist() == [4, 5]
    assert scores.draw.values[0] == 10


def test_variables_of_a_posterior_make_a_dict_for_a_function_of_one(tree):
    scores = log_density_scores(tree, log_density=log_density_of_dict, progressbar=False)
    np.testing.assert_allclose(scores.gradient, DRAWS * [-1, -1, -4], rtol=1e-12)

    by_gradient = log_density_scores(
        tree, gradient=lambda p: {"b": -p["b"], "a": -4 * p["a"]}, progressbar=False
    )
    # A dict that JAX flattens comes back in alphabetical order.
    np.testing.assert_allclose(by_gradient.gradient, scores.gradient, rtol=1e-12)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda x: -PRECISION @ x,  # one draw; on three draws at once it means something else
        lambda x: -x @ PRECISION,  # one draw or many
        lambda x: -np.einsum("ni,ij->nj", x, PRECISION),  # many draws only
        jax.grad(log_density_of_vector),
        lambda x: (-PRECISION @ x).tolist(),
    ],
    ids=["one", "both", "many", "jax", "list"],
)
def test_gradient_of_one_draw_or_of_many(gradient):
    scores = log_density_scores(DRAWS, gradient=gradient, progressbar=False)
    np.testing.assert_allclose(scores.gradient, -DRAWS @ PRECISION, rtol=1e-12, atol=1e-13)


def test_gradient_of_many_draws_is_not_called_draw_by_draw():
    calls = []

    def gradient(x):
        calls.append(np.shape(x))
        return -x

    log_density_scores(DRAWS, gradient=gradient, progressbar=False)
    assert len(calls) < 20


def test_a_callable_is_told_apart_by_what_it_returns(tree):
    expected = -DRAWS @ PRECISION
    for draws, function in [
        (DRAWS, log_density_of_vector),
        (DRAWS, lambda x: -x @ PRECISION),
        (DRAWS, lambda x: -np.einsum("ni,ij->nj", x, PRECISION)),
        (DRAWS, lambda x: -np.asarray(x) @ PRECISION),
        (tree, log_density_of_vector),
    ]:
        scores = callable_scores(draws, function, progressbar=False)
        np.testing.assert_allclose(scores.gradient, expected, rtol=1e-12, atol=1e-13)
    by_name = callable_scores(tree, log_density_of_dict, progressbar=False)
    np.testing.assert_allclose(by_name.gradient, DRAWS * [-1, -1, -4], rtol=1e-12)


def test_log_density_in_numpy_is_refused():
    with pytest.raises(TypeError, match="JAX cannot differentiate it"):
        callable_scores(DRAWS, lambda x: float(-0.5 * np.asarray(x) @ np.asarray(x)))


def test_draws_without_a_finite_gradient_are_dropped():
    draws = DRAWS.copy()
    draws[1, 17, 2] = 0.0
    with pytest.warns(NonFiniteScoresWarning, match="1 of 1200 draws .* x_2"):
        scores = log_density_scores(
            draws, log_density=lambda x: jnp.sum(jnp.log(x[2] ** 2) - x**2), progressbar=False
        )
    assert 17 not in scores.draw


def test_errors_name_what_is_wrong():
    with pytest.raises(TypeError, match="Give log_density, or gradient, or both"):
        log_density_scores(DRAWS)
    with pytest.raises(ValueError, match=r"32 of 32 directions.*Check its sign"):
        log_density_scores(DRAWS, log_density=log_density_of_vector, gradient=lambda x: -7 * x)
    with pytest.raises(ValueError, match=r"draws has shape \(3,\)"):
        log_density_scores(DRAWS[0, 0], gradient=lambda x: -x)
    with pytest.raises(ValueError, match=r"one number per draw; .* \[\(3,\)\]"):
        log_density_scores(DRAWS, log_density=lambda x: -x)
    with pytest.raises(ValueError, match=r"\[\(3, 2\)\] where the draws have \[\(3, 3\)\]"):
        log_density_scores(DRAWS, gradient=lambda x: -x[..., :2])
    with pytest.raises(ValueError, match="begin with the dimensions chain and draw"):
        log_density_scores({"a": DRAWS, "b": DRAWS[0]}, log_density=log_density_of_dict)
    with pytest.raises(TypeError, match=r"\['k'\] are not floating point"):
        log_density_scores({"k": np.zeros((2, 5), int)}, log_density=log_density_of_dict)


def test_an_error_of_the_function_itself_is_let_through(tree):
    def broken(x):
        return -x * undefined_name  # noqa: F821

    for function in (broken, lambda x: 1 / 0):
        for draws in (DRAWS, tree):
            with pytest.raises((NameError, ZeroDivisionError)):
                callable_scores(draws, function, progressbar=False)
            with pytest.raises((NameError, ZeroDivisionError)):
                log_density_scores(draws, gradient=function, progressbar=False)


def test_every_form_a_function_refused_is_told(tree):
    def misspelt(p):
        return -jnp.sum(p["b"] ** 2) - 2 * p["alpha"] ** 2

    with pytest.raises(
        TypeError,
        match=r"(?s)a vector of length 3: .*a dict with the keys \['b', 'a'\]: KeyErr.*alp",
    ):
        log_density_scores(tree, log_density=misspelt, progressbar=False)


def test_blackjax_positions_are_draws():
    blackjax = pytest.importorskip("blackjax")
    kernel = blackjax.nuts(log_density_of_dict, step_size=0.5, inverse_mass_matrix=jnp.ones(3))
    state = kernel.init({"a": jnp.zeros(()), "b": jnp.zeros(2)})

    def step(state, key):
        state, _ = kernel.step(key, state)
        return state, state.position

    _, positions = jax.lax.scan(step, state, jax.random.split(jax.random.key(0), 200))
    draws = jax.tree.map(lambda array: array[None], positions)
    scores = log_density_scores(draws, log_density=log_density_of_dict, progressbar=False)

    np.testing.assert_allclose(
        scores.gradient, scores.unconstrained_draw * np.array([-4.0, -1.0, -1.0]), rtol=1e-12
    )
