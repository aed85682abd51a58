"""Which coordinates govern others, found in draws and scores alone.

In a Gaussian posterior scores are linear in the draws. What a linear fit leaves of score j, scaled
to unit variance, is explained by the product ``x_k x_j`` where coordinate k governs the scale of
coordinate j: the standard deviation of a group does so for every effect in the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Matrix = Float[np.ndarray, "n d"]

# A global coordinate explains so much of the other scores, of which each counts one, and so many
# times what a typical coordinate does. The second pair is for models in which everything interacts
# a little, as item response models are: a scale missed there cost four fifths of the gain. There
# are few of them. Settled on the models of examples/hierarchical.
STANDS_OUT = ((0.3, 15.0), (2.0, 10.0))
MOST_GLOBAL = 4
# What rounding leaves of a linear score, in units of the score, is no evidence of anything.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Influence:
    """What the scores tell about the dependence of coordinates on each other.

    Attributes
    ----------
    interaction : array of shape (d, d)
        In row k and column j: the share of what is not linear in score j that the product of
        coordinates k and j explains, noise subtracted.
    total : array of shape (d,)
        Its sum over all j but k: how many scores' worth coordinate k explains.
    top : array of int
        The global coordinates, most influential first; empty where none stands out.
    """

    interaction: Float[np.ndarray, "d d"]
    total: Float[np.ndarray, " d"]
    top: Int[np.ndarray, " h"]


def find_influence(x: Matrix, s: Matrix) -> Influence:
    """Find the global coordinates.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Draws, each coordinate with mean zero and unit variance, and their scores.

    Examples
    --------
    A funnel: the first coordinate is the logarithm of the scale of the others.

    >>> rng = np.random.default_rng(0)
    >>> v = 0.5 * rng.normal(size=(2000, 1))
    >>> x = np.hstack([v, np.exp(v) * rng.normal(size=(2000, 9))])
    >>> precision = np.exp(-2 * v)
    >>> scale = (precision * x[:, 1:] ** 2 - 1).sum(axis=1) - 4 * v[:, 0]
    >>> s = np.column_stack([scale, -precision * x[:, 1:]])
    >>> sd = x.std(axis=0)
    >>> find_influence((x - x.mean(axis=0)) / sd, sd * s).top
    array([0])
    """
    nonlinear = _not_linear(x, s)
    interaction = _explained(x, nonlinear)
    total, left = interaction.sum(axis=1), interaction
    top: list[int] = []
    while len(top) < min(MOST_GLOBAL, x.shape[1] - 1):
        strength = left.sum(axis=1)
        strength[top] = 0.0
        typical = max(float(np.median(np.delete(strength, top))), 0.0)
        strongest = int(np.argmax(strength))
        if not any(
            strength[strongest] >= max(least, ratio * typical) for least, ratio in STANDS_OUT
        ):
            break
        top.append(strongest)
        # What correlates with a global coordinate seems to govern what that does.
        left = _explained(x, _without(nonlinear, x, top))
        left[:, top] = 0.0
    return Influence(interaction, total, np.array(top, dtype=int))


def _not_linear(x: Matrix, s: Matrix) -> Matrix:
    """Return what a linear fit leaves of each score, scaled to unit variance."""
    design = np.column_stack([np.ones(len(x)), x])
    normal = design.T @ design
    normal[np.diag_indices_from(normal)] *= 1 + 1e-8
    left = s - design @ scipy.linalg.solve(normal, design.T @ s, assume_a="pos")
    size = left.std(axis=0)
    is_noise = size <= ROUNDING * s.std(axis=0)
    return np.where(is_noise, 0.0, left / np.where(is_noise, 1.0, size))


def _explained(x: Matrix, left: Matrix) -> Float[np.ndarray, "d d"]:
    """Return the share of each column that products with its own coordinate explain."""
    n = len(x)
    product = x * left
    share = (x.T @ product / n) ** 2 - (x**2).T @ product**2 / n**2
    np.fill_diagonal(share, 0.0)
    return share


def _without(left: Matrix, x: Matrix, top: list[int]) -> Matrix:
    """Return what is left of each column once global coordinates explain what they can."""
    heads = [x[:, [k]] for k in top]
    products = [h * x for h in heads] + [(h**2 - 1) * x for h in heads]
    products += [
        np.broadcast_to(heads[a] * heads[b], x.shape)
        for a in range(len(heads))
        for b in range(a, len(heads))
    ]
    normal = np.empty((x.shape[1], len(products), len(products)))
    for a, one in enumerate(products):
        for b, other in enumerate(products[: a + 1]):
            normal[:, a, b] = normal[:, b, a] = np.einsum("nj,nj->j", one, other)
    moments = np.stack([np.einsum("nj,nj->j", one, left) for one in products], axis=1)
    scale = np.trace(normal, axis1=1, axis2=2)[:, None, None]
    normal += 1e-8 * scale * np.eye(len(products))
    coefficients = np.linalg.solve(normal, moments[..., None])[..., 0]
    return left - sum(coefficients[:, k] * one for k, one in enumerate(products))
