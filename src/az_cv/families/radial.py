"""Stein kernels from radial base kernels ``k = phi(r^2)``.

Derivatives of ``phi`` are with respect to ``r^2``; ``delta = x - y``; ``s`` and ``t`` are the
scores at ``x`` and ``y``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import scipy.special

from az_cv.families.arrays import namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Float

    Column = Float[np.ndarray, " n"]
    Matrix = Float[np.ndarray, "n d"]
    Gram = Float[np.ndarray, "n m"]


def squared_distances(x: Matrix, y: Matrix) -> Gram:
    """Return squared Euclidean distances between the rows of `x` and `y`."""
    xp = namespace(x)
    own, other = xp.einsum("nd,nd->n", x, x), xp.einsum("nd,nd->n", y, y)
    return _joint_product([x, -2 * y], [own, other]).clip(0)


def _joint_product(matrices: Sequence[Matrix], columns: Sequence[Column]) -> Gram:
    """Return products of the rows of pairs of matrices, plus the first column and the second row.

    One product of wider matrices takes less time than passes over large arrays.
    """
    xp, (own, other) = namespace(matrices[0]), columns
    left = xp.column_stack([*matrices[::2], own, xp.ones_like(own)])
    right = xp.column_stack([*matrices[1::2], xp.ones_like(other), other])
    return left @ right.T


def power_derivatives(r2: Gram, width: float, exponent: float, order: int) -> list[Gram]:
    """Return ``(1 + r^2 / width)^-exponent`` and its derivatives up to `order`."""
    inverse = width / (r2 + width)
    # A square root and products are many times faster than a power.
    first = namespace(r2).sqrt(inverse) if exponent % 1 == 0.5 else inverse ** (exponent % 1)
    for _ in range(int(exponent)):
        first *= inverse
    derivatives = [first]
    for j in range(order):
        derivative = derivatives[-1] * inverse
        derivative *= -(exponent + j) / width
        derivatives.append(derivative)
    return derivatives


def gaussian_derivatives(r2: Gram, length: float, order: int) -> list[Gram]:
    """Return ``exp(-r^2 / (2 length^2))`` and its derivatives up to `order`."""
    rate = -1 / (2 * length**2)
    k = namespace(r2).exp(rate * r2)
    return [k * rate**j for j in range(order + 1)]


def matern_derivatives(r2: Gram, nu: float, length: float, order: int) -> list[Gram]:
    """Return the Matern kernel of smoothness `nu` and its derivatives up to `order`."""
    # With z = sqrt(2 nu) r / l and G_v(z) = z^v K_v(z): d G_v / d r^2 = -(nu / l^2) G_{v-1}.
    # The floor keeps G_v finite at r = 0 for v < 0; there it is always multiplied by powers of r^2.
    z = (namespace(r2).sqrt(2 * nu * r2) / length).clip(1e-10)
    norm = 2 ** (1 - nu) / math.gamma(nu)
    return [norm * (-nu / length**2) ** j * _scaled_bessel(z, nu - j) for j in range(order + 1)]


def _scaled_bessel(z: Gram, v: float) -> Gram:
    """Return ``z^v K_v(z)``, in closed form for half-integer orders."""
    if (2 * v) % 2 != 1:
        return z**v * scipy.special.kv(v, z)
    here = namespace(z).exp(-z) * math.sqrt(math.pi / 2)
    above = (1 + z) * here
    order = 0.5
    while order < abs(v):  # G_{v+1} = 2 v G_v + z^2 G_{v-1}
        here, above = above, 2 * (order + 1) * above + z**2 * here
        order += 1
    return here if v > 0 else z ** (2 * v) * here  # K_{-v} = K_v


def radial_first_order(
    r2: Gram, x: Matrix, s: Matrix, y: Matrix, t: Matrix, derivatives: list[Gram]
) -> Gram:
    """Return ``div_x div_y k + s . grad_y k + t . grad_x k + k s . t``.

    The last array in `derivatives` is overwritten: this is the inner loop of every kernel fit.
    """
    phi, first, second = derivatives
    return with_scores(x, s, y, t, phi, first, curvature(r2, second))


def curvature(r2: Gram, second: Gram) -> Gram:
    """Return what the first-order operator makes of second derivatives, which are overwritten."""
    second *= r2
    second *= -4
    return second


def with_scores(
    x: Matrix, s: Matrix, y: Matrix, t: Matrix, phi: Gram, first: Gram, curvature: Gram
) -> Gram:
    """Return the first-order kernel from ``phi``, its derivative, and what needs no scores."""
    xp = namespace(x)
    # 2 (delta . (t - s) - d), everything that multiplies phi'.
    own = -2 * xp.einsum("nd,nd->n", x, s)
    other = -2 * (xp.einsum("nd,nd->n", y, t) + x.shape[1])
    result = _joint_product([2 * x, t, 2 * s, y], [own, other])
    result *= first
    result += curvature
    moved = s @ t.T
    moved *= phi
    result += moved
    return result


def radial_second_order(
    r2: Gram, x: Matrix, s: Matrix, y: Matrix, t: Matrix, derivatives: list[Gram]
) -> Gram:
    """Return ``L_x L_y k`` for the second-order operator."""
    d, xp = x.shape[1], namespace(x)
    _, first, second, third, fourth = derivatives
    delta_s = xp.einsum("nd,nd->n", x, s)[:, None] - s @ y.T
    delta_t = x @ t.T - xp.einsum("nd,nd->n", y, t)
    # psi, the Laplacian of k as a function of r^2: its first derivative, and r^2 times its second.
    psi1 = (2 * d + 4) * second + 4 * (r2 * third)
    r2_psi2 = (2 * d + 8) * (r2 * third) + 4 * (r2**2 * fourth)
    return (
        2 * d * psi1
        + 4 * r2_psi2
        + 2 * psi1 * (delta_s - delta_t)
        - 4 * second * delta_s * delta_t
        - 2 * first * (s @ t.T)
    )
