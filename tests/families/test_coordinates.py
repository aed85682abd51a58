"""Polynomials in chosen coordinates: what they move, where they are exact, how they are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.special

import az_cv
from az_cv import Ensemble, Exact, Kernel, Polynomial
from az_cv.engine.engine import run_engine
from az_cv.engine.whitening import fit_whitening
from az_cv.testing import Gaussian, LogisticRegression


def correlated(rng, d):
    factor = rng.normal(size=(d, d)) + 2 * np.eye(d)
    return Gaussian(factor @ factor.T, mean=rng.normal(size=d))


@pytest.mark.parametrize("folds", ["auto", "chain"])
def test_second_moments_of_chosen_coordinates_are_exact_on_a_gaussian(folds, rng):
    """However they correlate with coordinates that were not chosen."""
    target = correlated(rng, 20)
    x = target.sample(rng, 800).reshape(4, 200, 20)
    s = target.score(x.reshape(-1, 20)).reshape(x.shape)
    outputs = np.stack([x[..., 11], x[..., 5] * x[..., 11], x[..., 5] ** 2, x[..., 0]], axis=-1)
    estimate = run_engine(
        x, s, outputs, family=Polynomial(2, coordinates=[5, 11]), folds=folds
    ).estimate
    second = target.covariance + np.outer(target.mean, target.mean)
    truth = [target.mean[11], second[5, 11], second[5, 5]]
    scale = outputs.std(axis=(0, 1))
    np.testing.assert_allclose(estimate.mean[:3] / scale[:3], truth / scale[:3], atol=1e-10)
    assert (estimate.adjusted[..., :3].std(axis=(0, 1)) / scale[:3] < 1e-10).all()
    # Of a coordinate that was not chosen it knows little, and does no harm.
    assert estimate.mcse[3] > 0.3 * estimate.plain_mcse[3]
    assert estimate.mcse[3] <= estimate.plain_mcse[3]


def test_a_sum_is_exact_for_every_mean_and_for_chosen_squares(rng):
    target = correlated(rng, 12)
    x = target.sample(rng, 400).reshape(4, 100, 12)
    s = target.score(x.reshape(-1, 12)).reshape(x.shape)
    family = Ensemble([Polynomial(1), Polynomial(2, coordinates=[3])])
    outputs = np.concatenate([x, x[..., 3:4] ** 2], axis=-1)
    estimate = run_engine(x, s, outputs, family=family, solver=Exact(ridge=1e-13)).estimate
    truth = [*target.mean, target.covariance[3, 3] + target.mean[3] ** 2]
    np.testing.assert_allclose(estimate.mean, truth, atol=1e-9)


def test_images_are_those_of_functions_of_the_original_coordinates(rng):
    """Moved by ``A = cov(s)^(-1/2)``: the image of u is ``tr(A hess u) + (A s) . grad u``."""
    target = LogisticRegression(d=3)
    x = target.sample(rng, 300)
    s = target.score(x)
    whitening = fit_whitening(x)
    z, t = whitening.draws(x), whitening.scores(s)
    matrix = np.linalg.inv(scipy.linalg.sqrtm(np.cov(t, rowvar=False)))
    chosen = [2, 0]
    family = Polynomial(3, degree_scale=1.0, coordinates=chosen).placed(whitening.scale, t)
    features = family.features(z, t)

    def image(power, point, score):
        def monomial(z):
            return jnp.prod((z @ whitening.scale.T)[jnp.array(chosen)] ** power)

        second = jnp.sum(matrix * jax.hessian(monomial)(point))
        return second + jax.grad(monomial)(point) @ (matrix @ score)

    powers = [(a, b) for a in range(4) for b in range(4) if 1 <= a + b <= 3]
    with jax.enable_x64(True):
        over_draws = jax.vmap(image, (None, 0, 0))
        images = jax.jit(jax.vmap(over_draws, (0, None, None), out_axes=1))(
            jnp.array(powers, dtype=float), jnp.array(z), jnp.array(t)
        )
        images = np.asarray(images)
    assert features.shape == images.shape == (300, 9)
    fitted = features @ np.linalg.lstsq(features, images, rcond=None)[0]
    np.testing.assert_allclose(fitted, images, atol=1e-8 * np.abs(images).max())


def test_the_dual_of_chosen_coordinates_spans_what_their_features_span(rng):
    x, s = rng.normal(size=(40, 5)), rng.normal(size=(40, 5))
    family = Polynomial(3, degree_scale=1.0, coordinates=[4, 1])
    features, gram = family.features(x, s), family.gram(x, s, x, s)
    np.testing.assert_allclose(
        features, Polynomial(3, degree_scale=1.0).features(*(a[:, [4, 1]] for a in (x, s)))
    )
    assert np.linalg.matrix_rank(gram, tol=1e-8) == family.num_features(5) == 9
    projection = features @ np.linalg.lstsq(features, gram, rcond=None)[0]
    np.testing.assert_allclose(projection, gram, atol=1e-8 * np.abs(gram).max())


def test_all_coordinates_are_the_dense_family(rng):
    target = LogisticRegression(d=3)
    x = target.sample(rng, 400).reshape(4, 100, 3)
    s = target.score(x.reshape(-1, 3)).reshape(x.shape)
    for few in (x[:, :5], x):
        n = few.shape[1]
        scores = s[:, :n]
        found = [
            run_engine(few, scores, few**2, family=family, solver=Exact(ridge=1e-12)).estimate
            for family in (Polynomial(1), Polynomial(1, coordinates=[1, 2, 0]))
        ]
        np.testing.assert_allclose(found[0].mean, found[1].mean, rtol=1e-6)


@pytest.mark.parametrize("together", [False, True])
def test_names_of_unconstrained_parameters_are_understood(together):
    data = az_cv.load_eight_schools().isel(draw=slice(None, 100))
    by_name = Polynomial(3, coordinates=["mu", "tau_log__"])
    by_position = Polynomial(3, coordinates=[0, 1])
    if together:
        by_name, by_position = (Ensemble([Polynomial(1), p]) for p in (by_name, by_position))
    names = list(az_cv.scores(data)["unconstrained_parameter"].values)
    assert (names.index("mu"), names.index("tau_log__")) == (0, 1)
    tables = [az_cv.summary(data, family=f, attach=False) for f in (by_name, by_position)]
    np.testing.assert_array_equal(tables[0]["mean"], tables[1]["mean"])
    assert "order 3 in 2 coordinates" in tables[0].attrs["family"]


def test_coordinates_that_are_none_are_refused(rng):
    data = az_cv.load_eight_schools().isel(draw=slice(None, 50))
    with pytest.raises(ValueError, match=r"coordinates names \['nu'\], which are not among the un"):
        az_cv.summary(data, family=Polynomial(2, coordinates=["nu"]))
    x = rng.normal(size=(4, 50, 2))
    for wrong in ([2], ["mu"], [-1]):
        with pytest.raises(ValueError, match="coordinates must be positions from 0 to 1, or names"):
            run_engine(x, -x, x, family=Polynomial(2, coordinates=wrong))
    for wrong in ("mu", [], [1, 1]):
        with pytest.raises(ValueError, match="coordinates must be a list of different parameters"):
            Polynomial(2, coordinates=wrong)


def test_coordinates_that_depend_on_each_other_count_once(rng):
    x = rng.normal(size=(4, 100, 2))
    repeated = np.concatenate([x, 2 * x[..., :1], np.ones((4, 100, 1))], axis=-1)
    s = np.concatenate([-x, np.zeros((4, 100, 2))], axis=-1)
    with pytest.warns(UserWarning, match="vary in 2 of 4"):
        estimate = run_engine(repeated, s, x**2, family=Polynomial(2, coordinates=[0, 2])).estimate
    assert abs(estimate.mean[0] - 1) < 1e-10
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="are constant over the draws"):
        run_engine(repeated, s, x, family=Polynomial(2, coordinates=[3]))


def test_members_without_coordinates_stay_as_they_are():
    family = Ensemble([Kernel(), Polynomial(2)])
    assert family.among(["mu"]) == family.placed(np.eye(2), np.eye(2)) == family


def test_without_interactions_no_coordinate_comes_first():
    """In Cholesky coordinates the first parameters would have other errors than the last ones."""
    rng = np.random.default_rng(0)
    x = np.log(rng.gamma(3.0, size=(4, 100, 6)))
    s, turn = 3 - np.exp(x), rng.normal(size=(6, 6))
    x, s = x @ turn, s @ np.linalg.inv(turn).T
    family = Polynomial(order=2, interactions=False)
    forwards = run_engine(x, s, x, family=family).estimate
    backwards = run_engine(x[..., ::-1], s[..., ::-1], x, family=family).estimate
    np.testing.assert_allclose(backwards.mean, forwards.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(backwards.mcse, forwards.mcse, rtol=1e-6)


def test_squares_without_interactions_have_right_errors():
    """RMS z of these means is 2.0 in coordinates of the Cholesky factor of the draws themselves."""
    z = []
    for seed in range(6):
        x = np.log(np.random.default_rng(seed).gamma(3.0, size=(4, 100, 20)))
        family = Polynomial(order=2, interactions=False)
        estimate = run_engine(x, 3 - np.exp(x), x, family=family).estimate
        z.append((estimate.mean - scipy.special.digamma(3.0)) / estimate.mcse)
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.3
