"""`temperature_ladder`: draws from the prior to the posterior of a PyMC model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr

from az_cv.containers.idata import as_idata, get_group
from az_cv.engine.ladder import next_temperature
from az_cv.notices import notify
from az_cv.sources.pymc_model import require_evidence
from az_cv.sources.tempered import ladder_dataset, split_scores, tempered_model

if TYPE_CHECKING:
    import pymc as pm


def temperature_ladder(
    model: pm.Model,
    *,
    efficiency: float = 0.7,
    draws: int = 500,
    tune: int = 500,
    chains: int = 4,
    max_temperatures: int = 50,
    random_seed: int | None = None,
    progressbar: bool = False,
) -> xr.Dataset:
    """Sample a PyMC model at temperatures from 0, the prior, to 1, the posterior.

    Each next temperature is the one at which the conditional effective sample size of the draws at
    hand falls to `efficiency` of their number: steps are short where the likelihood changes much.

    Parameters
    ----------
    model : pymc.Model
        With proper priors, continuous variables and no potentials.
    efficiency : float
        Between 0 and 1; larger makes more temperatures.
    draws, tune, chains : int
        Passed to ``pymc.sample`` at each temperature. Draws of the prior are independent.
    max_temperatures : int
    random_seed : int, optional
    progressbar : bool
        Show the progress of ``pymc.sample``.

    Returns
    -------
    Dataset
        For :func:`az_cv.thermodynamic_evidence` and :func:`az_cv.smc_evidence`.

    Raises
    ------
    ValueError
        If the model has no evidence, or has potentials, or there would be too many temperatures.

    See Also
    --------
    az_cv.thermodynamic_evidence : Uses the ladder.
    az_cv.log_evidence : Needs no ladder.

    Examples
    --------
    >>> import az_cv
    >>> ladder = az_cv.temperature_ladder(model, efficiency=0.9)  # doctest: +SKIP
    >>> az_cv.thermodynamic_evidence(ladder)  # doctest: +SKIP
    """
    import pymc as pm

    if not 0 < efficiency < 1:
        raise ValueError(f"efficiency must be between 0 and 1; it is {efficiency!r}.")
    require_evidence(model)
    if model.potentials:
        raise ValueError(
            f"The model has potentials, {[p.name for p in model.potentials]}, of which nobody says "
            "whether they belong to the prior or to the likelihood. Write them as distributions."
        )
    tempered, power = tempered_model(model)
    names = [variable.name for variable in model.free_RVs]
    seeds = np.random.SeedSequence(random_seed).generate_state(max_temperatures + 1)
    prior = pm.sample_prior_predictive(
        draws=chains * draws, model=model, var_names=names, random_seed=int(seeds[0])
    )
    first = get_group(as_idata(prior), "prior")
    posterior = first.isel(chain=0, drop=True).drop_vars("draw")
    posterior = _in_chains(posterior, chains, draws)
    temperatures, rungs = [0.0], []
    while True:
        arrays, labels = split_scores(posterior, model)
        rungs.append(arrays)
        if temperatures[-1] == 1.0:
            break
        following = next_temperature(arrays[-1], temperatures[-1], efficiency)
        if len(temperatures) == max_temperatures:
            raise ValueError(
                f"{max_temperatures} temperatures reach {temperatures[-1]:.3g} and not 1. Allow "
                "more with max_temperatures=, or larger steps with efficiency=."
            )
        power.set_value(np.array(following))
        with tempered:
            sampled = pm.sample(
                draws=draws,
                tune=tune,
                chains=chains,
                cores=1,
                random_seed=int(seeds[len(temperatures)]),
                progressbar=progressbar,
                compute_convergence_checks=False,
            )
        posterior = get_group(as_idata(sampled), "posterior")
        divergent = int(get_group(as_idata(sampled), "sample_stats")["diverging"].sum())
        if divergent > 0.01 * chains * draws:
            notify(f"{divergent} divergent transitions at temperature {following:.3g}.")
        temperatures.append(following)
    columns = (np.stack(column) for column in zip(*rungs))
    return ladder_dataset(temperatures, *columns, parameter_names=labels)


def _in_chains(draws: xr.Dataset, chains: int, length: int) -> xr.Dataset:
    """Return independent draws in as many chains as the other temperatures have."""
    index = pd.MultiIndex.from_product([range(chains), range(length)], names=["chain", "draw"])
    coords = xr.Coordinates.from_pandas_multiindex(index, "sample")
    return draws.rename(draw="sample").assign_coords(coords).unstack("sample")
