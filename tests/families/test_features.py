"""Every family's control variates: zero mean on every target, derivatives as JAX sees them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from az_cv import Ensemble, Kernel, Polynomial
from az_cv.engine.whitening import fit_whitening
from az_cv.families.kernel import BASES, median_length_scale
from az_cv.families.operators import OPERATORS

KERNELS = [
    Kernel(base, operator, length_scale=1.7, nu=nu, exponent=exponent)
    for operator in OPERATORS
    for base, nu, exponent in [
        ("imq", 2.5, 0.5),
        ("imq", 2.5, 1.3),
        ("gaussian", 2.5, 0.5),
        ("rational_quadratic", 2.5, 2.0),
        ("matern", 2.5, 0.5),
        ("matern", 3.5, 0.5),
        ("matern", 4.7, 0.5),
        ("paper", 2.5, 0.5),
        ("anova", 2.5, 0.5),
    ]
    if base != "anova" or operator == "langevin"
]


def base_kernel(kernel):
    """Return the base kernel as a JAX function of two points."""
    length, b = kernel.length_scale, kernel.power

    def k(x, y):
        r2 = ((x - y) ** 2).sum()
        match kernel.base:
            case "imq":
                return (1 + r2 / length**2) ** -b
            case "rational_quadratic":
                return (1 + r2 / (2 * b * length**2)) ** -b
            case "gaussian":
                return jnp.exp(-r2 / (2 * length**2))
            case "paper":
                decay = 1 + kernel.alpha_1 * ((x**2).sum() + (y**2).sum())
                return jnp.exp(-r2 / (2 * length**2)) / decay
            case "matern":
                z = jnp.sqrt(2 * kernel.nu * r2) / length
                if kernel.nu == 2.5:
                    return (1 + z + z**2 / 3) * jnp.exp(-z)
                return (1 + z + 2 * z**2 / 5 + z**3 / 15) * jnp.exp(-z)

    return k


def stein_kernel(kernel):
    if kernel.base == "anova":
        return anova_stein_kernel(kernel)
    k = base_kernel(kernel)

    def first_order(x, s, y, t):
        mixed = jnp.trace(jax.jacfwd(jax.grad(k, 1), 0)(x, y))
        return mixed + s @ jax.grad(k, 1)(x, y) + t @ jax.grad(k, 0)(x, y) + k(x, y) * (s @ t)

    def second_order(x, s, y, t):
        def in_y(x):
            laplacian = jnp.trace(jax.hessian(lambda w: k(x, w))(y))
            return laplacian + t @ jax.grad(k, 1)(x, y)

        return jnp.trace(jax.hessian(in_y)(x)) + s @ jax.grad(in_y)(x)

    return first_order if kernel.operator == "langevin" else second_order


def anova_stein_kernel(kernel):
    """Return the sum of the Stein kernels of the components, each a scalar kernel."""

    def component(x, y, j):
        k = 1 / (1 + (x - y) ** 2 / kernel.length_scale**2)
        return k[j] * jnp.delete(1 + kernel.interaction * k, j).prod()

    def first_order(x, s, y, t):
        total = 0.0
        for j in range(len(x)):
            k, in_x, in_y = (
                component(x, y, j),
                jax.grad(component, 0)(x, y, j)[j],
                jax.grad(component, 1)(x, y, j)[j],
            )
            mixed = jax.jacfwd(jax.grad(component, 1), 0)(x, y, j)[j, j]
            total += mixed + s[j] * in_y + t[j] * in_x + k * s[j] * t[j]
        return total

    return first_order


# Matern kernels of other than half-integer smoothness have no closed form to differentiate; the
# zero-mean test covers them.
CLOSED_FORM = [kernel for kernel in KERNELS if (2 * kernel.nu) % 2 == 1]


@pytest.mark.parametrize(
    "kernel", CLOSED_FORM, ids=lambda k: f"{k.base}-{k.nu}-{k.exponent}-{k.operator}"
)
def test_stein_kernels_agree_with_automatic_differentiation(kernel, rng):
    x, s, y, t = (rng.normal(size=(7, 3)) for _ in range(4))
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        function = jax.jit(
            jax.vmap(jax.vmap(stein_kernel(kernel), (None, None, 0, 0)), (0, 0, None, None))
        )
        expected = np.asarray(function(x, s, y, t))
    np.testing.assert_allclose(kernel.gram(x, s, y, t), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_polynomial_features_agree_with_automatic_differentiation(order, rng):
    from numpy.polynomial.hermite_e import hermeval

    x, s = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    family = Polynomial(order, degree_scale=1.0)
    step = 1e-4

    def potential(point, powers):
        return np.prod([hermeval(v, np.eye(order + 1)[p]) for v, p in zip(point, powers)])

    for column, index in enumerate(family.multi_indices(3)):
        powers = [index.count(j) for j in range(3)]
        norm = len(index) * np.sqrt(
            np.prod([float(jnp.prod(jnp.arange(1, p + 1))) for p in powers])
        )
        for i in range(5):
            value = 0.0
            for j in range(3):
                shift = step * np.eye(3)[j]
                up, mid, down = (potential(x[i] + k * shift, powers) for k in (1, 0, -1))
                value += (up - 2 * mid + down) / step**2 + s[i, j] * (up - down) / (2 * step)
            assert family.features(x, s)[i, column] == pytest.approx(
                value / norm, rel=1e-4, abs=1e-5
            )


def test_polynomial_dual_spans_what_the_features_span(rng):
    x, s = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    family = Polynomial(3, degree_scale=1.0)
    features, gram = family.features(x, s), family.gram(x, s, x, s)
    assert np.linalg.matrix_rank(gram, tol=1e-8) == features.shape[1] == 9
    projection = features @ np.linalg.lstsq(features, gram, rcond=None)[0]
    np.testing.assert_allclose(projection, gram, atol=1e-8 * np.abs(gram).max())


EVERY_FAMILY = [
    Polynomial(1),
    Polynomial(2),
    Polynomial(3),
    Polynomial(4, interactions=False),
    Polynomial(3, coordinates=[0]),
    *KERNELS,
    Kernel(centres=20),
    Ensemble([Kernel("paper", length_scale="median"), Polynomial(2)]),
]


@pytest.mark.parametrize("family", EVERY_FAMILY, ids=repr)
def test_features_average_to_zero_within_five_standard_errors(family, target, rng):
    x = target.sample(rng, 4000)
    whitening = fit_whitening(x)
    x, s = whitening.draws(x), whitening.scores(target.score(x))
    bound = family.variants(x, s)[0]
    if bound.num_features(x.shape[1]) is None:
        centres = rng.choice(len(x), 5, replace=False)
        values = bound.gram(x, s, x[centres], s[centres])
        values = np.delete(values, centres, axis=0)  # k0(y, y) is large by construction
    else:
        values = bound.features(x, s)
    z = values.mean(axis=0) / (values.std(axis=0, ddof=1) / np.sqrt(len(values)))
    assert np.abs(z).max() < 5


def test_median_heuristic_is_the_papers(rng):
    x = rng.normal(size=(50, 3))
    pairs = [((a - b) ** 2).sum() for i, a in enumerate(x) for b in x[i + 1 :]]
    assert median_length_scale(x) == pytest.approx(np.sqrt(np.median(pairs) / 2))


def test_nystrom_features_reproduce_the_kernel_at_the_centres(rng):
    x, s = rng.normal(size=(30, 2)), rng.normal(size=(30, 2))
    kernel = Kernel(length_scale=1.0, centres=30).variants(x, s)[0]
    features = kernel.features(x, s)
    np.testing.assert_allclose(features @ features.T, kernel.gram(x, s, x, s), atol=1e-7)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Kernel("cubic"), r"base 'cubic' is unknown. Choose from \['imq'"),
        (lambda: Kernel(operator="third"), "operator 'third' is unknown"),
        (lambda: Kernel(length_scale=-1.0), "length_scale must be positive"),
        (lambda: Kernel("anova", "scalar_langevin"), "anova needs operator='langevin'"),
        (lambda: Kernel("anova", interaction=-1.0), "interaction must not be negative"),
        (lambda: Kernel("matern", nu=1.5), "matern needs nu >= 2.5"),
        (lambda: Kernel(centres=0), "centres must be a positive number"),
        (lambda: Polynomial(0), "order must be an integer from 1 to 12; it is 0"),
        (lambda: Polynomial(2, degree_scale=0.0), "degree_scale must be positive"),
        (lambda: Ensemble([]), "needs at least one member"),
        (lambda: Ensemble([Kernel()], semi_exact=True), "semi_exact needs a Polynomial"),
    ],
)
def test_impossible_families_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_every_base_is_covered_here():
    assert {kernel.base for kernel in KERNELS} == set(BASES)
