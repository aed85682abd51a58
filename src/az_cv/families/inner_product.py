"""Stein kernels from base kernels that depend on ``|x|^2``, ``|y|^2`` and ``x . y``.

The paper's kernel and the polynomial kernels are of this form. With ``a = |x|^2``, ``b = |y|^2``
and ``p = x . y``, and as long as the kernel is symmetric in a and b through ``a + b``, every mixed
derivative is a function ``T(i, j)``: i derivatives with respect to a or b, j with respect to p.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from az_cv.families.arrays import namespace

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]
    Gram = Float[np.ndarray, "n m"]
    Partials = Callable[[int, int], Gram | float]


def paper_partials(x: Matrix, y: Matrix, alpha_1: float, length: float) -> Partials:
    """Return the derivatives of ``(1 + alpha_1 (a + b))^-1 exp(-(a + b - 2 p) / (2 length^2))``."""
    a, b, p = inner_products(x, y)
    decay = 1 / (1 + alpha_1 * (a + b))
    rate = -1 / (2 * length**2)
    gaussian = namespace(p).exp(rate * (a + b - 2 * p).clip(0))

    def partial(i: int, j: int) -> Gram:
        # Leibniz: k derivatives fall on the decay, the others on the Gaussian.
        total = sum(
            math.comb(i, k)
            * math.factorial(k)
            * (-alpha_1) ** k
            * decay ** (k + 1)
            * rate ** (i - k)
            for k in range(i + 1)
        )
        return total * gaussian * (-2 * rate) ** j

    return partial


def monomial_partials(x: Matrix, y: Matrix, degree: int) -> Partials:
    """Return the derivatives of ``p^degree / degree!``."""
    p = x @ y.T

    def partial(i: int, j: int) -> Gram | float:
        if i > 0 or j > degree:
            return 0.0
        return p ** (degree - j) / math.factorial(degree - j)

    return partial


def inner_products(x: Matrix, y: Matrix) -> tuple[np.ndarray, np.ndarray, Gram]:
    """Return ``|x|^2`` as a column, ``|y|^2`` as a row, and ``x . y``."""
    return (x * x).sum(axis=1)[:, None], (y * y).sum(axis=1)[None], x @ y.T


def first_order(x: Matrix, s: Matrix, y: Matrix, t: Matrix, partial: Partials) -> Gram:
    """Return ``div_x div_y k + s . grad_y k + t . grad_x k + k s . t``."""
    d = x.shape[1]
    a, b, p = inner_products(x, y)
    x_s, y_t = (x * s).sum(axis=1)[:, None], (y * t).sum(axis=1)[None]
    return (
        4 * p * partial(2, 0)
        + 2 * (a + b) * partial(1, 1)
        + d * partial(0, 1)
        + p * partial(0, 2)
        + 2 * (s @ y.T + x @ t.T) * partial(1, 0)
        + (x_s + y_t) * partial(0, 1)
        + (s @ t.T) * partial(0, 0)
    )


def second_order(x: Matrix, s: Matrix, y: Matrix, t: Matrix, partial: Partials) -> Gram:
    """Return ``L_x L_y k`` for the second-order operator.

    ``L_x k = A + 2 (x . s) k_a + (y . s) k_p`` with ``A`` the Laplacian in x; ``L_y`` is then
    applied to the three terms.
    """
    d = x.shape[1]
    a, b, p = inner_products(x, y)
    x_s, y_t = (x * s).sum(axis=1)[:, None], (y * t).sum(axis=1)[None]
    y_s, x_t = s @ y.T, x @ t.T

    def apply_in_y(
        g_b: Gram | float,
        g_p: Gram | float,
        g_bb: Gram | float,
        g_bp: Gram | float,
        g_pp: Gram | float,
    ) -> Gram:
        laplacian = 2 * d * g_b + 4 * b * g_bb + 4 * p * g_bp + a * g_pp
        return laplacian + 2 * y_t * g_b + x_t * g_p

    def apply_to_partial(i: int, j: int) -> Gram:
        return apply_in_y(
            partial(i + 1, j),
            partial(i, j + 1),
            partial(i + 2, j),
            partial(i + 1, j + 1),
            partial(i, j + 2),
        )

    def laplacian_in_x(i: int, j: int) -> Gram:
        """Return i derivatives in b, j in p of ``A = 2 d k_a + 4 a k_aa + 4 p k_ap + b k_pp``."""
        return (
            2 * d * partial(i + 1, j)
            + 4 * a * partial(i + 2, j)
            + 4 * p * partial(i + 1, j + 1)
            + b * partial(i, j + 2)
            + (4 * j * partial(i + 1, j) if j else 0)
            + (i * partial(i - 1, j + 2) if i else 0)
        )

    return (
        apply_in_y(
            laplacian_in_x(1, 0),
            laplacian_in_x(0, 1),
            laplacian_in_x(2, 0),
            laplacian_in_x(1, 1),
            laplacian_in_x(0, 2),
        )
        + 2 * x_s * apply_to_partial(1, 0)
        + y_s * apply_to_partial(0, 1)
        + 4 * y_s * partial(1, 1)
        + 2 * x_s * partial(0, 2)
        + (s @ t.T) * partial(0, 1)
    )
