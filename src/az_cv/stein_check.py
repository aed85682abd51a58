"""Do the gradients belong to the draws? Stein identities, tested before any number is reported.

If ``s`` is the score of the distribution that the draws ``x`` come from, then ``E[s] = 0`` and
``E[(x - E x) s'] = -I``. Both are averages over the draws, so each has a standard error and a
z-score. Another model, other data, a flipped sign, shuffled columns, draws of other chains, a
missing Jacobian and chains that have not converged all break them, each in its own way.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import scipy.optimize
import scipy.stats
from arviz_stats.base import array_stats

from az_cv.checks import validate_scores
from az_cv.idata import as_idata, get_group, model_of
from az_cv.scores.dispatch import scores as find_scores
from az_cv.scores.schema import DRAW, GRADIENT, PARAMETER
from az_cv.standardise import fit_whitening

if TYPE_CHECKING:
    import xarray as xr
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]

# Probability, over all identities together, that correct gradients are doubted or refused; and the
# deviation, in posterior sds, below which wrong ones are not worth a refusal.
DOUBTFUL, REFUSED, MATERIAL = 1e-4, 1e-6, 0.1
CONVERGED = 1.1  # r_hat


class ScoreWarning(UserWarning):
    """Gradients or chains look wrong, though not so clearly that they are refused.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", ScoreWarning)  # refuse what is merely doubtful
    """


@dataclass(frozen=True, repr=False)
class ScoreCheck:
    """Report on the Stein identities.

    Attributes
    ----------
    table : DataFrame
        Per unconstrained parameter: ``mean_score`` (0 expected, in units of one over the posterior
        sd) and ``slope``, the average of ``(x - E x) s`` (-1 expected), with their z-scores;
        ``r_hat``.
    verdict : {"pass", "doubtful", "fail"}
    problems : tuple of str
        What is wrong, and the likeliest cause.
    p_value : float
        Of the most extreme identity, times the number of identities.
    deviation : float
        Largest significant deviation from an identity, in standardised units.

    Examples
    --------
    >>> import az_cv
    >>> report = az_cv.check_scores(az_cv.load_eight_schools())
    >>> report.problems
    ()
    """

    table: pd.DataFrame
    verdict: Literal["pass", "doubtful", "fail"]
    problems: tuple[str, ...]
    p_value: float
    deviation: float

    def __repr__(self) -> str:
        head = f"Stein identities: {self.verdict} (p = {self.p_value:.2g} over all of them)"
        return "\n".join([head, *self.problems, self.table.to_string(float_format="%.3g")])


def check_scores(
    data: Any, scores: xr.Dataset | None = None, *, model: Any = None, progressbar: bool = False
) -> ScoreCheck:
    """Test whether gradients belong to draws, by Stein identities.

    Parameters
    ----------
    data : InferenceData, DataTree or what ``arviz_base`` converts
    scores : Dataset, optional
        As from :func:`az_cv.scores`. Found in `data`, or computed from `model`, when not given.
    model : optional
        See :func:`az_cv.scores`.
    progressbar : bool

    Returns
    -------
    ScoreCheck

    Examples
    --------
    >>> import az_cv
    >>> az_cv.check_scores(az_cv.load_eight_schools()).verdict
    'pass'
    """
    idata = as_idata(data)
    if scores is None:
        scores = find_scores(idata, model=model_of(data, model), progressbar=progressbar)
    scores, _ = validate_scores(scores, get_group(idata, "posterior"))
    return examine(scores)


def require_matching_scores(scores: xr.Dataset) -> None:
    """Raise if gradients clearly do not belong to the draws, warn if they look doubtful."""
    report = examine(scores)
    message = " ".join(report.problems)
    if report.verdict == "fail":
        raise ValueError(
            f"The gradients do not belong to these draws. {message} "
            "az_cv.check_scores shows every identity; check=False goes on regardless."
        )
    if report.verdict == "doubtful":
        warnings.warn(message, ScoreWarning, stacklevel=2)


def examine(scores: xr.Dataset) -> ScoreCheck:
    """Test the identities of a scores Dataset."""
    x = np.asarray(scores[DRAW], dtype=float)
    s = np.asarray(scores[GRADIENT], dtype=float)
    names = (
        [str(name) for name in scores[PARAMETER].values]
        if PARAMETER in scores.coords
        else [str(j) for j in range(x.shape[2])]
    )
    draws, d = x.shape[1:]
    white_x, white_s = _standardise(x, s)
    mean, mean_error, slope, slope_error, freedom = identities(white_x, white_s)
    deviations = np.concatenate([mean, (slope + np.eye(len(mean))).ravel()])
    errors = np.concatenate([mean_error, slope_error.ravel()])
    trace, trace_error = _overall_slope(white_x, white_s)
    deviations, errors = np.append(deviations, trace + 1), np.append(errors, trace_error)
    z = z_scores(deviations, errors, freedom)
    p_values = np.minimum(1.0, 2 * scipy.stats.norm.sf(np.abs(z)) * len(z))
    p_value = float(p_values.min())
    significant = p_values < DOUBTFUL
    deviation = float(np.abs(deviations[significant]).max(initial=0.0))
    r_hat = _r_hat(x)
    table = _table(x, s, names, r_hat)
    problems = []
    if significant.any():
        problems.append(_likeliest_cause(x, s, trace, names))
    # Short chains disagree by chance.
    limit = max(CONVERGED, 1 + 10 / draws)
    stuck = int(np.nansum(r_hat > limit))
    if stuck:
        worst = int(np.nanargmax(r_hat))
        problems.append(
            f"The chains have not converged: r_hat exceeds {limit:.3g} for {stuck} of {d} "
            f"parameters, {r_hat[worst]:.2f} for {names[worst]}. Sample longer or reparametrise; "
            "no control variate repairs that."
        )
    failed = p_value < REFUSED and deviation > MATERIAL
    verdict: Literal["pass", "doubtful", "fail"] = (
        "fail" if failed else "doubtful" if problems else "pass"
    )
    return ScoreCheck(table, verdict, tuple(problems), p_value, deviation)


def _standardise(x: Chains, s: Chains) -> tuple[Chains, Chains]:
    """Whiten; scale only where the draws are too few to tell their covariance."""
    chains, draws, d = x.shape
    if chains * draws < 10 * d:
        sd = x.std(axis=(0, 1))
        scale = np.where(sd > 0, sd, 1.0)
        return (x - x.mean(axis=(0, 1))) / scale, s * scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a singular covariance: fitting reports it
        whitening = fit_whitening(x.reshape(-1, d))
    return (
        whitening.draws(x.reshape(-1, d)).reshape(chains, draws, -1),
        whitening.scores(s.reshape(-1, d)).reshape(chains, draws, -1),
    )


def identities(x: Chains, s: Chains) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, int]:
    """Return ``E[s]`` and ``E[(x - E x) s']`` with standard errors by batch means.

    Returns
    -------
    mean, mean_error : arrays of shape (d,)
    slope, slope_error : arrays of shape (d, d)
    freedom : int
        Degrees of freedom of the errors.
    """
    centred = x - x.mean(axis=(0, 1))
    d = x.shape[2]
    first, second = np.zeros(d), np.zeros(d)
    first_slope, second_slope = np.zeros((d, d)), np.zeros((d, d))
    batches = list(_batches(x.shape[0], x.shape[1]))
    for chain, rows in batches:
        mean = s[chain, rows].mean(axis=0)
        slope = centred[chain, rows].T @ s[chain, rows] / len(s[chain, rows])
        first, second = first + mean, second + mean**2
        first_slope, second_slope = first_slope + slope, second_slope + slope**2
    count = len(batches)

    def average(total: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        centre = total / count
        variance = np.maximum(squares / count - centre**2, 0) / (count - 1)
        return centre, np.sqrt(variance)

    return *average(first, second), *average(first_slope, second_slope), count - 1


def _batches(chains: int, draws: int) -> itertools.product[tuple[int, slice]]:
    """Cut each chain into about as many batches as each batch has draws."""
    number = max(2, int(np.sqrt(draws)))
    length = draws // number
    slices = [slice(k * length, (k + 1) * length) for k in range(number)]
    return itertools.product(range(chains), slices)


def _overall_slope(x: Chains, s: Chains) -> tuple[float, float]:
    """Return the average of ``(x - E x) s`` over all coordinates, and its standard error."""
    product = ((x - x.mean(axis=(0, 1))) * s).mean(axis=2)
    means = np.array([product[chain, rows].mean() for chain, rows in _batches(*product.shape)])
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def z_scores(deviation: np.ndarray, error: np.ndarray, freedom: int) -> np.ndarray:
    """Return normal z-scores with the tail probability of Student's t."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, deviation / error, 0.0)
    # A mean score that is constant has no error; a deviation beyond rounding is then certain.
    t = np.where((error == 0) & (np.abs(deviation) > 1e-8), np.sign(deviation) * 1e6, t)
    tail = np.maximum(scipy.stats.t.sf(np.abs(t), freedom), 1e-300)
    return np.sign(t) * np.abs(scipy.stats.norm.isf(tail))


def _r_hat(x: Chains) -> Float[np.ndarray, " d"]:
    if x.shape[1] < 4:
        return np.full(x.shape[2], np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = array_stats.rhat(np.moveaxis(x, 2, 0), chain_axis=1, draw_axis=2)
    return np.asarray(values, dtype=float).reshape(x.shape[2])


def _table(x: Chains, s: Chains, names: list[str], r_hat: np.ndarray) -> pd.DataFrame:
    """Return the identities parameter by parameter, in units of each posterior sd."""
    sd = x.std(axis=(0, 1))
    scale = np.where(sd > 0, sd, 1.0)
    products = (x - x.mean(axis=(0, 1))) * s
    batches = list(_batches(*x.shape[:2]))
    score_means = np.array([(s[c, rows] * scale).mean(axis=0) for c, rows in batches])
    slope_means = np.array([products[c, rows].mean(axis=0) for c, rows in batches])
    columns: dict[str, np.ndarray] = {}
    for name, means, expected in (("mean_score", score_means, 0.0), ("slope", slope_means, -1.0)):
        centre = means.mean(axis=0)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        columns[name] = centre
        columns[f"z_{name}"] = z_scores(centre - expected, error, len(means) - 1)
    return pd.DataFrame({**columns, "r_hat": r_hat}, index=pd.Index(names, name="parameter"))


def _likeliest_cause(x: Chains, s: Chains, overall_slope: float, names: list[str]) -> str:
    """Name what is most probably wrong, given that an identity is broken."""
    if overall_slope > 0.5:
        return "Their sign is flipped: E[(x - E x) s'] is +1 where -1 is expected. Negate them."
    permutation = _column_permutation(x, s)
    if permutation is not None:
        moved = [j for j, k in enumerate(permutation) if j != k]
        pairs = ", ".join(f"{names[permutation[j]]} under {names[j]}" for j in moved[:4])
        return f"Their columns are in another order: the gradient of {pairs}. Reorder them."
    order = _chain_order(x, s)
    if order is not None:
        return f"Chains are in another order: the gradients are those of chains {order}."
    if abs(overall_slope) < 0.3:
        return (
            "They are unrelated to the draws at the same place (E[(x - E x) s'] is near 0 where -1 "
            "is expected): gradients of other draws, or of draws in another order."
        )
    chain = _odd_chain(x, s)
    if chain is not None:
        return (
            f"Chain {chain} alone breaks the identities: it has not converged, or its gradients "
            "come from elsewhere."
        )
    shifted = _constant_shift(x, s, names)
    if shifted:
        return (
            f"The mean score of {', '.join(shifted)} is off by one: the log Jacobian of a log "
            "transform is missing. Gradients must be of the unconstrained log density."
        )
    return (
        "E[s] = 0 or E[(x - E x) s'] = -I fails: they come from another model or other data, lack "
        "the Jacobian of a transform, or the chains have not converged."
    )


def _column_permutation(x: Chains, s: Chains) -> list[int] | None:
    """Return which parameter each gradient column belongs to, if that is not its own."""
    d = x.shape[2]
    centred = (x - x.mean(axis=(0, 1))).reshape(-1, d)
    flat = s.reshape(-1, d)
    slope = centred.T @ flat / len(flat)
    if d < 2 or not np.isfinite(slope).all():
        return None
    noise = centred.std(axis=0)[:, None] * flat.std(axis=0) / np.sqrt(len(flat))
    evidence = np.clip(slope, -1.5, 0) / np.maximum(noise, 1e-12)
    parameter, column = scipy.optimize.linear_sum_assignment(evidence)
    belongs = np.empty(d, dtype=int)
    belongs[column] = parameter
    right = np.abs(slope[belongs, np.arange(d)] + 1) < 0.4
    if (belongs == np.arange(d)).all() or right.mean() < 0.9:
        return None
    return belongs.tolist()


def _chain_order(x: Chains, s: Chains) -> list[int] | None:
    """Return the chain each chain's gradients belong to, if that is not its own."""
    chains = len(x)
    if chains < 2:
        return None
    scale = x.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    centred = (x - x.mean(axis=(0, 1))) / scale
    slope = np.array([[(a * b * scale).mean() for b in s] for a in centred])
    belongs = scipy.optimize.linear_sum_assignment(slope)[1]
    if (belongs == np.arange(chains)).all() or not (
        np.abs(slope[np.arange(chains), belongs] + 1) < 0.4
    ).all():
        return None
    return np.argsort(belongs).tolist()


def _odd_chain(x: Chains, s: Chains) -> int | None:
    """Return the one chain without which the identities hold, if there is exactly one."""
    if len(x) < 3:
        return None
    odd = []
    for chain in range(len(x)):
        rest = [k for k in range(len(x)) if k != chain]
        mean, error, slope, slope_error, freedom = identities(x[rest], s[rest])
        deviations = np.concatenate([mean, (slope + np.eye(len(mean))).ravel()])
        z = z_scores(deviations, np.concatenate([error, slope_error.ravel()]), freedom)
        if 2 * scipy.stats.norm.sf(np.abs(z).max()) * len(z) > DOUBTFUL:
            odd.append(chain)
    return odd[0] if len(odd) == 1 else None


def _constant_shift(x: Chains, s: Chains, names: list[str]) -> list[str]:
    """Return the parameters whose mean score is off by one while everything else is right."""
    mean, error, _, _, _ = identities(x, s)
    off = np.abs(mean) > 3 * error
    by_one = np.abs(np.abs(mean) - 1) < np.maximum(2 * error, 0.05)
    return (
        [name for name, a, b in zip(names, off, by_one) if a and b] if (by_one | ~off).all() else []
    )
