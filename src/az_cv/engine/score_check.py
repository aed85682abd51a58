"""Do the gradients belong to the draws? Stein identities, tested before any number is reported.

If ``s`` is the score of the distribution that the draws ``x`` come from, then ``E[s] = 0`` and
``E[(x - E x) s'] = -I``. Both are averages over the draws, so each has a standard error and a
z-score. Quite another model, a flipped sign, shuffled columns, draws of other chains, a missing
Jacobian and chains that have not converged all break them, each in its own way. A slightly
different model does not: see :mod:`az_cv.engine.density_check`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
import scipy.stats

from az_cv.engine.causes import DOUBTFUL, likeliest_cause
from az_cv.engine.identities import batches, identities, overall_slope, standardise, z_scores
from az_cv.engine.rank_diagnostics import rank_r_hat

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]

# Probability that correct gradients are refused; and the deviation, in posterior sds, below which
# wrong ones are not worth a refusal.
REFUSED, MATERIAL = 1e-6, 0.1
CONVERGED = 1.1  # r_hat


class ScoreWarning(UserWarning):
    """Gradients or chains look wrong, though not so clearly that they are refused.

    See Also
    --------
    az_cv.check_scores : Says what disagrees.

    Examples
    --------
    >>> import warnings
    >>> from az_cv import ScoreWarning
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
        P-value of the most extreme identity, times the number of identities.
    deviation : float
        Largest significant deviation from an identity, in standardised units.

    See Also
    --------
    az_cv.check_scores : Returns it.
    az_cv.plots.plot_stein_check : Draws it.

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


def examine(x: Chains, s: Chains, names: list[str]) -> ScoreCheck:
    """Test the identities of draws and scores.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
    names : list of str
        Names of the d parameters.
    """
    draws, d = x.shape[1:]
    white_x, white_s = standardise(x, s)
    mean, mean_error, slope, slope_error, freedom = identities(white_x, white_s)
    deviations = np.concatenate([mean, (slope + np.eye(len(mean))).ravel()])
    errors = np.concatenate([mean_error, slope_error.ravel()])
    trace, trace_error = overall_slope(white_x, white_s)
    deviations, errors = np.append(deviations, trace + 1), np.append(errors, trace_error)
    z = z_scores(deviations, errors, freedom)
    p_values = np.minimum(1.0, 2 * scipy.stats.norm.sf(np.abs(z)) * len(z))
    p_value = float(p_values.min())
    significant = p_values < DOUBTFUL
    deviation = float(np.abs(deviations[significant]).max(initial=0.0))
    r_hat = rank_r_hat(x)
    table = _table(x, s, names, r_hat)
    problems = []
    if significant.any():
        problems.append(likeliest_cause(x, s, trace, names))
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


def _table(x: Chains, s: Chains, names: list[str], r_hat: np.ndarray) -> pd.DataFrame:
    """Return the identities parameter by parameter, in units of each posterior sd."""
    sd = x.std(axis=(0, 1))
    scale = np.where(sd > 0, sd, 1.0)
    products = (x - x.mean(axis=(0, 1))) * s
    parts = list(batches(*x.shape[:2]))
    score_means = np.array([(s[c, rows] * scale).mean(axis=0) for c, rows in parts])
    slope_means = np.array([products[c, rows].mean(axis=0) for c, rows in parts])
    columns: dict[str, np.ndarray] = {}
    for name, means, expected in (("mean_score", score_means, 0.0), ("slope", slope_means, -1.0)):
        centre = means.mean(axis=0)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        columns[name] = centre
        columns[f"z_{name}"] = z_scores(centre - expected, error, len(means) - 1)
    return pd.DataFrame({**columns, "r_hat": r_hat}, index=pd.Index(names, name="parameter"))
