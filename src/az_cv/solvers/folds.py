"""Which draws a control variate may not see when it is evaluated on a draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from arviz_stats.base import array_stats

from az_cv.solvers.error_model import ERROR_MODEL

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from az_cv.solvers.error_model import ErrorModel

    FoldChoice = Literal["auto", "chain"] | int | float | None


@dataclass(frozen=True)
class Folds:
    """A partition of the draws, numbered chain by chain.

    Attributes
    ----------
    blocks : tuple of index arrays
        Each is left out together.
    first_draw : int
        Draws of each chain before this one are in no block: they only train.
    in_sample : bool
        Whether the estimate is the intercept fitted to all draws (with its error still judged on
        draws left out) instead of the mean over draws left out.
    label : str
        A name for people to read.
    visit : int
        Draws that a chain stays in one region: the slowest autocorrelation time.
    distinct : tuple of index arrays, optional
        Draws that are equal, where the estimate leaves out no more than these: its error takes
        longer runs, but fits to more draws are better.
    """

    blocks: tuple[Int[np.ndarray, " b"], ...]
    first_draw: int
    in_sample: bool
    label: str
    visit: int = 1
    distinct: tuple[Int[np.ndarray, " b"], ...] | None = None


def make_folds(
    choice: FoldChoice,
    x: Float[np.ndarray, "chain draw d"],
    errors: ErrorModel = ERROR_MODEL,
) -> Folds:
    """Turn the user's choice into a partition.

    Parameters
    ----------
    choice : "auto", "chain", int, float or None
        ``"auto"`` leaves out single draws, and for the error runs of ten autocorrelation times
        when the chains move slowly; ``None`` estimates in sample, with the same error;
        ``"chain"`` leaves out whole chains (contiguous blocks when there is one chain); an integer
        leaves out that many contiguous blocks of each chain in turn; a fraction trains on that part
        of each chain and evaluates on the rest.
    x : array of shape (chain, draw, d)
        Standardised draws.
    errors : ErrorModel, optional
        How long the runs are.

    Examples
    --------
    >>> import numpy as np
    >>> folds = make_folds("chain", np.zeros((4, 100, 2)))
    >>> len(folds.blocks), folds.label
    (4, '4 chains')
    """
    chains, draws = x.shape[:2]
    rows = np.arange(chains * draws).reshape(chains, draws)
    if choice is None or choice == "auto":
        visit = run_length(x, errors)
        longest = max(1, draws // errors.runs_per_chain)
        run = 1 if visit == 1 else min(int(errors.run_times * visit), longest)
        label = "leave-one-out" if run == 1 else f"leave-{run}-out"
        blocks = tuple(_runs(rows, x, run))
        distinct = tuple(_runs(rows, x, 1)) if run > 1 and choice == "auto" else None
        return Folds(blocks, 0, choice is None, label, visit, distinct)
    if choice == "chain":
        if chains > 1:
            return Folds(tuple(rows), 0, False, f"{chains} chains")
        choice = 4
    require_fold_choice(choice)
    if isinstance(choice, int | np.integer):
        if not 2 <= choice <= draws:
            raise ValueError(f"folds={choice} blocks do not fit {draws} draws per chain.")
        pieces = [np.array_split(chain, choice) for chain in rows]
        blocks = tuple(np.concatenate([piece[k] for piece in pieces]) for k in range(choice))
        return Folds(blocks, 0, False, f"{choice} blocks")
    first = round(choice * draws)
    if not 0 < choice < 1 or not 1 <= first < draws - 1:
        raise ValueError(f"folds={choice} leaves no draws to train on or to evaluate on.")
    return Folds((rows[:, first:].ravel(),), first, False, f"split {choice:g}")


def require_fold_choice(choice: object) -> None:
    """Refuse what is none of the choices, whatever the draws.

    Examples
    --------
    >>> require_fold_choice([2])
    Traceback (most recent call last):
    ValueError: folds must be 'auto', 'chain', a number of blocks, a fraction or None; it is [2].
    """
    if choice is None or (isinstance(choice, str) and choice in ("auto", "chain")):
        return
    is_number = isinstance(choice, int | float | np.integer) and not isinstance(choice, bool)
    if not is_number or not math.isfinite(choice):  # type: ignore[arg-type]
        raise ValueError(
            "folds must be 'auto', 'chain', a number of blocks, a fraction or None; "
            f"it is {choice!r}."
        )


def run_length(x: Float[np.ndarray, "chain draw d"], errors: ErrorModel = ERROR_MODEL) -> int:
    """Return the slowest autocorrelation time of the coordinates and of their squares, in draws.

    A draw close to its predecessor is predicted from it, whatever the quality of the fit.
    Hamiltonian samplers jump from side to side, and keep their distance from the centre for longer.
    """
    chains, draws, _ = x.shape
    if draws < 4:
        return 1
    series = np.concatenate([x, x**2], axis=2)
    ess = np.asarray(
        array_stats.ess(np.moveaxis(series, 2, 0), chain_axis=1, draw_axis=2, method="mean")
    )
    time = chains * draws / max(float(np.nanmin(ess)), 1.0) if np.isfinite(ess).any() else 1.0
    if time < errors.independence:
        return 1
    return min(math.ceil(time), max(1, draws // errors.visits_per_chain))


def _runs(
    rows: Int[np.ndarray, "chain draw"], x: Float[np.ndarray, "chain draw d"], run: int
) -> list[Int[np.ndarray, " b"]]:
    """Cut each chain into runs, never between two identical draws (Metropolis rejections)."""
    blocks = []
    for chain, draws in zip(rows, x):
        moved = np.concatenate([[True], (np.diff(draws, axis=0) != 0).any(axis=1)])
        starts = np.flatnonzero(moved)
        following = np.searchsorted(starts, np.arange(run, len(chain), run))
        blocks += np.split(chain, np.unique(starts[following[following < len(starts)]]))
    return blocks
