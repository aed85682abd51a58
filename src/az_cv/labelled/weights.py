"""Weights of the draws: given, computed from two log densities, or estimated from the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, get_group, group_names
from az_cv.engine.ratio import curvatures, log_ratio, smooth_weights
from az_cv.engine.score_check import examine
from az_cv.notices import silenced
from az_cv.sources.schema import DRAW, GRADIENT, LOG_DENSITY, LOG_PROPOSAL, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.containers.idata import Idata
    from az_cv.engine.score_check import ScoreCheck

LogWeights: TypeAlias = xr.DataArray | Literal["psis"] | None
DrawKind: TypeAlias = Literal["posterior", "approximate"]
KINDS = ("posterior", "approximate")
# Where the density of the proposal may be stored, among the statistics of the draws.
LOG_PROPOSALS = ("log_proposal", "lp_approx", "lp_approx__", "log_q__", "log_q", "log_g__", "log_g")
# Settled in examples/approximate/calibration.py: the share of the draws that must be effective, and
# the share where the tail of the weights is heavier than importance sampling alone could bear, or
# the posterior is curved otherwise than the draws are spread.
LEAST, LEAST_STRAINED = 0.35, 0.5
HEAVY = 0.7
CURVATURES = (0.4, 2.0)
MIN_EFFECTIVE = 20.0
RECOMMENDED = (
    "Sample the model with MCMC (pm.sample, CmdStan's sample, NumPyro's NUTS) and pass those "
    "draws; or find a closer approximation, by a reparametrisation, full-rank ADVI or Pathfinder."
)


@dataclass(frozen=True)
class Weights:
    """What each draw counts.

    Attributes
    ----------
    values : array of shape (chain, draw)
        They sum to one.
    pareto_k : float
        Pareto k of the tail of the weights; NaN where draws were merely counted.
    estimated : bool
        Whether they are estimates, for a proposal that nobody knows.
    label : str
        A name for people to read.
    """

    values: Float[np.ndarray, "chain draw"]
    pareto_k: float
    estimated: bool
    label: str

    @property
    def effective(self) -> float:
        """The number of draws with equal weights that would know as much."""
        return float(1 / (self.values**2).sum())

    def describe(self, exponents: Float[np.ndarray, " q"], names: Sequence[str]) -> str:
        """Return a line for the footer, with the tails of the weights and of what they weigh.

        Parameters
        ----------
        exponents : array of shape (q,)
            Pareto k of the weighted residuals, whose scatter is the error of each quantity; NaN
            where there is none.
        names : sequence of str
            Of the quantities.
        """
        said = f"{self.label}, {self.effective:.0f} of {self.values.size} draws effective"
        if not np.isnan(self.pareto_k):
            said += f", Pareto k {self.pareto_k:.2f}"
        if np.isfinite(exponents).any():
            worst = int(np.nanargmax(exponents))
            largest = f"{exponents[worst]:.2f} ({names[worst]})"
            said += f"; Pareto k of weighted residuals up to {largest}"
        return said


def require_draw_kind(draws: str, log_weights: Any) -> None:
    """Raise if the choices contradict each other, before anything is computed."""
    if draws not in KINDS:
        raise ValueError(f"draws {draws!r} is unknown. Choose from {list(KINDS)}.")
    if draws == "approximate" and log_weights is not None:
        raise ValueError(
            "draws='approximate' is for draws whose proposal density is unknown, and log_weights "
            "are given: leave one of them out."
        )
    if isinstance(log_weights, str) and log_weights != "psis":
        raise ValueError(f"log_weights must be a DataArray, 'psis' or None; it is {log_weights!r}.")


def find_weights(
    scores: xr.Dataset, data: Idata, log_weights: LogWeights, draws: DrawKind, check: bool
) -> Weights | None:
    """Return the weights of the draws, ``None`` where all count the same.

    Parameters
    ----------
    scores : Dataset
        On the chains and draws to be used.
    data : InferenceData or DataTree
        May hold the log density of the proposal.
    log_weights : DataArray over chain and draw, "psis" or None
    draws : {"posterior", "approximate"}
    check : bool
        Whether to refuse weights that nothing can be trusted with.

    Raises
    ------
    ValueError, TypeError
        If the weights cannot be used; the message says what to do.
    """
    require_draw_kind(draws, log_weights)
    if draws == "approximate":
        weights = _estimated(scores)
    elif log_weights is None:
        return None
    elif isinstance(log_weights, str):
        weights = _from_densities(scores, data)
    else:
        given = _aligned(log_weights, scores)
        if np.ptp(given) == 0:
            return None
        weights = _given(given)
    if check:
        _require_close(weights, scores)
    return weights


def counted_once(values: Float[np.ndarray, "chain draw"], before: Weights | None) -> Weights:
    """Return the weights of draws whose copies are counted once."""
    if before is None:
        return Weights(values, np.nan, False, "copies of draws counted once")
    return Weights(values, before.pareto_k, before.estimated, f"{before.label}, copies once")


def _aligned(log_weights: Any, scores: xr.Dataset) -> Float[np.ndarray, "chain draw"]:
    """Return log weights at the draws of the scores, in their order."""
    if not isinstance(log_weights, xr.DataArray):
        raise TypeError(
            f"log_weights must be an xarray.DataArray with dims {SAMPLE_DIMS}, or 'psis'; it is "
            f"{type(log_weights).__name__}."
        )
    if set(log_weights.dims) != set(SAMPLE_DIMS):
        raise ValueError(f"log_weights must have dims {SAMPLE_DIMS}; it has {log_weights.dims}.")
    for dim in SAMPLE_DIMS:
        missing = ~scores.get_index(dim).isin(log_weights.get_index(dim))
        if missing.any():
            raise ValueError(
                f"log_weights lacks {int(missing.sum())} of the {len(missing)} labels that the "
                f"draws have along {dim!r}, first {scores.get_index(dim)[missing][0]}."
            )
        log_weights = log_weights.sel({dim: scores.get_index(dim)})
    values = np.asarray(log_weights.transpose(*SAMPLE_DIMS), dtype=float)
    if np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError("log_weights has values that are NaN or infinite; -inf alone is a weight.")
    if not np.isfinite(values).any():
        raise ValueError("log_weights are -inf at every draw: no draw counts.")
    return values


def _given(log_weights: Float[np.ndarray, "chain draw"]) -> Weights:
    weights = np.exp(log_weights - log_weights.max())
    finite = log_weights[np.isfinite(log_weights)]
    k = smooth_weights(finite)[1]
    return Weights(weights / weights.sum(), k, False, "given weights")


def _from_densities(scores: xr.Dataset, data: Idata) -> Weights:
    """Return smoothed importance weights from the log densities of posterior and proposal."""
    stats = get_group(data, "sample_stats") if "sample_stats" in group_names(data) else xr.Dataset()
    found = [name for name in LOG_PROPOSALS if name in stats]
    if LOG_PROPOSAL in scores:  # of the coordinates in which the gradients are
        proposal = np.asarray(scores[LOG_PROPOSAL], dtype=float)
    elif found:
        proposal = _aligned(stats[found[0]], scores)
    else:
        raise ValueError(
            "log_weights='psis' needs the log density of the proposal at the draws, as one of "
            f"{list(LOG_PROPOSALS)} in the group sample_stats. Without it, pass "
            "draws='approximate', or the log weights themselves as a DataArray."
        )
    if LOG_DENSITY not in scores or not np.isfinite(scores[LOG_DENSITY]).all():
        raise ValueError(
            "log_weights='psis' needs the log density of the posterior, and these scores have only "
            "its gradient. Pass model= as a log density, or the log weights as a DataArray."
        )
    ratio = np.asarray(scores[LOG_DENSITY], dtype=float) - proposal
    values, k = smooth_weights(ratio.ravel())
    return Weights(values.reshape(ratio.shape), k, False, "Pareto-smoothed weights")


def _estimated(scores: xr.Dataset) -> Weights:
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    shape, d = x.shape[:2], x.shape[2]
    density = None
    if LOG_DENSITY in scores:
        density = np.asarray(scores[LOG_DENSITY], dtype=float).ravel()
    values, k = smooth_weights(log_ratio(x.reshape(-1, d), s.reshape(-1, d), density))
    return Weights(values.reshape(shape), k, True, "approximate draws with estimated weights")


def _require_close(weights: Weights, scores: xr.Dataset) -> None:
    """Refuse draws that are too far from the posterior, and gradients of something else."""
    effective, size = weights.effective, weights.values.size
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    with silenced():
        flat, steep = curvatures(x.reshape(-1, x.shape[2]), s.reshape(-1, x.shape[2]))
    bent = flat < CURVATURES[0] or steep > CURVATURES[1]
    strained = bent or weights.pareto_k > HEAVY
    least = max(MIN_EFFECTIVE, (LEAST_STRAINED if strained else LEAST) * size)
    if effective < least or (bent and weights.estimated):
        largest = f"{steep:,.0f}" if steep >= 10 else f"{steep:.2g}"
        raise ValueError(
            "The draws are too far from the posterior for any number to be trusted: "
            f"{effective:.0f} of {size} draws are effective where {least:.0f} are needed, the "
            f"Pareto k of their weights is {weights.pareto_k:.2f}, and the posterior is curved "
            f"{flat:.2g} to {largest} times as much as the draws are, where {CURVATURES[0]} to "
            f"{CURVATURES[1]} is near. {RECOMMENDED} check=False goes on regardless."
        )
    require_identities(weights.values, scores)


def require_identities(weights: Float[np.ndarray, "chain draw"], scores: xr.Dataset) -> None:
    """Raise if gradients clearly do not belong to the draws, with their weights."""
    report = _examined(weights, scores)
    if report.verdict == "fail":
        raise ValueError(
            "The gradients do not belong to these draws, with their weights: they are those of "
            "another model, or the draws miss where the posterior has its tails. "
            f"{' '.join(report.problems)} {RECOMMENDED} check=False goes on regardless."
        )


def looks_approximate(scores: xr.Dataset) -> bool:
    """Tell whether draws would be those of the posterior if they had weights.

    Draws of another model, near enough, look the same.
    """
    with silenced():
        try:
            weights = _estimated(scores)
        except (ValueError, np.linalg.LinAlgError):  # nothing can be standardised
            return False
    if not weights.effective >= max(MIN_EFFECTIVE, LEAST * weights.values.size):
        return False
    return _examined(weights.values, scores).verdict == "pass"


def _examined(weights: Float[np.ndarray, "chain draw"], scores: xr.Dataset) -> ScoreCheck:
    """Test the identities of draws that are resampled with their weights."""
    x, s = (np.asarray(scores[name], dtype=float) for name in (DRAW, GRADIENT))
    names = [str(name) for name in np.atleast_1d(scores[PARAMETER].values)]
    rows = _resampled(weights.ravel(), int(1 / (weights**2).sum()))
    d = x.shape[2]
    return examine(x.reshape(-1, d)[None, rows], s.reshape(-1, d)[None, rows], names)


def _resampled(weights: Float[np.ndarray, " n"], number: int) -> np.ndarray:
    """Return rows drawn systematically with probabilities that are their weights."""
    places = (np.arange(number) + 0.5) / number
    return np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
