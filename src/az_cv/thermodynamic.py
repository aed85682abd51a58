"""`thermodynamic_evidence` and `smc_evidence`: the evidence from a ladder of temperatures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from az_cv.engine.ladder import Ladder, LadderEstimate, sequential_estimate, thermodynamic_integral
from az_cv.engine.settings import Settings
from az_cv.labelled.evidence import Evidence
from az_cv.labelled.validation import require_matching_scores
from az_cv.notices import collected_notices
from az_cv.sources.schema import scores_dataset
from az_cv.sources.tempered import TEMPERATURE, VARIABLES

if TYPE_CHECKING:
    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.solvers import SGD, Exact
    from az_cv.solvers.folds import FoldChoice


def thermodynamic_evidence(
    ladder: xr.Dataset,
    *,
    order: Literal[1, 2] = 2,
    family: Family | FamilyName = "polynomial",
    solver: Exact | SGD | SolverName = "auto",
    folds: FoldChoice = "auto",
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = False,
) -> Evidence:
    """Estimate the log evidence by controlled thermodynamic integration.

    The log evidence is the integral, over temperatures from 0 to 1, of the expected log likelihood
    under prior times likelihood to the power of the temperature. Each expectation has control
    variates, as in Oates, Papamarkou and Girolami (2016) and the R package ZVCV.

    Parameters
    ----------
    ladder : Dataset
        From :func:`az_cv.temperature_ladder` for a PyMC model, or :func:`az_cv.ladder_dataset` for
        draws of your own.
    order : {1, 2}
        The trapezoidal rule, or its correction by the variances of the log likelihood.
    family : family or name
        As in :func:`az_cv.summary`. Polynomials of order 2 by default, as there are many systems.
    solver, folds, check, random_seed, progressbar
        As in :func:`az_cv.summary`. The check is made at every temperature.

    Returns
    -------
    Evidence
        The gain is over the same rule with plain averages; both errors include that of the rule,
        ``quadrature_error``.

    See Also
    --------
    az_cv.temperature_ladder : Runs a ladder of a PyMC model.
    az_cv.log_evidence : Needs draws of the posterior alone.

    References
    ----------
    Oates, Papamarkou and Girolami (2016), doi:10.1080/01621459.2015.1021006.

    Examples
    --------
    With x ~ N(0, 1) and y = 1 ~ N(x, 1) the posterior at every temperature is known:

    >>> import numpy as np
    >>> import az_cv
    >>> t = np.linspace(0, 1, 9) ** 2
    >>> z = np.random.default_rng(0).normal(size=(9, 4, 100, 1))
    >>> hot = t[:, None, None, None]
    >>> x = hot / (1 + hot) + z / np.sqrt(1 + hot)
    >>> logs = -0.5 * (1 - x[..., 0]) ** 2 - 0.5 * np.log(2 * np.pi)
    >>> ladder = az_cv.ladder_dataset(t, x, -x, 1 - x, logs)
    >>> found = az_cv.thermodynamic_evidence(ladder)
    >>> exact = -0.25 - 0.5 * np.log(4 * np.pi)
    >>> bool(abs(found.log_evidence - exact) < 1e-3)
    True
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2; it is {order!r}.")
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    with collected_notices() as notices:
        read = _read(ladder, check)
        found = thermodynamic_integral(read, settings, order)
    kind = "trapezoidal rule" if order == 1 else "corrected trapezoidal rule"
    result = _evidence(found, read, f"thermodynamic integration, {kind}")
    return replace(result, warnings=tuple(notice.message for notice in notices))


def smc_evidence(
    ladder: xr.Dataset,
    *,
    family: Family | FamilyName = "polynomial",
    solver: Exact | SGD | SolverName = "auto",
    folds: FoldChoice = "auto",
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = False,
) -> Evidence:
    """Estimate the log evidence as sequential Monte Carlo does, with control variates.

    The evidence is the product, over steps of temperature, of the expected likelihood to the power
    of the step, under the draws at the lower end. There is no rule of integration, so that few
    temperatures do; but steps must be short enough for the weights, see ``efficiency`` of
    :func:`az_cv.temperature_ladder`.

    Parameters
    ----------
    ladder : Dataset
        See :func:`thermodynamic_evidence`.
    family, solver, folds, check, random_seed, progressbar
        See :func:`thermodynamic_evidence`.

    Returns
    -------
    Evidence

    See Also
    --------
    az_cv.thermodynamic_evidence : The same from a ladder of chains.

    Examples
    --------
    With x ~ N(0, 1) and y = 1 ~ N(x, 1) the posterior at every temperature is known:

    >>> import numpy as np
    >>> import az_cv
    >>> t = np.linspace(0, 1, 9) ** 2
    >>> z = np.random.default_rng(0).normal(size=(9, 4, 100, 1))
    >>> hot = t[:, None, None, None]
    >>> x = hot / (1 + hot) + z / np.sqrt(1 + hot)
    >>> logs = -0.5 * (1 - x[..., 0]) ** 2 - 0.5 * np.log(2 * np.pi)
    >>> found = az_cv.smc_evidence(az_cv.ladder_dataset(t, x, -x, 1 - x, logs))
    >>> exact = -0.25 - 0.5 * np.log(4 * np.pi)
    >>> bool(abs(found.log_evidence - exact) < 4 * found.mcse)
    True
    """
    settings = Settings(family, solver, folds, random_seed, progressbar, check)
    with collected_notices() as notices:
        read = _read(ladder, check)
        found = sequential_estimate(read, settings)
    result = _evidence(found, read, "sequential Monte Carlo")
    return replace(result, warnings=tuple(notice.message for notice in notices))


def _evidence(found: LadderEstimate, ladder: Ladder, method: str) -> Evidence:
    count, chains, draws = ladder.log_likelihood.shape
    return Evidence(
        log_evidence=found.value,
        mcse=found.mcse,
        plain_log_evidence=found.plain_value,
        plain_mcse=found.plain_mcse,
        diagnostics={"quadrature_error": found.quadrature},
        settings={
            "method": method,
            "draws": f"{count} temperatures, {chains} x {draws} draws each",
        },
    )


def _read(ladder: Any, check: bool) -> Ladder:
    """Check a ladder, and return its arrays by increasing temperature."""
    if not isinstance(ladder, xr.Dataset) or not set(VARIABLES) <= set(ladder.data_vars):
        raise TypeError(
            f"ladder must be a Dataset with {list(VARIABLES)}. az_cv.temperature_ladder runs one "
            "for a PyMC model, az_cv.ladder_dataset builds one from arrays."
        )
    ladder = ladder.sortby(TEMPERATURE)
    temperatures = np.asarray(ladder[TEMPERATURE], dtype=float)
    if len(temperatures) < 2 or temperatures[0] != 0 or temperatures[-1] != 1:
        raise ValueError(
            f"Temperatures must begin with 0, the prior, and end with 1, the posterior; they are "
            f"{temperatures.tolist()}."
        )
    if (np.diff(temperatures) <= 0).any():
        raise ValueError(f"A temperature is there twice: {temperatures.tolist()}.")
    arrays = [np.asarray(ladder[name], dtype=float) for name in VARIABLES]
    for name, array in zip(VARIABLES, arrays):
        if not np.isfinite(array).all():
            raise ValueError(
                f"{name} has {int((~np.isfinite(array)).sum())} values that are not finite."
            )
    found = Ladder(temperatures, *arrays)
    if check:
        for k, temperature in enumerate(temperatures):
            score = found.prior[k] + temperature * found.likelihood[k]
            try:
                require_matching_scores(scores_dataset(found.x[k], score))
            except ValueError as error:
                raise ValueError(f"At temperature {temperature:g}: {error}") from error
    return found
