"""Scores of Stan models, through BridgeStan."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.sources.edges import find_edges
from az_cv.sources.rounded_draws import restore_rounded
from az_cv.sources.stan_draws import (
    assemble_scores,
    draw_unit_vector_lengths,
    flatten_draws,
    label_parameters,
    repair_draws,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    import bridgestan
    import xarray as xr
    from jaxtyping import Float

MISSING_BRIDGESTAN = "Stan models need BridgeStan: pip install 'az-cv[stan]'"


def stan_scores(data: Idata, *, model: bridgestan.StanModel) -> xr.Dataset:
    """Evaluate log-density gradients of a Stan model at the posterior draws.

    Costs one gradient evaluation per draw. Runs on several threads if the model was compiled with
    ``STAN_THREADS=true``.

    Parameters
    ----------
    data : DataTree or InferenceData
        Holds ``posterior`` with every parameter of `model`. Members of a tuple are variables of
        their own, named ``pair:1`` and ``pair:2``.
    model : bridgestan.StanModel
        Built with the data the draws were fitted to.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`. Draws at which the
        model cannot be evaluated are left out of every chain; ``draw`` says which remain.

    Raises
    ------
    ValueError
        If parameters are missing or have another shape, or most draws cannot be evaluated.

    Warns
    -----
    UserWarning
        If draws were left out, or were rounded and had to be moved back to their constraint.

    See Also
    --------
    load_stan_model : Build `model` from a file.
    az_cv.sources.cmdstan.cmdstan_scores : Scores of a CmdStanPy fit.

    Notes
    -----
    The gradient is that of the density of the unconstrained parameters, Jacobian included. Draws of
    unit vectors do not tell the length of their unconstrained vector, which is drawn anew.
    """
    posterior = get_group(as_idata(data), "posterior")
    draws = flatten_draws(posterior, parameter_names(model))
    coords = {dim: posterior[dim].values for dim in SAMPLE_DIMS}
    return scores_of_draws(draws, model=model, coords=coords, source="BridgeStan")


def scores_of_draws(
    draws: Float[np.ndarray, "chain draw p"],
    *,
    model: bridgestan.StanModel,
    coords: Mapping[str, np.ndarray],
    source: str,
) -> xr.Dataset:
    """Evaluate scores at constrained draws given in Stan's flat order.

    Parameters
    ----------
    draws : array of shape (chain, draw, p)
        Last axis as ``model.param_names()``.
    model : bridgestan.StanModel
    coords : mapping
        ``chain`` and ``draw`` labels.
    source : str
        Kept as an attribute of the result.

    Returns
    -------
    Dataset
    """
    unconstrained_names = model.param_unc_names()
    # BridgeStan does not check lengths: a short vector is read past its end.
    if draws.shape[-1] != model.param_num():
        raise ValueError(
            f"Draws have {draws.shape[-1]} entries and the Stan model {model.name()!r} has "
            f"{model.param_num()} parameters. Pass the model these draws came from."
        )
    draws, restored = restore_rounded(draws, model.param_names())
    draws = repair_draws(draws, model.param_names(), unconstrained_names)
    shape = (*draws.shape[:2], len(unconstrained_names))
    points = np.array(draws, dtype=np.float64, order="C").reshape(-1, draws.shape[-1])
    unconstrained, failures = evaluate_rows(
        lambda row, out: model.param_unconstrain(row, out=out), points, shape[-1], model
    )
    found = unconstrained.reshape(shape)
    unconstrained = draw_unit_vector_lengths(found, unconstrained_names)
    # Lengths drawn anew have another density than those that were sampled.
    is_exact = unconstrained is found
    places = unconstrained.reshape(-1, shape[-1])
    log_density = np.full(len(places), np.nan)
    gradient, failures_of_gradient = evaluate_rows(
        lambda row, out: model.log_density_gradient(row, propto=True, jacobian=True, out=out),
        places,
        shape[-1],
        model,
        skip=failures,
        returned=log_density,
    )
    failures |= failures_of_gradient
    names = label_parameters(draws, model.param_names(), unconstrained, unconstrained_names)
    finite = np.flatnonzero(np.isfinite(log_density))
    edges = find_edges(places[finite], lambda points, _: log_densities(model, points), names)
    return assemble_scores(
        unconstrained,
        gradient.reshape(shape),
        {divmod(row, shape[1]): message for row, message in failures.items()},
        log_density=log_density.reshape(shape[:2]) if is_exact else None,
        restored=restored,
        names=names,
        coords=coords,
        source=source,
        edges=edges,
    )


def log_densities(
    model: bridgestan.StanModel, points: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " n"]:
    """Return the log density at unconstrained points, -inf where the model rejects them."""
    values = np.full(len(points), -np.inf)
    for i, point in enumerate(np.ascontiguousarray(points)):
        with suppress(RuntimeError):
            values[i] = model.log_density(point, propto=True, jacobian=True)
    return values


def evaluate_rows(
    function: Callable[[ctypes.Array, ctypes.Array], Any],
    points: Float[np.ndarray, "n p"],
    width: int,
    model: bridgestan.StanModel,
    skip: Mapping[int, str] | None = None,
    returned: Float[np.ndarray, " n"] | None = None,
) -> tuple[Float[np.ndarray, "n width"], dict[int, str]]:
    """Call `function` for every row; return its values and the messages of rows that fail.

    The number that a call returns beside its values goes into `returned`.
    """
    values = np.full((len(points), width), np.nan)
    failures: dict[int, str] = {}
    skipped = skip or {}
    inputs, outputs = _rows(points), _rows(values)

    def evaluate_rows(rows: range) -> None:
        for row in rows:
            if row in skipped:
                continue
            try:
                result = function(inputs[row], outputs[row])
                if returned is not None:
                    returned[row] = result[0]
            except RuntimeError as error:
                failures[row] = str(error)
                values[row] = np.nan

    # Without STAN_THREADS all threads would share one autodiff stack.
    threaded = "STAN_THREADS=true" in model.model_info()
    workers = min(os.cpu_count() or 1, 8) if threaded else 1
    edges = np.linspace(0, len(points), workers + 1).astype(int)
    chunks = [range(start, stop) for start, stop in pairwise(edges)]
    if workers == 1:
        evaluate_rows(chunks[0])
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(evaluate_rows, chunks))
    return values, failures


def _rows(array: Float[np.ndarray, "n p"]) -> list[ctypes.Array]:
    # To pass NumPy arrays through ctypes takes longer than the gradient of a small model.
    row_type = ctypes.c_double * array.shape[1]
    return [row_type.from_buffer(array, row * array.strides[0]) for row in range(len(array))]


def parameter_names(model: bridgestan.StanModel) -> list[str]:
    """Return the flat names of the parameters of a model that has some."""
    if model.param_unc_num() == 0:
        raise ValueError(
            f"The Stan model {model.name()!r} has no parameters, so there is no gradient. Pass the "
            "model the draws were fitted with."
        )
    return model.param_names()


def load_stan_model(
    path: str | PathLike[str],
    data: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    seed: int = 1234,
) -> bridgestan.StanModel:
    """Build a BridgeStan model from a Stan program or a compiled library.

    Parameters
    ----------
    path : str or path
        A ``.stan`` file, compiled if need be, or a library compiled by BridgeStan.
    data : mapping, path of a ``.json`` file or JSON string, optional
        The data the draws were fitted to.
    seed : int
        Seed of random numbers in the ``transformed data`` block.

    Returns
    -------
    bridgestan.StanModel

    Raises
    ------
    ImportError
        If BridgeStan is not installed.
    RuntimeError
        If the program cannot be compiled, or the library belongs to another version of BridgeStan.
    ValueError
        If the model cannot be built with `data`.

    See Also
    --------
    az_cv.sources.read_cmdstan_scores : Gradients that CmdStan has stored.
    az_cv.scores : Gradients of the model at given draws.

    Examples
    --------
    >>> import az_cv
    >>> model = az_cv.sources.load_stan_model("model.stan", "data.json")  # doctest: +SKIP
    >>> az_cv.summary(idata, model=model)  # doctest: +SKIP
    """
    try:
        import bridgestan
    except ImportError as error:
        raise ImportError(MISSING_BRIDGESTAN) from error
    library = _compile(path) if os.fspath(path).endswith(".stan") else path
    try:
        return bridgestan.StanModel(library, data, seed=seed, warn=False)
    except AttributeError as error:  # a symbol the client binds and the library lacks
        raise RuntimeError(
            f"{os.fspath(library)} was compiled by BridgeStan {_library_version(library)} and the "
            f"installed bridgestan is {bridgestan.__version__}: {error}. Delete the library and "
            "pass the .stan file to compile it again, or install the matching bridgestan."
        ) from error
    except RuntimeError as error:
        given = "no data" if data is None else "the given data"
        raise ValueError(
            f"The Stan model in {os.fspath(path)} cannot be built with {given}: "
            f"{str(error).strip()}. Pass the data the draws were fitted to."
        ) from error


def _compile(path: str | PathLike[str]) -> str | PathLike[str]:
    from bridgestan import compile_model
    from bridgestan.compile import CURRENT_BRIDGESTAN

    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no Stan program {os.fspath(path)}.")
    if not os.getenv("BRIDGESTAN") and not (CURRENT_BRIDGESTAN / "Makefile").is_file():
        raise RuntimeError(
            f"BridgeStan's sources are not at {CURRENT_BRIDGESTAN}, and az_cv downloads nothing. "
            "Get them once with bridgestan.compile.get_bridgestan_path(), or name a copy in the "
            "environment variable BRIDGESTAN. A library compiled elsewhere also does."
        )
    try:
        return compile_model(path)
    except (OSError, RuntimeError, ValueError) as error:
        raise RuntimeError(
            f"BridgeStan could not compile {os.fspath(path)}. It needs a C++ compiler, make and "
            "BridgeStan's sources, whose folder the environment variable BRIDGESTAN names. A "
            f"library compiled elsewhere also does. {error}"
        ) from error


def _library_version(path: str | PathLike[str]) -> str:
    try:
        library = ctypes.CDLL(os.path.abspath(path))
        parts = ("major", "minor", "patch")
        return ".".join(
            str(ctypes.c_int.in_dll(library, f"bs_{part}_version").value) for part in parts
        )
    except (OSError, ValueError):
        return "of an unknown version"
