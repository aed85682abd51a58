"""Integrands: what the user asks the expectation of, as labelled arrays and as one matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from az_cv.idata import SAMPLE_DIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jaxtyping import Float

    Integrand = Callable[[xr.Dataset], Any] | Mapping[str, Callable[[xr.Dataset], Any]] | None


def evaluate_integrands(posterior: xr.Dataset, fn: Integrand) -> xr.Dataset:
    """Evaluate `fn` on the posterior.

    Parameters
    ----------
    posterior : Dataset
    fn : None, callable, or dict of label to callable
        A callable takes the posterior and returns a DataArray, a Dataset or a dict of them, with
        the dimensions chain and draw. ``None`` takes every variable, and of complex ones both
        parts; those whose name ends in ``__`` are a sampler's transformed duplicates and stay out.

    Returns
    -------
    Dataset
        Float variables with dims (chain, draw, ...).
    """
    if fn is None:
        names = [name for name in posterior.data_vars if not str(name).endswith("__")]
        results: dict[str, Any] = {}
        for name in names:
            results |= _real_parts(str(name), posterior[name])
    elif callable(fn):
        results = _named(fn(posterior), _label(fn), posterior)
    elif isinstance(fn, dict):
        results = {}
        for label, function in fn.items():
            if not callable(function):
                raise TypeError(f"fn[{label!r}] must be callable; it is {function!r}.")
            results |= _named(function(posterior), label, posterior)
    else:
        raise TypeError(f"fn must be None, a callable or a dict of callables; it is {fn!r}.")
    if not results:
        raise ValueError("There is nothing to estimate: no variable was given.")
    sizes = {dim: posterior.sizes[dim] for dim in SAMPLE_DIMS}
    return xr.Dataset({name: _as_float(name, value, sizes) for name, value in results.items()})


def sample_elements(posterior: xr.Dataset, most: int) -> Float[np.ndarray, "chain draw k"]:
    """Return elements of the posterior's variables, evenly picked where there are more than `most`.

    Nothing else is read, so that large posteriors on disk stay there. What is not a number, or is
    not sampled, is passed over.
    """
    variables = [
        variable.transpose(*SAMPLE_DIMS, ...)
        for name, variable in posterior.data_vars.items()
        if not str(name).endswith("__")
        and variable.dtype.kind in "fiub"
        and set(SAMPLE_DIMS) <= set(variable.dims)
    ]
    sizes = [int(np.prod(variable.shape[2:], dtype=int)) for variable in variables]
    picked = np.unique(np.linspace(0, sum(sizes) - 1, min(most, sum(sizes))).astype(int))
    blocks, start = [np.empty((*(posterior.sizes[dim] for dim in SAMPLE_DIMS), 0))], 0
    for variable, size in zip(variables, sizes):
        own = picked[(picked >= start) & (picked < start + size)] - start
        start += size
        if not len(own):
            continue
        positions = np.unravel_index(own, variable.shape[2:]) if variable.ndim > 2 else ()
        elements = variable.isel(
            {dim: xr.DataArray(at, dims="element") for dim, at in zip(variable.dims[2:], positions)}
        )
        blocks.append(np.asarray(elements.data, float).reshape(*elements.shape[:2], -1))
    return np.concatenate(blocks, axis=2)


def _real_parts(name: str, variable: xr.DataArray) -> dict[str, xr.DataArray]:
    if variable.dtype.kind != "c":
        return {name: variable}
    return {f"{name}.real": variable.real, f"{name}.imag": variable.imag}


def _label(fn: Callable[[xr.Dataset], Any]) -> str:
    name = getattr(fn, "__name__", "fn")
    return "fn" if name == "<lambda>" else name


def _named(result: Any, label: str, posterior: xr.Dataset) -> dict[str, Any]:
    if isinstance(result, xr.Dataset):
        return {str(name): result[name] for name in result.data_vars}
    if isinstance(result, dict):
        return {str(name): value for name, value in result.items()}
    if isinstance(result, xr.DataArray):
        # xarray keeps the name through most operations: "theta" for max(theta) would mislead.
        untouched = result.name in posterior and result.identical(posterior[result.name])
        return {str(result.name) if untouched and label == "fn" else label: result}
    raise TypeError(
        f"fn must return a DataArray, a Dataset or a dict of DataArrays; {label!r} returned "
        f"{type(result).__name__}."
    )


def _as_float(name: str, value: Any, sizes: dict[str, int]) -> xr.DataArray:
    if not isinstance(value, xr.DataArray):
        raise TypeError(f"{name!r} must be a DataArray; it is {type(value).__name__}.")
    for dim, size in sizes.items():
        if dim not in value.dims:
            raise ValueError(
                f"{name!r} has dims {value.dims}: {dim!r} is gone. fn must keep chain and draw; it "
                "is evaluated at every draw and az_cv takes the average."
            )
        if value.sizes[dim] != size:
            raise ValueError(
                f"{name!r} has {value.sizes[dim]} along {dim!r}; the posterior has {size}."
            )
    if value.dtype.kind not in "fiub":
        raise TypeError(f"{name!r} has dtype {value.dtype}; only real numbers have expectations.")
    return value.transpose(*SAMPLE_DIMS, ...).astype(float)


def select(
    integrands: xr.Dataset,
    var_names: str | Sequence[str] | None,
    filter_vars: Literal["like", "regex"] | None,
    coords: dict[str, Any] | None,
) -> xr.Dataset:
    """Select variables and coordinates as ArviZ does."""
    from arviz_base.utils import _var_names

    wanted = (
        list(var_names) if var_names is not None and not isinstance(var_names, str) else var_names
    )
    try:
        names = _var_names(wanted, integrands, filter_vars)
    except KeyError:
        raise KeyError(
            f"var_names={var_names!r} is not among the variables: {list(integrands.data_vars)}."
        ) from None
    selected = integrands if names is None else integrands[list(names)]
    if not selected.data_vars:
        raise KeyError(
            f"var_names={var_names!r} (filter_vars={filter_vars!r}) selects nothing from "
            f"{list(integrands.data_vars)}."
        )
    return selected.sel(coords) if coords else selected


@dataclass(frozen=True)
class Stacked:
    """Integrands as one matrix, and the way back.

    Attributes
    ----------
    template : Dataset
    matrix : array of shape (chain, draw, q)
    """

    template: xr.Dataset
    matrix: Float[np.ndarray, "chain draw q"]

    def unstack(self, values: Float[np.ndarray, " q"]) -> xr.Dataset:
        """Return one number per output under the names, dims and coords of the integrands."""
        return self._split(values, ())

    def unstack_draws(self, values: Float[np.ndarray, "chain draw q"], first: int) -> xr.Dataset:
        """Return draws of every output; draws before `first` were not evaluated."""
        return self._split(values, SAMPLE_DIMS).assign_coords(
            {
                dim: self.template[dim][first if dim == "draw" else 0 :]
                for dim in SAMPLE_DIMS
                if dim in self.template.coords
            }
        )

    def _split(self, values: np.ndarray, leading: tuple[str, ...]) -> xr.Dataset:
        variables, start = {}, 0
        for name, template in self.template.data_vars.items():
            rest = template.dims[2:]
            shape = template.shape[2:]
            size = int(np.prod(shape, dtype=int))
            block = values[..., start : start + size].reshape(values.shape[:-1] + shape)
            coords = {
                key: coord
                for key, coord in template.coords.items()
                if not set(coord.dims) & set(SAMPLE_DIMS)
            }
            variables[name] = xr.DataArray(block, dims=(*leading, *rest), coords=coords)
            start += size
        return xr.Dataset(variables)


def stack(integrands: xr.Dataset) -> Stacked:
    """Put every element of every integrand side by side."""
    blocks = [
        np.asarray(value.data, dtype=float).reshape(*value.shape[:2], -1)
        for value in integrands.data_vars.values()
    ]
    return Stacked(integrands, np.concatenate(blocks, axis=2))
