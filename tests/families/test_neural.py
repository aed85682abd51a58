"""Networks: closed-form operators against automatic differentiation, and Stein's identity."""

import equinox as eqx
import jax
import numpy as np
import pytest

from az_cv.families import NeuralNetwork, Potential
from az_cv.families.neural import ACTIVATIONS
from az_cv.families.operators import langevin, scalar_langevin

D, Q, N = 4, 3, 6


def random_params(network, d=D, q=Q, seed=0):
    """Return parameters with nothing left at zero."""
    params = network.init(jax.random.key(seed), d, q)
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        structure, [np.asarray(leaf) + 0.5 * rng.normal(size=leaf.shape) for leaf in leaves]
    )


def hidden(params, x, activation):
    for layer in params["layers"]:
        x = activation(layer["weights"] @ x + layer["biases"])
    return x


def smooth(name):
    return {
        "silu": jax.nn.silu,
        "tanh": jax.numpy.tanh,
        "softplus": jax.nn.softplus,
        "gelu": lambda z: jax.nn.gelu(z, approximate=False),
    }[name]


@pytest.mark.parametrize(
    ("widths", "activation"),
    [*[((7, 5), activation) for activation in ACTIVATIONS], ((7,), "silu"), ((6, 5, 4), "tanh")],
)
def test_potentials_agree_with_automatic_differentiation(widths, activation, rng):
    network = NeuralNetwork(widths, activation, "scalar_langevin")
    x, s = rng.normal(size=(2, N, D))
    with jax.enable_x64(True):
        params = random_params(network)
        ours = jax.jit(network.apply)(params, x, s)

        def potential(point):
            values = hidden(params, point, smooth(activation)) @ params["outputs"]
            return values + point @ params["skip"]

        reference = jax.jit(scalar_langevin(potential))(x, s)
    np.testing.assert_allclose(ours, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("widths", [(7,), (7, 5)])
def test_vector_fields_agree_with_automatic_differentiation(widths, rng):
    network = NeuralNetwork(widths, "silu", "langevin")
    x, s = rng.normal(size=(2, N, D))
    with jax.enable_x64(True):
        params = random_params(network)
        ours = network.apply(params, x, s)

        def field(point):
            units = hidden(params, point, jax.nn.silu)
            shared = (units[:, None] * params["outputs"]).T @ params["directions"]
            return shared + params["skip"].T

        reference = langevin(field)(x, s)
    np.testing.assert_allclose(ours, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("operator", ["langevin", "scalar_langevin"])
def test_products_for_squares_agree_with_automatic_differentiation(operator, rng):
    network = NeuralNetwork((7,), operator=operator)
    x, s = rng.normal(size=(2, N, D))
    pairs = {
        "directions": rng.normal(size=(D, 1)),
        "squares": np.array([2]),
        "partners": np.array([0]),
    }
    with jax.enable_x64(True):
        params = {**random_params(network), "factors": np.array([0.7])}
        ours = network.apply_paired(params, x, s, pairs)

        def potential(point):
            values = hidden(params, point, jax.nn.silu) @ params["outputs"]
            return values + point @ params["skip"]

        def field(point):
            fields = jax.jacfwd(potential)(point)
            if operator == "langevin":
                units = hidden(params, point, jax.nn.silu)[:, None] * params["outputs"]
                fields = units.T @ params["directions"] + params["skip"].T
            product = 0.7 * (point @ pairs["directions"][:, 0]) * fields[0]
            return fields.at[2].add(product)

        reference = langevin(field)(x, s)
    np.testing.assert_allclose(ours, reference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "network",
    [NeuralNetwork((8, 8), operator="scalar_langevin"), NeuralNetwork((8,), operator="langevin")],
    ids=["potential", "vector field"],
)
def test_control_variates_average_to_zero(network, target):
    x = target.sample(np.random.default_rng(3), 40_000)
    s = target.score(x)
    scale = x.std(axis=0)
    x, s = (x - x.mean(axis=0)) / scale, s * scale
    params = random_params(network, d=x.shape[1], q=2)
    g = np.asarray(jax.jit(network.apply)(params, x, s), dtype=float)
    assert (np.abs(g.mean(axis=0)) < 5 * g.std(axis=0) / np.sqrt(len(g))).all()


def test_relu_would_be_biased_and_is_refused(rng):
    # The mass that automatic differentiation misses, on one unit: E[L relu(x)] = -density at 0.
    x = rng.normal(size=(200_000, 1))
    g = np.asarray(scalar_langevin(lambda p: jax.nn.relu(p).sum())(x, -x))
    assert g.mean() < -0.35
    with pytest.raises(ValueError, match="'relu' has a kink"):
        NeuralNetwork(activation="relu")
    relu = Potential.from_module(
        lambda d, q, rng_key: eqx.nn.MLP(d, q, 4, 1, jax.nn.relu, key=rng_key)
    )
    with pytest.raises(ValueError, match="kink"):
        relu.init(jax.random.key(0), 2, 1)


def test_a_function_and_an_equinox_module_are_families(rng):
    x, s = rng.normal(size=(2, N, D))

    def build(d, q, rng_key):
        return eqx.nn.MLP(d, q, 8, 2, jax.nn.silu, key=rng_key)

    module = build(D, Q, jax.random.key(1))
    family = Potential.from_module(build)
    ours = family.apply(family.init(jax.random.key(1), D, Q), x, s)
    np.testing.assert_allclose(ours, scalar_langevin(module)(x, s), rtol=1e-4, atol=1e-4)

    quadratic = Potential(
        lambda params, x: params["a"] @ x**2, lambda key, d, q: {"a": np.ones((q, d))}
    )
    g = quadratic.apply(quadratic.init(jax.random.key(0), D, Q), x, s)
    expected = 2 * D + 2 * (x * s).sum(axis=1)
    np.testing.assert_allclose(g, np.tile(expected[:, None], Q), rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: NeuralNetwork(activation="sine"), "activation 'sine' is unknown"),
        (lambda: NeuralNetwork(operator="curl"), "operator 'curl' is unknown"),
        (lambda: NeuralNetwork(widths=()), "widths must be positive"),
        (lambda: NeuralNetwork(networks=0), "networks must be at least 1"),
        (lambda: Potential(None, None, operator="curl"), "operator 'curl' is unknown"),
    ],
)
def test_impossible_networks_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
