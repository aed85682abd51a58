"""A linear fit, and what leaving draws out does to it.

One factorisation gives, for all outputs together, the intercept (the estimate of each expectation),
and what the fit without a fold predicts for that fold. With ``P`` the residual operator of the fit
(``P f`` is proportional to its residuals), leaving out the rows ``B`` leaves the residuals
``P_BB^-1 (P f)_B``; no fold is ever refitted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.solvers.linear.extremes import Extremes, largest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    from az_cv.solvers.error_model import ErrorModel

    Outputs = Float[np.ndarray, "n q"]
    Folds = Sequence[Int[np.ndarray, " b"]]


@dataclass(frozen=True)
class Outskirts:
    """Where the draws end.

    An excursion of an autocorrelated chain into the tail is one visit, not as many as it has draws:
    outermost are whole runs.

    Attributes
    ----------
    radius : array of shape (n,)
        Distance of each draw from the centre.
    runs : array of shape (n,)
        Which run each draw belongs to.
    length : int
        Draws in a run.
    number : int
        How many runs count as outermost.
    few : int
        The shift that up to so many of them cause together counts in full.
    discount : float
        Weight of the shift that more of them cause.
    many : bool
        In many dimensions the weight is one over the root of the number instead.
    extremes : Extremes
        Where outputs are most extreme.
    missed, beyond : float
        Where a fit without an output's extreme draws misses more than this share of what they have,
        the region beyond them counts so many times.
    """

    radius: Float[np.ndarray, " n"]
    runs: Int[np.ndarray, " n"]
    length: int
    number: int
    few: int
    discount: float
    many: bool = False
    extremes: Extremes = field(default_factory=Extremes, compare=False)
    missed: float = np.inf
    beyond: float = 1.0

    def weights(self, numbers: Int[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Return how much of the shift counts that so many runs cause together."""
        if self.many:
            return 1 / np.sqrt(numbers)
        return np.where(numbers <= self.few, 1.0, self.discount)

    @cached_property
    def farthest(self) -> Int[np.ndarray, " b"]:
        """The draws of the runs farthest from the centre, farthest first."""
        return self.outermost(self.radius[:, None])[0]

    def row_sets(self, outputs: Outputs) -> list[Int[np.ndarray, "m b"]]:
        """Return the draws that are left out together: farthest ones, and extreme ones."""
        return [self.farthest[None], self.extremes.of(outputs, self.outermost).sets]

    def outermost(self, distance: Float[np.ndarray, "n q"]) -> Int[np.ndarray, "q b"]:
        """Return the draws of the runs that reach farthest, farthest first, for each column."""
        if self.length > 1:
            starts = np.arange(0, len(self.runs), self.length)
            distance = np.maximum.reduceat(distance, starts, axis=0)[self.runs]
        return largest(distance.T, self.number * self.length)


def find_outskirts(x: Float[np.ndarray, "n d"], visit: int, errors: ErrorModel) -> Outskirts:
    """Return the outskirts of draws.

    In one and two dimensions the region beyond the draws decides, and what reaches there is a visit
    of the chain. The more visits are left out, the more their shift overstates what one more hides.
    From three dimensions on single draws count, and more of them, which lie in many directions:
    few of them are neighbours. But what one visit shows, the next one may hide: where chains have
    memory, and single draws are left out, fits have to follow them.

    Parameters
    ----------
    x : array of shape (n, d)
        Chain by chain.
    visit : int
        Autocorrelation time, in draws.
    errors : ErrorModel
    """
    n, d = x.shape
    is_flat = d < 3
    length = visit if is_flat and visit * errors.visits_needed <= n else 1
    share = errors.outermost_share[0 if is_flat else 1]
    is_hidden = length == 1 and visit >= errors.memory and d < errors.many
    return Outskirts(
        radius=np.sqrt(np.einsum("nd,nd->n", x, x)),
        runs=np.arange(n) // length,
        length=length,
        number=min(errors.outermost[min(d, 3) - 1], max(n // (share * length), 1)),
        few=errors.few,
        discount=errors.discount[0 if d == 1 else 1],
        many=d >= errors.many,
        missed=errors.missed,
        beyond=errors.beyond if is_hidden else 1.0,
    )


@dataclass(frozen=True)
class LinearFit:
    """A control variate fitted to q outputs by one linear solve.

    Attributes
    ----------
    intercept : array of shape (q,)
        In-sample estimate of each expectation.
    residual : array of shape (n, q)
        ``f(x_i)`` minus what the fit without the fold of draw i predicts there.
    adjusted : array of shape (n, q)
        ``f - g`` with ``g`` fitted without the fold of draw i. Only its mean is meaningful.
    leave_one_out : array of shape (n, q), optional
        The same with ``g`` fitted without draw i alone, where folds are longer.
    tail_sd : array of shape (q,)
        Quadrature error of the intercept with the amplitude seen at the outermost draws.
    tail_shift : array of shape (q,)
        How far the intercept moves when the outermost draws are left out.
    times : array of shape (q,)
        How many times the error from beyond the draws counts.
    log_evidence : array of shape (q,)
        Log marginal likelihood, amplitude maximised. Comparable between kernels on the same draws.
    """

    intercept: Float[np.ndarray, " q"]
    residual: Outputs
    adjusted: Outputs
    leave_one_out: Outputs | None
    tail_sd: Float[np.ndarray, " q"]
    tail_shift: Float[np.ndarray, " q"]
    times: Float[np.ndarray, " q"]
    log_evidence: Float[np.ndarray, " q"]


def beyond_the_draws(
    outskirts: Outskirts | None,
    outputs: Outputs,
    residual: Outputs,
    projected: Outputs,
    operators: Sequence[Float[np.ndarray, "m b b"]],
    weights: Float[np.ndarray, " n"],
    unit_variance: float,
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """Return `tail_sd` and `tail_shift`, two views of where there are no draws, and `times`.

    What the outermost draws change when they are left out is what the next ones out there would
    have changed. One view takes the amplitude of the Gaussian process from them, the other the
    shift ``w_B . e_B`` of the intercept itself. Outermost are the draws farthest from the centre,
    and for each output the draws where it is most extreme.

    A loose fit leaves a share of the output as it is, and with that share the intercept moves as
    the plain average does, whose scatter tells its error. Only what goes beyond counts.

    A fit that does not follow the extreme draws of an output without having seen them will miss
    what the next visit of a chain shows: there the region beyond counts for more.

    `operators` are the residual operators of the draws in `Outskirts.row_sets`.
    """
    q = projected.shape[1]
    if outskirts is None:
        return np.zeros(q), np.zeros(q), np.ones(q)
    farthest, (operator,) = outskirts.farthest, operators[0]
    own = outskirts.extremes.of(outputs, outskirts.outermost)
    # The share of the outputs that is in their residuals.
    slope = np.clip(np.einsum("nq,nq->q", residual, own.centred) / own.squares, 0.0, 1.0)[:, None]
    shift = _shift(
        _stable_cholesky(operator),
        projected[farthest].T,
        weights[farthest],
        slope * own.centred[farthest].T,
        outskirts,
    )
    few = min(outskirts.few * outskirts.length, len(farthest))
    left_out = solve_symmetric(operator[:few, :few], projected[farthest[:few]])
    amplitude = np.maximum((left_out * projected[farthest[:few]]).mean(axis=0), 0)
    # Outputs with the same extreme draws share their operator.
    own_factor = _stable_cholesky(operators[1])[own.set_of]
    own_projected = np.take_along_axis(projected.T, own.rows, axis=1)
    values = np.take_along_axis(own.centred.T, own.rows, axis=1)
    own_shift = _shift(own_factor, own_projected, weights[own.rows], slope * values, outskirts)
    times = np.ones(q)
    if outskirts.beyond > 1:
        allowed = outskirts.missed * np.linalg.norm(values, axis=1)
        times[_missed(own_factor, own_projected) > allowed] = outskirts.beyond
    amplitude_sd = np.sqrt(amplitude * max(unit_variance, 0.0))
    return amplitude_sd, np.maximum(shift, own_shift), times


def _missed(
    factor: Float[np.ndarray, "q b b"], projected: Float[np.ndarray, "q b"]
) -> Float[np.ndarray, " q"]:
    """Return the norms of what fits without some draws of each output miss at them."""
    whitened = np.linalg.solve(factor, projected[..., None])
    residual = np.linalg.solve(np.swapaxes(factor, 1, 2), whitened)[..., 0]
    return np.asarray(np.linalg.norm(residual, axis=1))


def _shift(
    factor: Float[np.ndarray, "... b b"],
    projected: Float[np.ndarray, "q b"],
    weights: Float[np.ndarray, "... b"],
    left: Float[np.ndarray, "q b"],
    outskirts: Outskirts,
) -> Float[np.ndarray, " q"]:
    """Return the largest weighted shift of the intercept when the first few runs are left out.

    It is counted from the shift of the average of `left`.
    """
    # w_k . P_kk^-1 (P f)_k for all k from one Cholesky factor of the residual operator, whose
    # leading blocks are those of each k.
    if factor.ndim == 2:
        # One factor for all outputs, and the weights whitened once.
        right = np.vstack([weights, projected]).T
        whitened = scipy.linalg.solve_triangular(factor, right, lower=True, check_finite=False).T
        products = whitened[0] * whitened[1:]
    else:
        right = np.stack([weights, projected], axis=-1)
        products = np.linalg.solve(factor, right).prod(axis=-1)
    remaining = len(outskirts.radius) - np.arange(1, left.shape[1] + 1)
    plain = np.cumsum(left, axis=-1) / remaining
    shift = np.abs(np.cumsum(products, axis=-1) - plain)
    numbers = 2 ** np.arange((projected.shape[1] // outskirts.length).bit_length())
    return (outskirts.weights(numbers) * shift[:, numbers * outskirts.length - 1]).max(axis=1)


def _stable_cholesky(matrices: Float[np.ndarray, "... b b"]) -> Float[np.ndarray, "... b b"]:
    """Return lower Cholesky factors, with as little added to the diagonals as rounding asks for."""
    size = matrices.shape[-1]
    average = np.trace(matrices, axis1=-2, axis2=-1)[..., None, None] / size
    for added in (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0):
        try:
            return np.linalg.cholesky(matrices + added * average * np.eye(size))
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("The residual operator is not positive definite.")


def solve_symmetric(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a positive definite system, by least squares where rounding has spoilt it."""
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
        return scipy.linalg.cho_solve(factor, right, check_finite=False)
    except scipy.linalg.LinAlgError:
        return scipy.linalg.lstsq(matrix, right)[0]


def leave_draws_out(
    distinct: Folds | None,
    intercept: np.ndarray,
    projected: Outputs,
    diagonal: Float[np.ndarray, " n"],
    residual_operators: Callable[[Int[np.ndarray, "m b"]], Float[np.ndarray, "m b b"]],
    weights: Float[np.ndarray, " n"],
) -> Outputs | None:
    """Return ``f - g`` with ``g`` fitted without each draw and its repetitions.

    Parameters
    ----------
    distinct : sequence of index arrays, optional
        Draws that are equal. Without it nothing is returned.
    intercept : array of shape (q,)
    projected : array of shape (n, q)
        ``P f``.
    diagonal : array of shape (n,)
        The diagonal of ``P``.
    residual_operators : callable
        Sets of rows to their blocks of ``P``.
    weights : array of shape (n,)
        Weights of the draws in the intercept.
    """
    if distinct is None:
        return None
    residual = projected / diagonal[:, None]
    adjusted = intercept + (1 - weights)[:, None] * residual
    for rows in distinct:
        if len(rows) > 1:
            together = solve_symmetric(residual_operators(rows[None])[0], projected[rows])
            adjusted[rows] = intercept - weights[rows] @ together + together
    return adjusted


def adjusted_draws(
    intercept: np.ndarray, weights: np.ndarray, residual: Outputs, folds: Folds
) -> Outputs:
    """Return residuals plus the intercepts of the fits without each draw's fold.

    Those intercepts are ``c - w_B . e_B``.
    """
    if max(map(len, folds)) == 1:
        adjusted = (1 - weights)[:, None] * residual
        adjusted += intercept
        return adjusted
    adjusted = residual.copy()
    for rows in folds:
        adjusted[rows] += intercept - weights[rows] @ residual[rows]
    return adjusted
