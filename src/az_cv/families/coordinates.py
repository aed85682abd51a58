"""Coordinates that users name, among the unconstrained parameters and among whitened directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

# Of a correlation matrix; the square root of what whitening calls singular.
DEPENDENT = 3e-7
# Draws in each dimension from which on the covariance of the scores is worth using.
DRAWS_NEEDED = 4


def positions_among(
    chosen: Sequence[str | int], names: Sequence[str], argument: str
) -> tuple[int, ...]:
    """Return positions in place of names of unconstrained parameters.

    Parameters
    ----------
    chosen : sequence of str or int
    names : sequence of str
        Names of all unconstrained parameters.
    argument : str
        Where the user named them, for the message.

    Examples
    --------
    >>> positions_among(["tau_log__", 0], ["mu", "tau_log__"], "top")
    (1, 0)
    """
    unknown = [name for name in chosen if isinstance(name, str) and name not in names]
    if unknown:
        raise ValueError(
            f"{argument} names {unknown}, which are not among the unconstrained parameters "
            f"{list(names[:20])}{' ...' if len(names) > 20 else ''}."
        )
    return tuple(names.index(k) if isinstance(k, str) else int(k) for k in chosen)


class Axes(NamedTuple):
    """Linear maps from whitened draws and scores to those along chosen coordinates."""

    of_draws: Float[np.ndarray, "k r"]
    of_scores: Float[np.ndarray, "k r"]


def axes_of(
    coordinates: Sequence[str | int],
    scale: Float[np.ndarray, "d r"],
    scores: Float[np.ndarray, "n r"] | None = None,
) -> Axes:
    """Return what maps whitened draws and scores to those along some original coordinates.

    A function of the chosen coordinates moves them together with all that correlates with them. On
    a normal posterior draws x and scores s have covariances ``C`` and ``C^-1``, and where both are
    estimated ``A = cov(s)^(-1/2)``, in whitened coordinates, is the one matrix that makes ``A s``
    equal to ``-x`` without error. With few draws it is too noisy, and the identity serves.

    Parameters
    ----------
    coordinates : sequence of int
        Positions of unconstrained parameters.
    scale : array of shape (d, r)
        Whitened draws times this are the original ones, up to their mean.
    scores : array of shape (n, r), optional
        Whitened.

    Examples
    --------
    >>> axes = axes_of([1], np.array([[1.0, 0.0], [3.0, 4.0]]))
    >>> axes.of_draws
    array([[0.6, 0.8]])
    """
    basis = _basis(coordinates, scale)
    if scores is None or len(scores) < DRAWS_NEEDED * scores.shape[1]:
        return Axes(basis, basis)
    values, vectors = scipy.linalg.eigh(np.cov(scores, rowvar=False).reshape(scale.shape[1], -1))
    if values[0] < DEPENDENT * values[-1]:
        return Axes(basis, basis)
    moved = (basis @ vectors / np.sqrt(values)) @ vectors.T
    # Scaled so that the second-order part of the operator is the Laplacian along the axes.
    factor = scipy.linalg.cholesky(moved @ basis.T, lower=True)
    of_draws, of_scores = (
        scipy.linalg.solve_triangular(factor, a, lower=True) for a in (basis, moved)
    )
    return Axes(of_draws, of_scores)


def nearest_axes(scale: Float[np.ndarray, "d r"]) -> Axes:
    """Return what turns whitened draws into those of the symmetric root of the correlations.

    These are nearest to the standardised original ones, and in them no coordinate comes first. The
    j-th of d coordinates that a Cholesky factor of the draws' own covariance whitens has squares
    whose images have a mean of about (d - 2 j) / n, and the sum over j of such squares is far off.

    Parameters
    ----------
    scale : array of shape (d, r)
        Whitened draws times this are the original ones, up to their mean.

    Examples
    --------
    >>> scale = np.array([[1.0, 0.0], [3.0, 4.0]])
    >>> root = np.diag([1.0, 0.2]) @ scale @ nearest_axes(scale).of_draws.T
    >>> np.allclose(root, root.T)
    True
    """
    length = np.sqrt((scale**2).sum(axis=1))
    unit = scale[length > 0] / length[length > 0, None]
    turn = np.eye(scale.shape[1])
    if len(unit) == len(turn):
        left, _, right = scipy.linalg.svd(unit)
        turn = left @ right
    return Axes(turn, turn)


def _basis(
    coordinates: Sequence[str | int], scale: Float[np.ndarray, "d r"]
) -> Float[np.ndarray, "k r"]:
    """Return orthonormal directions: that of the first coordinate, then what each next one adds."""
    d = len(scale)
    wrong = [k for k in coordinates if isinstance(k, str) or not 0 <= k < d]
    if wrong:
        raise ValueError(
            f"coordinates must be positions from 0 to {d - 1}, or names where the draws have "
            f"labels; they are {list(coordinates)}."
        )
    rows = scale[np.array(coordinates, dtype=int)]
    length = np.sqrt((rows**2).sum(axis=1))
    if not length.any():
        raise ValueError(f"coordinates {list(coordinates)} are constant over the draws.")
    unit = rows[length > 0] / length[length > 0, None]
    if len(unit) <= unit.shape[1]:
        basis, triangle = scipy.linalg.qr(unit.T, mode="economic")
        diagonal = np.diag(triangle)
        if np.abs(diagonal).min() > DEPENDENT:
            return basis.T * np.sign(diagonal)[:, None]
    return scipy.linalg.orth(unit.T, rcond=DEPENDENT).T
