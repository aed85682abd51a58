"""Draws that do not fit in memory, in passes: moments, features or training, and residuals."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.score_check import ScoreWarning
from az_cv.engine.streaming.estimates import COLUMNS, in_order, judge
from az_cv.engine.streaming.gram import Functions
from az_cv.engine.streaming.graph import map_reduce
from az_cv.engine.streaming.moments import (
    Question,
    examine_identities,
    merge_moments,
    moments_of,
    whitening_by,
)
from az_cv.engine.streaming.pieces import Draws, Segment, cut
from az_cv.engine.streaming.plan import Plan, Size, make_plan
from az_cv.engine.streaming.plan_training import plan_training, training_of
from az_cv.engine.streaming.solve import ridges_of
from az_cv.engine.streaming.solving import Solving, design_for, sample_for
from az_cv.engine.streaming.training import Lesson
from az_cv.engine.streaming.whitening import LowRankWhitening, first_whitening
from az_cv.engine.whitening import Whitening
from az_cv.families import PlacedFamily
from az_cv.notices import notify
from az_cv.threads import SMALL, considerate_threads, one_thread

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.settings import Settings
    from az_cv.solvers.training.plan import TrainingRecord

    Rows = Float[np.ndarray, "n k"]

GUIDES = 20


@dataclass(frozen=True)
class Streamed:
    """What was found.

    Attributes
    ----------
    values : dict of column to array of shape (q,)
    adjusted : array of shape (chain, batch, q)
        Out-of-fold averages of ``f - g`` over batches of draws.
    starts : array of shape (batch,)
        The first draw of each batch.
    finite : array of shape (q,)
    shares : dict of label to float
        Of each fit in the answers, over all outputs.
    plan : Plan
    history : list of TrainingRecord
        Empty where nothing was trained.
    """

    values: dict[str, np.ndarray]
    adjusted: Float[np.ndarray, "chain batch q"]
    starts: np.ndarray
    finite: np.ndarray
    shares: dict[str, float]
    plan: Plan
    history: list[TrainingRecord]


@considerate_threads(SMALL)
def stream(
    draws: Draws,
    pilot: Draws,
    settings: Settings,
    *,
    memory: int,
    chunk: int = 0,
    reading: tuple[float, float] = (0.0, 0.0),
    max_time: float | None = None,
) -> Streamed:
    """Estimate mean and sd of every output, reading a piece of the draws at a time.

    Parameters
    ----------
    draws : Draws
        NumPy or dask arrays.
    pilot : Draws
        Some of them, spread over the chains, in memory.
    settings : Settings
    memory : int
        Bytes.
    chunk : int
        Draws that lie together where they are stored.
    reading : (float, float)
        Seconds that it took to read draws with scores, and outputs, once.
    max_time : float, optional
        Seconds that all of it may take.

    Raises
    ------
    ValueError
        If the gradients do not belong to the draws.

    Examples
    --------
    >>> from az_cv.engine.settings import Settings
    >>> x = np.random.default_rng(0).normal(size=(2, 500, 2))
    >>> draws = Draws(x, -x, x**2)
    >>> found = stream(draws, draws, Settings(), memory=2**30)
    >>> np.allclose(found.values["mean"], 1, atol=1e-6)
    True
    """
    started = time.perf_counter()
    chains, length, _, q = draws.sizes
    together = max(getattr(draws.outputs, "chunks", ((), (), (0,)))[2])
    size = Size(chains, length, draws.sizes[2], q, chunk, memory, together, reading)
    training = training_of(settings)

    def planned(size: Size) -> tuple[Plan, list[Segment]]:
        plan = (
            make_plan(size, settings, max_time)
            if training is None
            else plan_training(size, settings, *training)
        )
        return plan, cut(draws, plan.folds, plan.rows, plan.segments, chunk)

    plan, segments = planned(size)
    with one_thread():
        whitening = _whiten(draws, pilot, segments, plan, settings.check)
    x, s = (_flat(values) for values in (pilot.x, pilot.s))
    x, s = whitening.draws(x), whitening.scores(s)
    d = x.shape[1]
    if d < size.dimension:
        plan, segments = planned(replace(size, dimension=d))
    outputs = _flat(pilot.outputs)
    fitter: Solving | Lesson
    if training is None:
        ridges = ridges_of(chains * length, automatic=settings.family == "auto")
        with one_thread():
            design, sample = design_for(plan, x, s, _guide(outputs, x)), sample_for(plan, x)
        keeps = plan.load.blocks > 1
        fitter = Solving(whitening, design, sample, segments, plan, ridges, keeps=keeps)
    else:
        solver, family = training
        if isinstance(family, PlacedFamily) and isinstance(whitening, Whitening):
            family = family.placed(whitening.scale, s)
        fitter = Lesson(solver, family, draws, segments, plan, whitening, d, settings, chunk)
    # The last pass takes about as long as the first.
    taken = time.perf_counter() - started
    deadline = math.inf if max_time is None else started + max_time - taken
    blocks = [slice(k, min(k + plan.columns, q)) for k in range(0, q, plan.columns)]
    values = {name: np.full(q, np.nan) for name in COLUMNS}
    finite = np.zeros(q, dtype=bool)
    shares: dict[str, float] = {}
    history: list[TrainingRecord] = []
    adjusted: np.ndarray | None = None
    for number, columns in enumerate(blocks):
        functions = _functions(outputs[:, columns], columns)
        left = (deadline - time.perf_counter()) / (len(blocks) - number)
        parts, labels, beyond, records = fitter.residuals(functions, left)
        series = in_order(parts, chains)
        del parts  # their memory is wanted
        found, own, rest = judge(series, functions, labels, beyond, d, settings.errors)
        for name, column in found.items():
            values[name][columns] = column
        for label, share in own.items():
            shares[label] = shares.get(label, 0.0) + share
        if adjusted is None:  # one array: what is put together at the end is in memory twice
            adjusted = np.empty((*rest.shape[:2], q))
        adjusted[..., columns] = rest
        finite[columns] = np.isfinite(series.lowest) & np.isfinite(series.highest)
        history += records
    assert adjusted is not None
    return Streamed(values, adjusted, series.starts, finite, shares, plan, history)


def _whiten(
    draws: Draws, pilot: Draws, segments: list[Segment], plan: Plan, check: bool
) -> Whitening | LowRankWhitening:
    """Take the first pass: standardise by all draws, and see whether the gradients are theirs."""
    chains, length = draws.sizes[:2]
    first = first_whitening(_flat(pilot.x), chains * length)
    matrices = not isinstance(first, LowRankWhitening)
    question = Question(first, max(1, int(np.sqrt(length))), matrices)
    folds = {segment.fold for segment in segments}
    parts = map_reduce(
        moments_of, dict.fromkeys(folds, question), segments, merge_moments, plan.workers
    )
    moments = merge_moments(list(parts.values()))
    report = examine_identities(moments)
    if check and report.refused:
        raise ValueError(
            "The gradients do not belong to these draws: over all of them an identity of Stein is "
            f"off by {report.deviation:.2g} (p = {report.p_value:.1g}). az_cv.check_scores on some "
            "of the draws shows every identity; check=False goes on regardless."
        )
    if check and report.doubtful:
        notify(
            f"Over all draws an identity of Stein is off by {report.deviation:.2g} (p = "
            f"{report.p_value:.1g}): the gradients may be those of another model, or the chains "
            "have not converged. az_cv.check_scores on some of the draws shows every identity.",
            ScoreWarning,
        )
    return whitening_by(first, moments)


def _guide(outputs: Rows, x: Rows) -> Rows:
    """Return what the length of a kernel is chosen for: some outputs and their squares."""
    picked = outputs[:, np.unique(np.linspace(0, outputs.shape[1] - 1, GUIDES).astype(int))]
    usable = np.isfinite(picked).all(axis=0) & (picked.std(axis=0) > 0)
    picked = picked[:, usable] if usable.any() else x[:, :GUIDES]
    picked = (picked - picked.mean(axis=0)) / picked.std(axis=0)
    return np.hstack([picked, picked**2 - 1])


def _functions(outputs: Rows, columns: slice) -> Functions:
    """Return how outputs are standardised: by some of the draws, near enough."""
    with np.errstate(invalid="ignore", over="ignore"):
        centre, scale = outputs.mean(axis=0), outputs.std(axis=0)
        scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0)
        centre = np.where(np.isfinite(centre), centre, 0.0)
        spread = (((outputs - centre) / scale) ** 2).std(axis=0)
    return Functions(
        columns, centre, scale, np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
    )


def _flat(values: np.ndarray) -> Rows:
    return np.asarray(values, dtype=float).reshape(-1, values.shape[2])
