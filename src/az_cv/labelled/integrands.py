"""Integrands: what the user asks the expectation of, as labelled arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.containers.unknown_names import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Integrand = Callable[[xr.Dataset], Any] | Mapping[str, Callable[[xr.Dataset], Any]] | None

# Each takes up to a tenth of a second, and a table of more is read by nobody.
MAX_QUANTITIES = 20_000
# Names that results give to their dimensions.
RESERVED = ("chain", "draw", "summary")


def evaluate_integrands(
    posterior: xr.Dataset,
    fn: Integrand,
    var_names: str | Sequence[str] | None = None,
    filter_vars: Literal["like", "regex"] | None = None,
    coords: Mapping[str, Any] | None = None,
    most: float = MAX_QUANTITIES,
) -> xr.Dataset:
    """Evaluate `fn` on the posterior.

    Parameters
    ----------
    posterior : Dataset
    fn : None, callable, or dict of label to callable
        A callable takes the posterior and returns a DataArray, a Dataset or a dict of them, with
        the dimensions chain and draw. ``None`` takes every variable, and of complex ones both
        parts; those whose name ends in ``__`` are a sampler's transformed duplicates and stay out.
    var_names, filter_vars, coords
        Select among the results, as in ArviZ. What is not selected may be anything.
    most : float
        Quantities that one call answers.

    Returns
    -------
    Dataset
        Float variables with dims (chain, draw, ...), on the chains and draws of the posterior.

    Raises
    ------
    KeyError, TypeError, ValueError
        If nothing is selected, or more than one call can answer; if a result is no array of real
        numbers on the draws of the posterior; if two have one name, or disagree on the labels of a
        dimension.
    """
    results: dict[str, Any] = {}
    for name, value in _results(posterior, fn):
        if name in results:
            raise ValueError(
                f"fn gives two results the name {name!r}, and one would be lost. Give each a name "
                "of its own."
            )
        results[name] = value
    chosen = {
        name: _on_draws(name, _as_float(name, results[name]), posterior)
        for name in select_names(list(results), var_names, filter_vars)
    }
    # Labels of what was selected (`theta.sel(school="A")`) say nothing about the other results.
    single = {
        name: value.drop_vars([key for key, coord in value.coords.items() if not coord.dims])
        for name, value in chosen.items()
        if value.size
    }
    if not single:
        shapes = {name: dict(value.sizes) for name, value in chosen.items()}
        raise ValueError(f"There is nothing to estimate, a dimension has no elements: {shapes}.")
    integrands = select_coords(_as_dataset(_with_common_labels(single)), coords)
    return _of_bounded_size(integrands, most)


def _results(posterior: xr.Dataset, fn: Integrand) -> list[tuple[str, Any]]:
    """Return what `fn` gives, under the names it will have."""
    if fn is None:
        return [
            part
            for name in posterior.data_vars
            if not str(name).endswith("__")
            for part in _real_parts(str(name), posterior[name])
        ]
    if isinstance(fn, Mapping):
        wrong = {label: function for label, function in fn.items() if not callable(function)}
        for label, function in wrong.items():
            raise TypeError(f"fn[{label!r}] must be callable; it is {function!r}.")
        return [
            result
            for label, function in fn.items()
            for result in _named(function(posterior), str(label), posterior)
        ]
    if callable(fn):
        return _named(fn(posterior), _label(fn), posterior)
    raise TypeError(
        f"fn must be None, a callable or a dict of callables; it is {fn!r}. Variables are chosen "
        "with var_names=."
    )


def _real_parts(name: str, variable: xr.DataArray) -> list[tuple[str, xr.DataArray]]:
    if variable.dtype.kind != "c":
        return [(name, variable)]
    return [(f"{name}.real", variable.real), (f"{name}.imag", variable.imag)]


def _label(fn: Callable[[xr.Dataset], Any]) -> str:
    name = getattr(fn, "__name__", "fn")
    return "fn" if name == "<lambda>" else name


def _named(result: Any, label: str, posterior: xr.Dataset) -> list[tuple[str, Any]]:
    if isinstance(result, xr.Dataset):
        return [(str(name), result[name]) for name in result.data_vars]
    if isinstance(result, Mapping):
        return [(str(name), value) for name, value in result.items()]
    if isinstance(result, xr.DataArray):
        # xarray keeps the name through most operations: "theta" for max(theta) would mislead.
        untouched = result.name in posterior and result.identical(posterior[result.name])
        return [(str(result.name) if untouched and label == "fn" else label, result)]
    raise TypeError(
        f"fn must return a DataArray, a Dataset or a dict of DataArrays; {label!r} returned "
        f"{type(result).__name__}."
    )


def _as_float(name: str, value: Any) -> xr.DataArray:
    if not isinstance(value, xr.DataArray):
        raise TypeError(f"{name!r} must be a DataArray; it is {type(value).__name__}.")
    for dim in SAMPLE_DIMS:
        if dim not in value.dims:
            raise ValueError(
                f"{name!r} has dims {value.dims}: {dim!r} is gone. fn must keep chain and draw; it "
                "is evaluated at every draw and az_cv takes the average."
            )
    if value.dtype.kind not in "fiub":
        raise TypeError(
            f"{name!r} has dtype {value.dtype}; only real numbers have expectations. Leave it out "
            "with var_names= or fn."
        )
    return value.transpose(*SAMPLE_DIMS, ...).astype(float)


def _on_draws(name: str, value: xr.DataArray, posterior: xr.Dataset) -> xr.DataArray:
    """Return the result on the chains and draws of the posterior, in its order."""
    for dim in SAMPLE_DIMS:
        size = posterior.sizes[dim]
        if value.sizes[dim] != size:
            raise ValueError(
                f"{name!r} has {value.sizes[dim]} along {dim!r}; the posterior has {size}."
            )
        if dim not in value.indexes or dim not in posterior.indexes:
            continue
        own, wanted = value.get_index(dim), posterior.get_index(dim)
        if own.equals(wanted):
            continue
        if not own.is_unique or not own.isin(wanted).all():
            raise ValueError(
                f"{name!r} has other labels along {dim!r} than the posterior: {own[0]} to "
                f"{own[-1]} against {wanted[0]} to {wanted[-1]}. fn must keep chain and draw."
            )
        value = value.sel({dim: wanted})
    return value


def _with_common_labels(results: dict[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Return results that agree on the labels of each dimension; xarray would pad with NaN."""
    first: dict[str, tuple[str, xr.DataArray]] = {}
    agreed = {}
    for name, value in results.items():
        for dim in map(str, value.dims[2:]):
            if dim not in first:
                first[dim] = (name, value)
                continue
            other, known = first[dim]
            own, wanted = value.get_index(dim), known.get_index(dim)
            if len(own) != len(wanted) or not own.isin(wanted).all():
                raise ValueError(
                    f"{name!r} and {other!r} have other labels along {dim!r}: {own[0]} to "
                    f"{own[-1]} ({len(own)}) and {wanted[0]} to {wanted[-1]} ({len(wanted)}). "
                    f"Rename the dimension of one of them, value.rename({dim}=...), or ask for "
                    "them one at a time."
                )
            if not own.equals(wanted) and own.is_unique:
                value = value.sel({dim: wanted})
            elif not own.equals(wanted):
                raise ValueError(
                    f"{name!r} and {other!r} have the labels of {dim!r} in another order, and some "
                    "of them twice. Bring them into one order."
                )
        agreed[name] = value
    return agreed


def _as_dataset(results: dict[str, xr.DataArray]) -> xr.Dataset:
    for name, value in results.items():
        reserved = [word for word in (name, *value.dims[2:]) if word in RESERVED]
        if reserved or name in ("", ".", "..") or name in value.coords:
            problem = f"the name {reserved[0]!r}" if reserved else f"the name {name!r}"
            raise ValueError(
                f"{name!r} cannot be estimated under {problem}, which az_cv or its files use for "
                "something else. Rename it, for instance with fn={'other': "
                "lambda post: post[...].rename(...)}."
            )
    return xr.Dataset(results)


def _of_bounded_size(integrands: xr.Dataset, most: float) -> xr.Dataset:
    quantities = sum(variable[0, 0].size for variable in integrands.data_vars.values())
    if quantities > most:
        raise ValueError(
            f"{quantities:,} quantities are asked for; one call answers at most "
            f"{most:,}. Select some with var_names= or coords=, or ask for a function of "
            "them, such as fn=lambda post: post['field'].mean('place'). With memory_limit=, "
            "such as '2GB', there may be more, in blocks."
        )
    return integrands


def select_names(
    available: Sequence[str],
    var_names: str | Sequence[str] | None,
    filter_vars: Literal["like", "regex"] | None,
) -> list[str]:
    """Select names as ArviZ does, ``~`` and filters included."""
    from arviz_base.utils import _var_names

    if not available:
        raise ValueError("There is nothing to estimate: there is no variable.")
    if filter_vars not in (None, "like", "regex"):
        raise ValueError(f"filter_vars {filter_vars!r} is unknown. Choose 'like', 'regex' or None.")
    if var_names is None:
        return list(available)
    try:
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        names = _var_names(wanted, xr.Dataset(dict.fromkeys(available, 0)), filter_vars)
    except TypeError:
        raise TypeError(
            f"var_names must be a name or a list of names; it is {var_names!r}."
        ) from None
    except KeyError:
        missing = [name for name in wanted if name not in available]
        shown = f"{missing[0]!r} is" if len(missing) == 1 else f"{missing} are"
        raise UnknownNameError(
            f"var_names {shown} not among the variables: {list(available)}.",
            missing,
            available,
        ) from None
    if not names:
        raise UnknownNameError(
            f"var_names={var_names!r} (filter_vars={filter_vars!r}) selects nothing from "
            f"{list(available)}.",
            wanted,
            available,
        )
    return [str(name) for name in names]


def select_coords(selected: xr.Dataset, coords: Mapping[str, Any] | None) -> xr.Dataset:
    """Select elements by their labels as ArviZ does."""
    if not coords:
        return selected
    if not isinstance(coords, Mapping):
        raise TypeError(f"coords must be a dict of dimension to labels; it is {coords!r}.")
    dims = [str(dim) for dim in selected.dims if dim not in SAMPLE_DIMS]
    for dim, labels in coords.items():
        if dim in SAMPLE_DIMS:
            raise ValueError(
                f"coords selects among quantities, not among draws: {dim!r} cannot be in it. To "
                f"use some of the draws, slice the whole data: data.sel({dim}=...)."
            )
        if dim not in dims:
            raise UnknownNameError(
                f"coords names the dimension {dim!r}. The quantities have {dims}.", [dim], dims
            )
        try:
            selected = selected.sel({dim: labels})
        except (IndexError, KeyError, TypeError, ValueError) as error:
            known = selected[dim].values.tolist() if dim in selected.coords else []
            raise UnknownNameError(
                f"coords[{dim!r}]={labels!r} is not among its labels: "
                f"{known[:10] or selected.sizes[dim]}{'...' if len(known) > 10 else ''}.",
                labels if isinstance(labels, list | tuple) else [labels],
                known,
            ) from error
    if not all(variable.size for variable in selected.data_vars.values()):
        raise ValueError(f"coords={coords!r} selects no element of {list(selected.data_vars)}.")
    return selected
