"""Features of the linear families as JAX functions, for training on minibatches.

The formulas are those of the NumPy families; here the parameters of a kernel may be traced, so that
they can be trained together with the coefficients. Families of other kinds are called back in
NumPy, minibatch by minibatch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.families.inner_product import first_order, second_order

if TYPE_CHECKING:
    from collections.abc import Callable

    from az_cv.families.kernel import Kernel
    from az_cv.families.polynomial import Polynomial

    Hyper = dict[str, Any]


def polynomial_features(family: Polynomial, d: int) -> Callable[[Any, Any], Any]:
    """Return a function from draws and scores (n, d) to the features (n, p) of the family.

    A multi-index is stored as slots (coordinate, power), padded with power zero.
    """
    import jax.numpy as jnp

    indices = family.multi_indices(d)
    slots = max(len(set(index)) for index in indices)
    coordinates = np.zeros((len(indices), slots), dtype=int)
    powers = np.zeros((len(indices), slots), dtype=int)
    norms = np.empty(len(indices))
    for row, index in enumerate(indices):
        distinct = list(dict.fromkeys(index))
        counts = [index.count(j) for j in distinct]
        coordinates[row, : len(distinct)], powers[row, : len(distinct)] = distinct, counts
        factorials = math.prod(math.factorial(a) for a in counts)
        norms[row] = family.weight(len(index)) / (len(index) * math.sqrt(factorials))

    turned = family.axes is not None or family.coordinates is not None
    axes = family.axes_in(d) if turned else None

    def features(x: Any, s: Any) -> Any:
        if axes is not None:
            x, s = x @ axes.of_draws.T, s @ axes.of_scores.T
        hermite = [jnp.ones_like(x), x]
        for k in range(1, family.order):
            hermite.append(x * hermite[k] - k * hermite[k - 1])
        # For every power a: He_a, and its image a (a - 1) He_{a-2} + a He_{a-1} s.
        values = jnp.stack(hermite, axis=2)
        images = [jnp.zeros_like(x)]
        for a in range(1, family.order + 1):
            second = a * (a - 1) * hermite[a - 2] if a > 1 else 0.0
            images.append(second + a * hermite[a - 1] * s)
        stein = jnp.stack(images, axis=2)
        total = jnp.zeros((len(x), len(indices)), x.dtype)
        for k in range(slots):
            term = stein[:, coordinates[:, k], powers[:, k]]
            for other in range(slots):
                if other != k:
                    term = term * values[:, coordinates[:, other], powers[:, other]]
            total = total + term
        return total * jnp.asarray(norms, x.dtype)

    return features


def called_back(function: Callable[..., Any], columns: int) -> Callable[..., Any]:
    """Return a NumPy function of draws, scores and more, with so many columns, for traced code.

    Calls back run in a thread of JAX's own, which rounds doubles to single precision: they travel
    as pairs of integers.
    """
    import jax

    def on_the_host(*pairs: Any) -> np.ndarray:
        arrays = (np.ascontiguousarray(pair).view(np.float64)[..., 0] for pair in pairs)
        values = np.ascontiguousarray(function(*arrays), dtype=np.float64)
        return values.view(np.uint32).reshape(*values.shape, 2)

    def traced(x: Any, *others: Any) -> Any:
        pairs = [jax.lax.bitcast_convert_type(array, np.uint32) for array in (x, *others)]
        shape = jax.ShapeDtypeStruct((x.shape[0], columns, 2), np.uint32)
        found = jax.pure_callback(on_the_host, shape, *pairs)
        return jax.lax.bitcast_convert_type(found, np.float64)

    return traced


def has_closed_form(kernel: Kernel) -> bool:
    """Tell whether a kernel can be traced; Bessel functions of other orders cannot."""
    return kernel.base != "matern" or (2 * kernel.nu) % 2 == 1


def kernel_hyper(kernel: Kernel) -> Hyper:
    """Return the logarithms of the trainable parameters of a kernel."""
    hyper = {"log_length_scale": math.log(float(kernel.length_scale))}
    if kernel.base == "paper":
        hyper["log_alpha_1"] = math.log(kernel.alpha_1)
    return hyper


def stein_kernel(kernel: Kernel, hyper: Hyper, x: Any, s: Any, y: Any, t: Any) -> Any:
    """Return the Stein kernel matrix between `x` and `y` with the parameters in `hyper`."""
    import jax.numpy as jnp

    length = jnp.exp(hyper["log_length_scale"])
    if kernel.base == "anova":
        return _anova_first_order(x, s, y, t, length, kernel.interaction)
    assemble = first_order if kernel.operator == "langevin" else second_order
    sums = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)
    r2 = jnp.maximum(sums - 2 * x @ y.T, 0.0)
    if kernel.base == "paper":
        partial = _paper_partials(sums, r2, jnp.exp(hyper["log_alpha_1"]), length)
        return assemble(x, s, y, t, partial)
    order = 2 if kernel.operator == "langevin" else 4
    derivatives = _radial_derivatives(kernel, r2, length, order)
    # r^2 = a + b - 2 p
    return assemble(x, s, y, t, lambda i, j: (-2.0) ** j * derivatives[i + j])


def _anova_first_order(x: Any, s: Any, y: Any, t: Any, length: Any, interaction: float) -> Any:
    delta, s = x[:, None] - y, s[:, None]
    k = 1 / (1 + (delta / length) ** 2)
    stein = k * (s * t + 2 * k / length**2 * (4 * k - 3 + (s - t) * delta))
    factors = 1 + interaction * k
    return (stein / factors).sum(axis=2) * factors.prod(axis=2)


def _radial_derivatives(kernel: Kernel, r2: Any, length: Any, order: int) -> list[Any]:
    """Return ``phi`` and its derivatives with respect to ``r^2`` up to `order`."""
    import jax.numpy as jnp

    match kernel.base:
        case "imq" | "rational_quadratic":
            factor = 1.0 if kernel.base == "imq" else 2 * kernel.power
            width = factor * length**2
            inverse = width / (r2 + width)
            derivatives = [inverse**kernel.power]
            for j in range(order):
                derivatives.append(-(kernel.power + j) / width * inverse * derivatives[-1])
            return derivatives
        case "gaussian":
            rate = -1 / (2 * length**2)
            return [rate**j * jnp.exp(rate * r2) for j in range(order + 1)]
        case _:
            return _matern_derivatives(kernel.nu, r2, length, order)


def _matern_derivatives(nu: float, r2: Any, length: Any, order: int) -> list[Any]:
    import jax.numpy as jnp

    # The floor keeps the derivative of the square root finite where a draw meets a centre.
    z = jnp.maximum(jnp.sqrt(jnp.maximum(2 * nu * r2, 1e-12)) / length, 1e-6)
    norm = 2 ** (1 - nu) / math.gamma(nu)

    def scaled_bessel(v: float) -> Any:
        here = jnp.exp(-z) * math.sqrt(math.pi / 2)
        above = (1 + z) * here
        step = 0.5
        while step < abs(v):
            here, above = above, 2 * (step + 1) * above + z**2 * here
            step += 1
        return here if v > 0 else z ** (2 * v) * here

    return [norm * (-nu / length**2) ** j * scaled_bessel(nu - j) for j in range(order + 1)]


def _paper_partials(sums: Any, r2: Any, alpha_1: Any, length: Any) -> Callable[[int, int], Any]:
    import jax.numpy as jnp

    decay = 1 / (1 + alpha_1 * sums)
    rate = -1 / (2 * length**2)
    gaussian = jnp.exp(rate * r2)

    def partial(i: int, j: int) -> Any:
        terms = [
            math.comb(i, k)
            * math.factorial(k)
            * (-alpha_1) ** k
            * decay ** (k + 1)
            * rate ** (i - k)
            for k in range(i + 1)
        ]
        return sum(terms) * gaussian * (-2 * rate) ** j

    return partial
