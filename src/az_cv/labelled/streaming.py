"""Draws beyond memory: which they are, and the way from lazy arrays to estimates and back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, as_idata, get_group, group_names
from az_cv.containers.labels import scalar_labels
from az_cv.engine.relation import require_related
from az_cv.engine.streaming.memory import memory_bytes
from az_cv.engine.streaming.pieces import Draws
from az_cv.engine.streaming.stream import Streamed, stream
from az_cv.labelled.cautions import notify_apart, notify_heavy
from az_cv.labelled.integrands import MAX_QUANTITIES, evaluate_integrands
from az_cv.labelled.pipeline import MAX_GUIDES, SUMMARY, notify_not_finite
from az_cv.labelled.provenance import require_sampled_model
from az_cv.labelled.result import ControlVariateResult
from az_cv.labelled.stacking import Stacked, sample_elements, stack, varying
from az_cv.labelled.validation import require_matching_scores, validate_scores
from az_cv.sources.schema import DIMS, DRAW, GRADIENT, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.engine.settings import Settings
    from az_cv.labelled.weights import DrawKind, LogWeights

# The ordinary route holds so many copies of what it is given.
COPIES = 4
PILOT = 5000  # draws that are looked at closely
SHARE = 1 / 16  # of the memory, for these
SHOWN = 100_000  # draws behind intervals and diagnostics
# Parameters whose identities are compared pair by pair in these draws. With 500, ten draws each,
# right gradients of a bent target in 1,000 dimensions had p-values of 2e-5 to 4e-7, and were
# refused; with 250, 0.3 and more, in four seeds.
CHECKED = 250


@dataclass(frozen=True)
class Question:
    """What is asked of the posterior; see :func:`az_cv.labelled.integrands.evaluate_integrands`."""

    fn: Any = None
    var_names: str | Sequence[str] | None = None
    filter_vars: Any = None
    coords: dict[str, Any] | None = None

    def of(self, posterior: xr.Dataset) -> xr.Dataset:
        """Evaluate, or make ready to be evaluated."""
        return evaluate_integrands(
            posterior, self.fn, self.var_names, self.filter_vars, self.coords, most=np.inf
        )


@dataclass(frozen=True)
class Large:
    """Draws, scores and functions of them that are read in pieces.

    Attributes
    ----------
    data : InferenceData or DataTree
    scores, posterior, integrands : Dataset
        On the same draws, lazy.
    memory : int
        Bytes.
    """

    data: Any
    scores: xr.Dataset
    posterior: xr.Dataset
    integrands: xr.Dataset
    memory: int


def beyond_memory(
    data: Any,
    scores: xr.Dataset | None,
    model: Any,
    question: Question,
    memory_limit: float | str | None,
) -> Large | None:
    """Return the parts of a question that does not fit in memory, ``None`` if it fits.

    Arrays in memory are streamed only where a limit is given.

    Raises
    ------
    ValueError
        If it does not fit and the scores are still to be computed.
    """
    memory = memory_bytes(memory_limit)
    idata = as_idata(data)
    if "posterior" not in group_names(idata):
        return None
    if scores is not None and not isinstance(scores, xr.Dataset):
        return None  # the ordinary route says what is wrong with them
    posterior = get_group(idata, "posterior")
    stored = scores if scores is not None else _stored(idata, model)
    groups = [posterior] if stored is None else [posterior, stored]
    if memory_limit is None and not any(map(_is_lazy, groups)):
        return None
    size = sum(group.nbytes for group in groups)
    if stored is None:
        if 2 * COPIES * size <= memory:
            return None
        raise ValueError(
            f"The posterior takes {size / 1e9:.3g} GB, more than fits into the memory limit of "
            f"{memory / 1e9:.3g} GB together with its gradients, which are not stored. Write them "
            "to disk, piece by piece: az_cv.sources.write_scores(data, 'scores.zarr', model=...) "
            "returns what to pass as scores=."
        )
    integrands = question.of(posterior)
    if COPIES * (stored.nbytes + integrands.nbytes) <= memory:
        return None
    stored, posterior = validate_scores(stored, posterior, values=False)
    # Draws without labels would be numbered anew wherever some of them are taken.
    posterior, stored = (
        group.assign_coords({dim: group.get_index(dim) for dim in SAMPLE_DIMS})
        for group in (posterior, stored)
    )
    return Large(idata, stored, posterior, question.of(posterior), memory)


def _is_lazy(dataset: xr.Dataset) -> bool:
    return any(variable.chunks is not None for variable in dataset.variables.values())


def _stored(data: Any, model: Any) -> xr.Dataset | None:
    """Return stored scores without reading them."""
    if model is not None:
        return None
    if "cv_scores" in group_names(data):
        return get_group(data, "cv_scores")
    if "sample_stats" in group_names(data):
        stats = get_group(data, "sample_stats")
        if all(name in stats and set(stats[name].dims) == set(DIMS) for name in (DRAW, GRADIENT)):
            return stats[[DRAW, GRADIENT]].assign_attrs(source="nutpie", gradients="sampler")
    return None


def require_plain_draws(draws: DrawKind, log_weights: LogWeights) -> None:
    """Refuse draws that do not all count the same: their weights are found in memory."""
    if draws != "posterior" or log_weights is not None:
        raise ValueError(
            "Draws with weights, and approximate ones, are not read in pieces. Thin them, or raise "
            "memory_limit."
        )


@dataclass(frozen=True)
class Answer:
    """What a stream found.

    Attributes
    ----------
    result : ControlVariateResult
    shown : Stacked
        Functions at some of the draws, for intervals and diagnostics.
    every : int
        Of so many draws one is among them.
    """

    result: ControlVariateResult
    shown: Stacked
    every: int


def estimate_large(large: Large, settings: Settings, max_time: float | None) -> Answer:
    """Estimate mean and sd of every integrand, reading a piece of the draws at a time."""
    started = time.perf_counter()
    scores, integrands = large.scores, large.integrands
    x, s = (_lazy(scores[name]) for name in (DRAW, GRADIENT))
    outputs = _side_by_side(integrands)
    chains, length, d = x.shape
    q = outputs.shape[2]
    every = thinning(chains, length, 2 * d + 2 * q, large.memory * SHARE, PILOT)
    few = {"draw": slice(None, None, every)}
    some_scores = scores.isel(few).compute()
    halfway = time.perf_counter()
    some = integrands.isel(few).compute()
    reading = halfway - started, time.perf_counter() - halfway
    provenance = _check(large, some_scores, few, settings.check)
    pilot = Draws(
        np.asarray(some_scores[DRAW], float),
        np.asarray(some_scores[GRADIENT], float),
        stack(some).matrix * stack(some).unit,
    )
    found = stream(
        Draws(x, s, outputs),
        pilot,
        settings,
        memory=large.memory,
        chunk=_chunk(scores[DRAW]),
        reading=reading,
        max_time=max_time,
    )
    spacing = thinning(chains, length, 4 * q, large.memory * SHARE, SHOWN)
    if spacing != every:
        some = integrands.isel(draw=slice(None, None, spacing)).compute()
    shown = stack(some)
    notify_not_finite(shown.template, found.finite)
    if q <= MAX_QUANTITIES:
        notify_heavy(shown)
    with np.errstate(invalid="ignore"):
        sd = shown.matrix.std(axis=(0, 1)) * shown.unit
    plain = found.values["plain_mean"], found.values["plain_mcse_mean"], sd
    notify_apart(scalar_labels(shown.template), "means", found.values["mean"], *plain)
    taken = time.perf_counter() - started
    result = _result(large, found, shown, provenance, settings, taken)
    return Answer(result, shown, spacing)


def thinning(chains: int, draws: int, numbers: int, room: float, most: int) -> int:
    """Return how far apart draws are taken so that they fit, at least some hundred of them.

    Examples
    --------
    >>> thinning(4, 250_000, 100, room=1e9, most=5000)
    200
    """
    fitting = min(most, max(int(room / 8 / numbers), 200))
    return max(1, -(-chains * draws // fitting))


def _check(large: Large, scores: xr.Dataset, few: dict[str, slice], check: bool) -> str:
    """Look at some draws as the ordinary route looks at all; return whose answer it is."""
    posterior = large.posterior.isel(few)
    validate_scores(scores, posterior)
    provenance = require_sampled_model(scores, large.data, posterior, check)
    if check:
        # All pairs of parameters take more memory than all else; the stream sees every parameter.
        few_parameters = slice(None, None, -(-scores.sizes[PARAMETER] // CHECKED))
        require_matching_scores(scores.isel({PARAMETER: few_parameters}))
        elements = sample_elements(posterior, MAX_GUIDES)
        require_related(elements[..., varying(elements)], np.asarray(scores[DRAW], dtype=float))
    return provenance


def _result(
    large: Large,
    found: Streamed,
    shown: Stacked,
    provenance: str,
    settings: Settings,
    taken: float,
) -> ControlVariateResult:
    template = Stacked(large.integrands, shown.matrix, shown.unit)
    draws = template.unstack_draws(found.adjusted, 0, found.starts)
    total = max(sum(found.shares.values()), 1e-300)
    used = [f"{name} {share / total:.0%}" for name, share in found.shares.items()]
    chains, length = (large.scores.sizes[dim] for dim in SAMPLE_DIMS)
    folds = found.plan.folds
    return ControlVariateResult(
        estimates=xr.concat(
            [template.unstack(found.values[name]) for name in SUMMARY],
            dim=xr.DataArray(list(SUMMARY), dims="summary", name="summary"),
        ),
        draws=draws,
        integrands=large.integrands,
        scores=large.scores,
        settings={
            "family": ", ".join(text for text in used if not text.endswith(" 0%")),
            "members": found.plan.describe(),
            "solver": f"{'SGD' if found.plan.buffer else 'Exact'}, in pieces",
            "folds": f"{chains} chains" if folds == "chain" else f"{folds} blocks",
            "draws": f"{chains} x {length}",
            "provenance": provenance,
            "stream": found.plan.describe(),
            "cost": f"{found.plan.describe_cost()}; {taken:.2g} s taken",
            "random_seed": str(settings.random_seed),
        },
        warnings=(),
        history=pd.DataFrame(found.history) if found.history else None,
    )


def _lazy(values: xr.DataArray) -> Any:
    """Return the array behind labels, of shape (chain, draw, ...), not read."""
    data = values.transpose(*DIMS[:2], ...).data
    return data if hasattr(data, "dask") else np.asarray(data)


def _side_by_side(integrands: xr.Dataset) -> Any:
    """Return every element of every integrand as one array, lazy if one of them is."""
    blocks = [value.data.reshape(*value.shape[:2], -1) for value in integrands.data_vars.values()]
    if all(isinstance(block, np.ndarray) for block in blocks):
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=2)
    import dask.array

    return dask.array.concatenate([dask.array.asarray(block) for block in blocks], axis=2)


def _chunk(values: xr.DataArray) -> int:
    """Return how many draws lie together, 0 for arrays in memory."""
    chunks = values.chunksizes.get("draw", ()) if values.chunks is not None else ()
    return max(chunks, default=0)
