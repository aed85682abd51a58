import numpy as np
import pytest

from az_cv.families import operators as stein


@pytest.fixture
def points(rng):
    return rng.normal(size=(50, 3)), rng.normal(size=(50, 3))


def test_langevin_of_a_linear_field_has_constant_divergence(points, rng):
    x, s = points
    matrix = rng.normal(size=(3, 3))
    by_jax = np.asarray(stein.langevin(lambda z: matrix @ z)(x, s))
    by_hand = np.trace(matrix) + np.einsum("nd,nd->n", x @ matrix.T, s)
    np.testing.assert_allclose(by_jax, by_hand, rtol=2e-5)


def test_scalar_langevin_of_a_quadratic_form(points, rng):
    x, s = points
    matrix = rng.normal(size=(3, 3))
    matrix = matrix + matrix.T
    by_jax = np.asarray(stein.scalar_langevin(lambda z: 0.5 * z @ matrix @ z)(x, s))
    by_hand = np.trace(matrix) + np.einsum("nd,nd->n", x @ matrix, s)
    np.testing.assert_allclose(by_jax, by_hand, rtol=2e-5, atol=1e-5)


def test_several_functions_at_once(points):
    x, s = points
    import jax.numpy as jnp

    fields = stein.langevin(lambda z: jnp.stack([z, z**2]))(x, s)
    potentials = stein.scalar_langevin(lambda z: jnp.stack([z.sum(), (z**2).sum()]))(x, s)
    assert fields.shape == potentials.shape == (50, 2)
    np.testing.assert_allclose(fields[:, 0], 3 + (x * s).sum(axis=1), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(potentials[:, 0], s.sum(axis=1), rtol=2e-5, atol=1e-5)


def test_scalar_langevin_is_langevin_of_the_gradient(points):
    import jax
    import jax.numpy as jnp

    x, s = points

    def potential(z):
        return jnp.sin(z).prod() + (z**3).sum()

    np.testing.assert_allclose(
        stein.scalar_langevin(potential)(x, s),
        stein.langevin(jax.grad(potential))(x, s),
        rtol=2e-4,
        atol=1e-4,
    )
