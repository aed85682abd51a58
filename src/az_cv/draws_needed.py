"""`draws_needed`: how many draws a given error takes, with and without control variates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.containers.labels import listed, scalar_labels
from az_cv.engine.settings import Settings
from az_cv.labelled.pipeline import fit_integrands, matched_scores, prepare
from az_cv.labelled.stacking import stack
from az_cv.labelled.streaming import Question
from az_cv.notices import collected_notices, silenced
from az_cv.solvers import Exact
from az_cv.solvers.error_model import ERROR_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.labelled.integrands import Integrand
    from az_cv.solvers import SGD

COLUMNS = ("plain_mcse_mean", "plain_draws", "mcse_mean", "rate", "draws")
PARTS = (1, 2, 4)  # each chain is cut into this many parts of equal length
FEWEST = 25  # draws of a chain that a part must have
PLAIN_RATE = 0.5
# Plain averages are among what is combined, so that errors fall no slower than theirs in the long
# run. Faster than the upper limit no error was seen to fall.
RATES = (PLAIN_RATE, 2.5)
# Seven errors of one run tell a rate badly, so the usual one is mixed in. The error of all the
# draws is one noisy number, and the line through all errors has a bend: both count.
USUAL_RATE = 1.25
MEASURED = 0.6
# With many draws settings are chosen on a part of them, and errors fall more slowly.
MANY = 2 * Exact().search_draws
SLOWER = 0.6
# Few draws are judged by worse fits, and many are not, which would look like a step in the rate.
UNJUDGED = replace(ERROR_MODEL, judged_draws=0)


def draws_needed(
    data: Any,
    fn: Integrand = None,
    *,
    mcse: float | Mapping[str, float],
    model: Any = None,
    scores: xr.Dataset | None = None,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: dict[str, Any] | None = None,
    family: Family | FamilyName = "auto",
    solver: Exact | SGD | SolverName = "auto",
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> pd.DataFrame:
    """Estimate how many draws the mean of each quantity needs for a given Monte Carlo error.

    The error of a plain average falls as ``n ** -0.5``. The error of `az_cv` falls at a rate that
    differs from posterior to posterior. It is measured: control variates are fitted to every
    quarter and every half of the draws and to all of them, and a line is put through the logarithms
    of the errors. Seven errors of one run are noisy. So the rate is three fifths of the measured
    one and two fifths of a usual one, and the line and the error of all draws share the say in
    where errors start. Beyond 2,000 draws errors were seen to fall at six tenths of their rate.
    Where slopes of three and more quantities differ by no more than their own errors explain, the
    median slope stands for all of them.

    Parameters
    ----------
    data : InferenceData, DataTree, CmdStanMCMC, NumPyro's MCMC, or what ``arviz_base`` converts
        A pilot run. Each chain must have 100 draws at least. It is not modified.
    fn : callable, dict of callables, or None
        As in :func:`az_cv.summary`.
    mcse : float or mapping
        The standard error to reach, one for all quantities, or one for each row by its label.
    model, scores, var_names, filter_vars, coords, family, solver, check, random_seed, progressbar
        As in :func:`az_cv.summary`.

    Returns
    -------
    pandas.DataFrame
        One row for each quantity. ``plain_mcse_mean`` and ``mcse_mean`` are the errors now,
        ``plain_draws`` and ``draws`` the numbers of draws, over all chains, for the error asked
        for. ``rate`` is the power of ``1 / n`` at which the error of `az_cv` falls. ``draws`` is
        never below a quarter of the draws at hand, the fewest that were tried. ``attrs`` tells the
        number of draws at hand. ``mcse_mean`` is that of one run, and ``draws`` are those that give
        the error on average over runs. So ``draws`` can be below the draws at hand although
        ``mcse_mean`` is above the error asked for: then this run was unlucky.

    See Also
    --------
    az_cv.summary : The estimates and their errors.

    Notes
    -----
    The answer is a rough extrapolation, and single pilot runs are off by a factor of two, see
    ``examples/benchmarks/draws_needed.py``. Sample in batches and look at the error after each, as
    the page *A given precision* shows, rather than rely on a number ten times the draws at hand.

    Examples
    --------
    >>> import az_cv
    >>> pilot = az_cv.load_eight_schools().isel(draw=slice(200))
    >>> options = {"var_names": ["mu"], "family": "polynomial"}
    >>> table = az_cv.draws_needed(pilot, mcse=0.05, **options)
    >>> print(table[["plain_draws", "draws"]].round(-2))
        plain_draws  draws
    mu       3700.0  200.0
    """
    settings = Settings(family, solver, "auto", random_seed, progressbar, check)
    with collected_notices():
        scores, posterior, _ = matched_scores(data, model, scores, settings)
        # Without labels every part would count from zero.
        posterior = posterior.assign_coords(chain=scores["chain"], draw=scores["draw"])
        draws = posterior.sizes["draw"]
        if draws < FEWEST * max(PARTS):
            raise ValueError(
                f"The chains have {draws} draws; draws_needed cuts them into quarters and needs "
                f"{FEWEST * max(PARTS)} at least. Sample a longer pilot run."
            )
        question = Question(fn, var_names, filter_vars, coords)
        judged = replace(settings, check=False)  # once is enough
        unjudged = replace(judged, errors=UNJUDGED)
        full = whole = _estimates(posterior, scores, question, judged)
        parts = parts_of_run(draws)
        with silenced():  # what there is to say was said of all the draws
            if posterior.sizes["chain"] * draws <= ERROR_MODEL.judged_draws:
                whole = _estimates(posterior, scores, question, unjudged)
            found = [whole]
            for part in parts[1:]:
                chosen = posterior.isel(draw=part), scores.isel(draw=part)
                found.append(_estimates(*chosen, question, unjudged))
    errors = np.array([_column(estimates, "mcse_mean") for estimates in found])
    labels = scalar_labels(full, skip_dims=("summary",))
    target = _targets(mcse, labels)
    plain = _column(full, "plain_mcse_mean")
    chains = posterior.sizes["chain"]
    counts = chains * np.array([len(part) for part in parts])
    # What only rounding leaves is no error that could fall.
    resolved = np.where(errors > ERROR_MODEL.exact * plain, errors, 0.0)
    rate, needed = extrapolate(counts, resolved, target)
    table = pd.DataFrame(
        {
            "plain_mcse_mean": plain,
            "plain_draws": np.ceil(chains * draws * (plain / target) ** (1 / PLAIN_RATE)),
            "mcse_mean": _column(full, "mcse_mean"),
            "rate": rate,
            "draws": np.ceil(needed),
        },
        index=labels,
        columns=list(COLUMNS),
    )
    table.attrs["draws"] = f"{chains} x {draws}"
    return table


def parts_of_run(draws: int) -> list[Int[np.ndarray, " m"]]:
    """Return the draws of the whole run, of its halves and of its quarters.

    Examples
    --------
    >>> [len(part) for part in parts_of_run(150)]
    [150, 75, 75, 38, 38, 37, 37]
    """
    return [part for parts in PARTS for part in np.array_split(np.arange(draws), parts)]


def extrapolate(
    counts: Float[np.ndarray, " k"], errors: Float[np.ndarray, "k q"], target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rate at which each error falls, and the draws at which it is the one asked for.

    Parameters
    ----------
    counts : array of shape (k,)
        Numbers of draws, those of the whole run first.
    errors : array of shape (k, q)
        What so many draws have as errors.
    target : array of shape (q,)
        The errors asked for.

    Examples
    --------
    >>> counts = np.array([400, 200, 100])
    >>> errors, target = counts[:, None] ** -1.25, np.array([800**-1.25])
    >>> rate, needed = extrapolate(counts, errors, target)
    >>> print(rate, needed.round(3))
    [1.25] [800.]
    """
    x = np.log(counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(errors)
        centred = x - x.mean()
        slope = -(centred @ y) / (centred @ centred)
        scatter = y - y.mean(axis=0) + centred[:, None] * slope
        measured = _shrunk(slope, (scatter**2).sum(axis=0), centred)
        rate = np.clip(MEASURED * measured + (1 - MEASURED) * USUAL_RATE, *RATES)
        line = y.mean(axis=0) + rate * (x.mean() - x.max())
        start = MEASURED * line + (1 - MEASURED) * y[0]
        bend = max(np.log(MANY), x.max())
        before = x.max() + (start - np.log(target)) / rate
        after = bend + (before - bend) * rate / np.maximum(SLOWER * rate, PLAIN_RATE)
        needed = np.exp(np.where(before > bend, after, before))
    # Without an error, as constants and some means of Gaussians are, the fewest tried suffice.
    exact = (errors == 0).any(axis=0)
    needed = np.where(exact, 0.0, needed)
    return np.where(exact, np.nan, rate), np.maximum(needed, counts.min())


def _shrunk(slope: np.ndarray, squares: np.ndarray, centred: np.ndarray) -> np.ndarray:
    """Move slopes towards their median, the more the less they differ beyond their own errors."""
    known = np.isfinite(slope)
    if known.sum() < 3:
        return slope
    noise = np.median(squares[known]) / (len(centred) - 2) / (centred @ centred)
    between = max(float(np.var(slope[known])) - noise, 0.0)
    share = between / (between + noise) if noise > 0 else 1.0
    return np.asarray(share * slope + (1 - share) * np.median(slope[known]))


def _estimates(
    posterior: xr.Dataset, scores: xr.Dataset, question: Question, settings: Settings
) -> xr.Dataset:
    """Return what `az_cv.fit` finds with these settings."""
    prepared = prepare(posterior, None, scores, settings)
    integrands = question.of(prepared.posterior).compute()
    return fit_integrands(prepared, stack(integrands)).estimates


def _column(estimates: xr.Dataset, name: str) -> np.ndarray:
    return np.concatenate(
        [np.ravel(values.sel(summary=name).values) for values in estimates.data_vars.values()]
    )


def _targets(mcse: float | Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """Return the error asked for in each row."""
    if isinstance(mcse, Mapping):
        missing = [label for label in labels if label not in mcse]
        if missing:
            raise ValueError(f"mcse has no error for {listed(missing)}. Give one for each row.")
        values = np.array([mcse[label] for label in labels], dtype=float)
    else:
        values = np.full(len(labels), mcse, dtype=float)
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"mcse must be a positive number, or one for each row; it is {mcse!r}.")
    return values
