"""The one place that knows the two ArviZ generations, and the samplers' own result objects.

ArviZ 0.x hands out ``arviz.InferenceData``, ArviZ 1.x ``xarray.DataTree``. Everything else in the
package asks this module for a group as a ``Dataset``, for the group names, or to add a group.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr

from az_cv.containers.unknown_names import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import cmdstanpy
    import stan.fit
    from jaxtyping import Float

Idata: TypeAlias = Any  # arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ >= 1)

SAMPLE_DIMS = ("chain", "draw")
ARVIZ_FLAG = threading.Lock()  # whoever changes it puts it back before anybody else does


def as_idata(data: Any) -> Idata:
    """Return `data` if it holds groups already, else what it can be converted to.

    Parameters
    ----------
    data : InferenceData, DataTree, Dataset, CmdStanMCMC, NumPyro's MCMC, PyStan's Fit, or other
        The name of a file is opened. Anything else is left to ``arviz_base.convert_to_datatree``.

    Returns
    -------
    InferenceData or DataTree
        The same object when it holds groups, so that groups added to it reach the caller.
    """
    if isinstance(data, xr.DataTree) or _is_inference_data(data):
        return data
    if isinstance(data, xr.Dataset):
        return xr.DataTree.from_dict({"posterior": data})
    if is_instance(data, "cmdstanpy", "CmdStanMCMC"):
        return _from_cmdstan(data)
    if is_instance(data, "numpyro.infer", "MCMC"):
        from arviz_base import from_numpyro

        return from_numpyro(data)
    if is_instance(data, "stan.fit", "Fit"):
        return xr.DataTree.from_dict({"posterior": _pystan_posterior(data)})
    if isinstance(data, str | os.PathLike):
        from az_cv.containers.traces import open_trace

        return open_trace(os.fspath(data))
    from arviz_base import convert_to_datatree

    try:
        return convert_to_datatree(data)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"No draws can be read from this {type(data).__name__}. Pass InferenceData, a "
            "DataTree, a Dataset, a fit of CmdStanPy, NumPyro or PyStan, the name of a netCDF or "
            f"Zarr file, or a dict of arrays of shape (chain, draw, ...). ArviZ says: {error}"
        ) from error


def _from_cmdstan(fit: cmdstanpy.CmdStanMCMC) -> xr.DataTree:
    """Convert a fit, complex numbers and tuples too, which ArviZ takes for real numbers.

    Members of a tuple become variables of their own, ``pair:1`` and ``pair:2``.
    """
    from arviz_base import from_cmdstanpy

    kinds = {name: values.dtype for name, values in fit.stan_variables().items()}
    dtypes = {name: dtype for name, dtype in kinds.items() if dtype.kind in "cO"}
    tree = from_cmdstanpy(fit, dtypes=dtypes)
    if object in dtypes.values():
        posterior = tree["posterior"].to_dataset()
        variables: dict[str, xr.DataArray] = {}
        for name, variable in posterior.data_vars.items():
            variables |= _members(str(name), variable)
        tree["posterior"] = xr.DataTree(xr.Dataset(variables, attrs=posterior.attrs))
    return tree


def _members(name: str, variable: xr.DataArray) -> dict[str, xr.DataArray]:
    """Return the members of a variable of tuples, and theirs, or the variable itself."""
    if variable.dtype != object:
        return {name: variable}
    result: dict[str, xr.DataArray] = {}
    for member in range(len(variable.values.flat[0])):
        label = f"{name}:{member + 1}"
        items = np.stack([_as_array(item[member]) for item in variable.values.flat])
        dims = [f"{label}_dim_{axis}" for axis in range(items.ndim - 1)]
        values = items.reshape(*variable.shape, *items.shape[1:])
        result |= _members(label, xr.DataArray(values, variable.coords, (*variable.dims, *dims)))
    return result


def _as_array(item: Any) -> np.ndarray:
    """Return an array; NumPy would take a tuple for its members."""
    if not isinstance(item, tuple):
        return np.asarray(item)
    array = np.empty((), dtype=object)
    array[()] = item
    return array


def model_of(data: Any, model: Any = None) -> Any:
    """Return `model`, or `data` itself where it is a sampler's object that knows its model."""
    if model is None and (
        is_instance(data, "cmdstanpy", "CmdStanMCMC") or is_instance(data, "numpyro.infer", "MCMC")
    ):
        return data
    return model


def is_instance(thing: Any, module: str, name: str) -> bool:
    """Test a type without importing a library that the object cannot come from."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def group_names(data: Idata) -> list[str]:
    """Return the names of the groups of `data`."""
    return list(data.children) if isinstance(data, xr.DataTree) else list(data.groups())


def get_group(data: Idata, group: str) -> xr.Dataset:
    """Return one group as a ``Dataset``.

    Raises
    ------
    KeyError
        If there is no such group; the message lists those there are.
    """
    available = group_names(data)
    if group not in available:
        raise UnknownNameError(
            f"There is no group {group!r} in data. Available: {available}.", [group], available
        )
    node = data[group]
    return node.to_dataset() if isinstance(node, xr.DataTree) else node


def add_groups(data: Idata, groups: Mapping[str, xr.Dataset]) -> None:
    """Add groups to `data` in place, replacing those of the same name: all of them, or none."""
    before = {name: data[name] for name in groups if name in group_names(data)}
    # InferenceData accepts a DataTree without complaint and breaks later.
    is_tree = isinstance(data, xr.DataTree)
    nodes = {name: xr.DataTree(group) if is_tree else group for name, group in groups.items()}
    try:
        for name, node in nodes.items():
            data[name] = node
    except BaseException:  # Ctrl-C too
        for name in set(groups) & set(group_names(data)):
            if name in before:
                data[name] = before[name]
            else:
                del data[name]
        raise


def plain_summary(
    matrix: Float[np.ndarray, "chain draw q"], ci_prob: float | None, ci_kind: str | None
) -> tuple[pd.DataFrame, str, float]:
    """Summarise plain draws with the installed ArviZ: its columns and defaults.

    Parameters
    ----------
    matrix : array of shape (chain, draw, q)
    ci_prob : float, optional
        ``None``: as ``rcParams`` say.
    ci_kind : {"eti", "hdi"}, optional
        ``None``: as ``rcParams`` say; ArviZ 0.x knows ``"hdi"`` alone.

    Returns
    -------
    table : DataFrame
        One row per output, NaN where it is not finite. Not rounded; columns three and four are the
        interval.
    ci_kind : str
    ci_prob : float
    """
    finite = np.isfinite(matrix).all(axis=(0, 1))
    # Any finite numbers stand in for the others, whose rows are NaN in the end.
    stand_in = np.linspace(0.0, 1.0, matrix[..., 0].size).reshape(*matrix.shape[:2], 1)
    draws = xr.Dataset({"x": ((*SAMPLE_DIMS, "row"), np.where(finite, matrix, stand_in))})
    with np.errstate(all="ignore"):  # of constants, shown as NaN
        if _legacy_arviz():
            import arviz

            probability = arviz.rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
            with _without_numba():
                table = arviz.summary(draws, hdi_prob=probability, round_to="none")
            kind = "hdi"
            if ci_kind == "eti":
                names = {name: name.replace("hdi", "eti") for name in table.columns[2:4]}
                table, kind = table.rename(columns=names), "eti"
        else:
            import arviz_stats
            from arviz_base import rcParams

            probability = rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
            kind = ci_kind or rcParams["stats.ci_kind"]
            tree = xr.DataTree.from_dict({"posterior": draws})
            table = arviz_stats.summary(tree, ci_prob=probability, ci_kind=kind, round_to="none")
    table = pd.DataFrame(table).astype(float)
    table.loc[~finite] = np.nan
    return table, kind, probability


@contextmanager
def _without_numba() -> Iterator[None]:
    """Keep ArviZ from compiling a variance, which takes longer than NumPy does for all of them."""
    from arviz.utils import Numba

    with ARVIZ_FLAG:
        before = Numba.numba_flag
        Numba.numba_flag = False
        try:
            yield
        finally:
            Numba.numba_flag = before


def tail_values(matrix: Float[np.ndarray, "chain draw q"]) -> Float[np.ndarray, "2 q"]:
    """Return the values below and above which lie the tails that ``ess_tail`` judges.

    Every generation of ArviZ has tails and quantiles of its own. A last digit matters where draws
    are equal.
    """
    flat = matrix.reshape(-1, matrix.shape[2])
    if _legacy_arviz():
        return np.array(scipy.stats.mstats.mquantiles(flat, (0.05, 0.95), 1, 1, axis=0))
    from arviz_base import rcParams

    share = rcParams["stats.ci_prob"]
    return np.quantile(flat, sorted((share, 1 - share)), axis=0)


def _legacy_arviz() -> bool:
    try:
        return importlib.metadata.version("arviz").startswith("0.")
    except importlib.metadata.PackageNotFoundError:
        return False


def _pystan_posterior(fit: stan.fit.Fit) -> xr.Dataset:
    variables = {}
    for name, shape in zip(fit.param_names, fit.dims):
        # The last axis runs over draws, and over chains within a draw.
        values = fit[name].reshape(*shape, -1, fit.num_chains)
        dims = [f"{name}_dim_{axis}" for axis in range(len(shape))]
        variables[name] = ((*dims, "draw", "chain"), values)
    attrs = {"inference_library": "pystan"}
    posterior = xr.Dataset(variables, attrs=attrs).transpose(*SAMPLE_DIMS, ...)
    return posterior.assign_coords({dim: range(posterior.sizes[dim]) for dim in SAMPLE_DIMS})


def _is_inference_data(data: Any) -> bool:
    # ArviZ 1.x aliases `arviz.InferenceData` to DataTree, so ask the object and not the module.
    return type(data).__name__ == "InferenceData" and type(data).__module__.startswith("arviz.")
