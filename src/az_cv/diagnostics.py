"""Diagnostics of the draws that scores give for free: Stein discrepancy and convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.stats

from az_cv.containers.idata import as_idata, get_group, model_of
from az_cv.engine.identities import identities, z_scores
from az_cv.engine.score_check import ScoreCheck
from az_cv.engine.whitening import fit_whitening
from az_cv.families.kernel import Kernel
from az_cv.labelled.validation import validate_scores
from az_cv.sources.dispatch import scores as find_scores
from az_cv.sources.schema import DRAW, GRADIENT

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["ScoreCheck", "stein_diagnostics"]

TILE = 500


def stein_diagnostics(
    data: Any, scores: xr.Dataset | None = None, *, model: Any = None, progressbar: bool = False
) -> pd.DataFrame:
    """Tell how well each chain, and all of them together, represents the posterior.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    scores : Dataset, optional
        Found in `data`, or computed from `model`, when not given.
    model : optional
        See :func:`az_cv.scores`.
    progressbar : bool

    Returns
    -------
    pandas.DataFrame
        One row per chain and a row ``all``. ``ksd``: kernel Stein discrepancy (inverse multiquadric
        kernel, standardised draws), which tends to zero only for draws from the posterior;
        ``ksd_ratio``: its ratio to what as many independent draws would give on average, so that
        values far above one tell of slow mixing or bias; ``z_score``: the largest z-score of a
        Stein identity, adjusted for how many there are.

    See Also
    --------
    az_cv.check_scores : The Stein identities, parameter by parameter.

    Examples
    --------
    >>> import az_cv
    >>> table = az_cv.diagnostics.stein_diagnostics(az_cv.load_eight_schools())
    >>> bool((table["ksd_ratio"] < 3).all())
    True
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, _ = validate_scores(scores, get_group(idata, "posterior"))
    x = np.asarray(scores[DRAW], dtype=float)
    s = np.asarray(scores[GRADIENT], dtype=float)
    chains, draws, d = x.shape
    whitening = fit_whitening(x.reshape(-1, d))
    x = whitening.draws(x.reshape(-1, d)).reshape(chains, draws, -1)
    s = whitening.scores(s.reshape(-1, d)).reshape(chains, draws, -1)
    kernel = Kernel(length_scale=float(np.sqrt(2 * x.shape[2])))
    labels = [str(chain) for chain in scores["chain"].values]
    rows = {label: _row(kernel, x[k : k + 1], s[k : k + 1]) for k, label in enumerate(labels)}
    rows["all"] = _row(kernel, x, s)
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis("chain")


def _row(kernel: Kernel, x: np.ndarray, s: np.ndarray) -> dict[str, float]:
    flat_x, flat_s = x.reshape(-1, x.shape[2]), s.reshape(-1, x.shape[2])
    n = len(flat_x)
    total = diagonal = 0.0
    for start in range(0, n, TILE):
        rows = slice(start, start + TILE)
        block = kernel.gram(flat_x[rows], flat_s[rows], flat_x, flat_s)
        total += float(block.sum())
        diagonal += float(np.trace(block[:, start:]))
    mean, mean_error, slope, slope_error, freedom = identities(x, s)
    deviation = np.concatenate([mean, (slope + np.eye(len(mean))).ravel()])
    z = z_scores(deviation, np.concatenate([mean_error, slope_error.ravel()]), freedom)
    adjusted = min(1.0, 2 * float(scipy.stats.norm.sf(np.abs(z).max())) * len(z))
    return {
        "draws": float(n),
        "ksd": np.sqrt(max(total, 0.0)) / n,
        "ksd_ratio": np.sqrt(max(total, 0.0) / diagonal),
        "z_score": float(scipy.stats.norm.isf(adjusted / 2)),
    }
