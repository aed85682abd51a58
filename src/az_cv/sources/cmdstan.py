"""Scores of CmdStanPy fits: from diagnostic files, the model's executable, or BridgeStan."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.sources.cmdstan_executable import ExecutableError, evaluate_draws, log_densities
from az_cv.sources.cmdstan_files import (
    RouteUnavailableError,
    find_diagnostic_files,
    find_executable,
    num_unconstrained,
    read_cmdstan_csv,
    stan_data_file,
)
from az_cv.sources.edges import find_edges
from az_cv.sources.stan_draws import LOST_PART, assemble_scores, label_parameters
from az_cv.sources.stan_model import load_stan_model, parameter_names, scores_of_draws

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    import cmdstanpy
    import xarray as xr
    from jaxtyping import Float

logger = logging.getLogger(__name__)

Route = Literal["diagnostic", "executable", "bridgestan"]
DataFile: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | None"


def cmdstan_scores(
    fit: cmdstanpy.CmdStanMCMC,
    data: Idata | None = None,
    *,
    data_file: DataFile = None,
    exe_file: str | PathLike[str] | None = None,
    stan_file: str | PathLike[str] | None = None,
    route: Route | None = None,
) -> xr.Dataset:
    """Return the scores at the draws of a CmdStanPy fit.

    Three routes are tried in turn, and the one taken is logged:

    1. the diagnostic files of a run with ``save_latent_dynamics=True``, which hold draws and
       gradients already;
    2. the model's executable, which evaluates all draws in a few processes;
    3. BridgeStan, from the Stan program.

    Parameters
    ----------
    fit : cmdstanpy.CmdStanMCMC
        From ``CmdStanModel.sample`` or ``cmdstanpy.from_csv``.
    data : DataTree or InferenceData, optional
        Holds ``posterior`` with draws of `fit`, all or some of them, such as
        ``arviz_base.from_cmdstanpy(fit)``. Defaults to all draws of `fit`. A dict is taken for
        `data_file`.
    data_file : path or dict, optional
        The data, or the JSON file of them. Defaults to the file named in the header of the draws'
        CSV files, which is gone as soon as ``sample`` returns if the data were passed to CmdStanPy
        as a dict: then pass that dict here.
    exe_file : path, optional
        The compiled model. Defaults to the one `fit` was sampled with in this process; for draws
        read from files it must be given, since no program is run that a file names.
    stan_file : path, optional
        The Stan program, or a library compiled from it by BridgeStan.
    route : {"diagnostic", "executable", "bridgestan"}, optional
        Take this route and no other.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`. Draws at which the
        model cannot be evaluated are left out of every chain; ``draw`` says which remain.

    Raises
    ------
    ValueError
        If no route is open, with what each of them lacks, or if `data` holds other draws.

    See Also
    --------
    read_cmdstan_scores : Draws and scores from CSV files on disk.

    Notes
    -----
    CmdStan writes the gradient of the potential energy, minus the log density, to its diagnostic
    files. Draws are printed with few digits unless the model was sampled with ``sig_figs=18``.

    Examples
    --------
    >>> import az_cv
    >>> import cmdstanpy  # doctest: +SKIP
    >>> fit = cmdstanpy.from_csv("run")  # doctest: +SKIP
    >>> files = {"exe_file": "./model", "data_file": "data.json"}
    >>> scores = az_cv.sources.cmdstan_scores(fit, **files)  # doctest: +SKIP
    """
    routes = {
        "diagnostic": lambda: _from_diagnostic_files(fit),
        "executable": lambda: _from_executable(fit, data_file, exe_file),
        "bridgestan": lambda: _from_bridgestan(fit, data_file, stan_file),
    }
    if route is not None and route not in routes:
        raise ValueError(f"route is {route!r}. Choose from {list(get_args(Route))}.")
    if type(data) is dict:  # as it was passed to CmdStanPy, under the same name
        data, data_file = None, data
    if data is not None:
        _require_draws_of(fit, get_group(as_idata(data), "posterior"))
    if fit.metadata.cmdstan_config.get("algorithm") == "fixed_param":
        raise ValueError(
            "The fit was sampled with fixed_param=True, which moves no parameter: there is no "
            "posterior, and no gradient belongs to its draws. Use ArviZ's summary."
        )
    reasons = []
    for name in routes if route is None else [route]:
        try:
            scores = routes[name]()
        except RouteUnavailableError as reason:
            reasons.append(f"- {name}: {reason}")
            continue
        logger.info("Scores come from %s.%s", scores.attrs["source"], _faster_alternative(name))
        return scores if data is None else _select_draws(scores, data)
    raise ValueError(
        "There are no scores for this CmdStan fit.\n"
        + "\n".join(reasons)
        + "\nFiles are passed as scores=az_cv.sources.cmdstan_scores(fit, exe_file=..., "
        "data_file=..., stan_file=...)."
    )


def read_cmdstan_scores(
    files: Sequence[str | PathLike[str]],
    *,
    exe_file: str | PathLike[str] | None = None,
    data_file: DataFile = None,
    stan_file: str | PathLike[str] | None = None,
    route: Route | None = None,
) -> tuple[xr.DataTree, xr.Dataset]:
    """Read draws from CmdStan's CSV files and find the scores that belong to them.

    Parameters
    ----------
    files : sequence of paths
        The CSV files of a run, one per chain. Diagnostic files among them are skipped: they are
        found through the header of the others.
    exe_file, data_file, stan_file, route
        As for :func:`cmdstan_scores`. None is needed where the diagnostic files are at hand. Of
        the others, the data are found where the header says, or beside the CSV files.

    Returns
    -------
    idata : DataTree
        With the groups ``posterior`` and ``sample_stats``.
    scores : Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`.

    Raises
    ------
    ImportError
        If CmdStanPy is not installed.
    ValueError
        If there are no draws in `files`, or no route to scores is open.

    See Also
    --------
    az_cv.sources.cmdstan_scores : Gradients from CmdStan's executable.
    az_cv.sources.cmdstan_to_zarr : For files that do not fit in memory.

    Examples
    --------
    The complete path from files to a table:

    >>> import az_cv
    >>> csv = ["output_1.csv", "output_2.csv"]
    >>> model = {"exe_file": "./schools", "data_file": "schools.json"}
    >>> idata, scores = az_cv.sources.read_cmdstan_scores(csv, **model)  # doctest: +SKIP
    >>> az_cv.summary(idata, scores=scores)  # doctest: +SKIP
    """
    fit = read_cmdstan_csv(files)
    scores = cmdstan_scores(
        fit, exe_file=exe_file, data_file=data_file, stan_file=stan_file, route=route
    )
    return as_idata(fit), scores


def _faster_alternative(route: str) -> str:
    faster = {
        "executable": " Sampling with save_latent_dynamics=True stores them with the draws.",
        "bridgestan": (
            " Sampling with save_latent_dynamics=True stores them with the draws; given exe_file "
            "and data_file, the model's executable needs no compilation."
        ),
    }
    return faster.get(route, "")


def _from_diagnostic_files(fit: cmdstanpy.CmdStanMCMC) -> xr.Dataset:
    files = find_diagnostic_files(fit)
    tables = [pd.read_csv(file, comment="#") for file in files]
    log_density = fit.draws()[:, :, fit.column_names.index("lp__")]
    points, gradients = [], []
    for chain, (file, table) in enumerate(zip(files, tables)):
        # With save_warmup=True both files begin with the warm-up.
        rows = table.iloc[-fit.num_draws_sampling :]
        if len(rows) != len(log_density) or not np.allclose(
            rows["lp__"], log_density[:, chain], rtol=1e-5, equal_nan=True
        ):
            raise RouteUnavailableError(f"{file} belongs to another run, its lp__ differs.")
        size = num_unconstrained(list(table.columns))
        if not size:
            raise RouteUnavailableError(f"{file} has no gradients: the model has no parameters.")
        first = table.shape[1] - 3 * size
        points.append(rows.iloc[:, first : first + size].to_numpy(float))
        # Point, momentum, gradient: of the potential, minus the log density.
        gradients.append(-rows.iloc[:, -size:].to_numpy(float))
    names = list(tables[0].columns[first : first + size])
    draws, draw_names = _flat_draws(fit)
    return assemble_scores(
        np.stack(points),
        np.stack(gradients),
        {},
        names=label_parameters(draws, draw_names, np.stack(points), names),
        coords=_coords(fit),
        source="CmdStan's diagnostic files",
        from_sampler=True,
    )


def _from_executable(
    fit: cmdstanpy.CmdStanMCMC,
    data_file: DataFile,
    exe_file: str | PathLike[str] | None,
) -> xr.Dataset:
    executable = find_executable(fit, exe_file)
    draws, names = _flat_draws(fit)
    with stan_data_file(fit, data_file) as data:
        try:
            found = evaluate_draws(executable, draws, names, data_file=data, seed=_seed(fit))
        except ExecutableError as error:
            raise RouteUnavailableError(
                f"{executable} fails. {error} Check that executable and data are those of the "
                "draws."
            ) from error
        points = found.unconstrained
        labels = label_parameters(draws, names, points, found.names)
        edges = find_edges(
            points[np.isfinite(found.log_density) & np.isfinite(points).all(axis=-1)],
            lambda places, _: log_densities(executable, places, data_file=data, seed=_seed(fit)),
            labels,
        )
    return assemble_scores(
        points,
        found.gradient,
        found.failures,
        log_density=found.log_density,
        restored=found.restored,
        names=labels,
        coords=_coords(fit),
        source=f"the executable {executable}",
        edges=edges,
    )


def _from_bridgestan(
    fit: cmdstanpy.CmdStanMCMC,
    data_file: DataFile,
    stan_file: str | PathLike[str] | None,
) -> xr.Dataset:
    if stan_file is None:
        raise RouteUnavailableError("pass stan_file=, the path of the Stan program.")
    with stan_data_file(fit, data_file) as data:
        model = load_stan_model(stan_file, data, seed=_seed(fit))
    draws, names = _flat_draws(fit)
    missing = [name for name in parameter_names(model) if name not in names]
    if missing:
        raise ValueError(
            f"Parameters {missing} of {os.fspath(stan_file)} are not among the columns of the fit: "
            f"{names[:10]}... Pass the program and the data the draws were fitted with."
        )
    columns = [names.index(name) for name in parameter_names(model)]
    return scores_of_draws(
        draws[..., columns], model=model, coords=_coords(fit), source="BridgeStan"
    )


def _flat_draws(
    fit: cmdstanpy.CmdStanMCMC,
) -> tuple[Float[np.ndarray, "chain draw p"], list[str]]:
    """Return all draws, sampler columns left out, and their names as Stan writes them."""
    header = fit.metadata.cmdstan_config["raw_header"].split(",")
    columns = [index for index, name in enumerate(header) if not name.endswith("__")]
    draws = np.moveaxis(fit.draws(inc_warmup=False), 0, 1)[..., columns]
    return draws, [header[index] for index in columns]


def _require_draws_of(fit: cmdstanpy.CmdStanMCMC, posterior: xr.Dataset) -> None:
    """Refuse a posterior whose draws are not those of `fit`."""
    advice = "Pass the fit these draws came from, or summarise the fit itself."
    own = get_group(as_idata(fit), "posterior")
    shared = [
        name for name in posterior.data_vars if name in own and own[name].dtype.kind in "fiubc"
    ]
    if not shared:
        raise ValueError(
            f"data has the variables {list(posterior.data_vars)} and the CmdStan fit "
            f"{list(own.data_vars)}. {advice}"
        )
    for dim in SAMPLE_DIMS:
        if not posterior.get_index(dim).isin(own.get_index(dim)).all():
            raise ValueError(
                f"data has {posterior.sizes[dim]} labels along {dim!r} that are not all among the "
                f"{own.sizes[dim]} of the CmdStan fit. {advice}"
            )
    expected = own[shared].sel({dim: posterior[dim] for dim in SAMPLE_DIMS})
    for name in shared:
        values = posterior[name].transpose(*SAMPLE_DIMS, ...).values
        if np.iscomplexobj(expected[name]) and not np.iscomplexobj(values):
            raise ValueError(f"{name!r} {LOST_PART}")
        if values.shape != expected[name].shape or not np.allclose(
            values, expected[name], rtol=1e-5, atol=1e-12, equal_nan=True
        ):
            raise ValueError(f"{name!r} has other draws in data than in the CmdStan fit. {advice}")


def _select_draws(scores: xr.Dataset, data: Idata) -> xr.Dataset:
    posterior = get_group(as_idata(data), "posterior")
    kept = {dim: scores.get_index(dim).isin(posterior[dim].values) for dim in SAMPLE_DIMS}
    return scores.isel({dim: np.flatnonzero(mask) for dim, mask in kept.items()})


def _coords(fit: cmdstanpy.CmdStanMCMC) -> dict[str, np.ndarray]:
    # ArviZ counts both from zero, whatever Stan's chain ids are.
    return {"chain": np.arange(fit.chains), "draw": np.arange(fit.num_draws_sampling)}


def _seed(fit: cmdstanpy.CmdStanMCMC) -> int:
    """Return the seed of the run, on which random transformed data depend."""
    return int(fit.metadata.cmdstan_config.get("seed", 1234))
