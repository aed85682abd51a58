"""The one place that knows the two ArviZ generations.

ArviZ 0.x hands out ``arviz.InferenceData``, ArviZ 1.x ``xarray.DataTree``. Everything else in the
package asks this module for a group as a ``Dataset``, for the group names, or to add a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import xarray as xr

if TYPE_CHECKING:
    from collections.abc import Mapping

Idata: TypeAlias = Any  # arviz.InferenceData (ArviZ 0.x) or xarray.DataTree (ArviZ >= 1)

SAMPLE_DIMS = ("chain", "draw")


def as_idata(data: Any) -> Idata:
    """Return `data` if it holds groups already, else what ``arviz_base`` converts it to.

    Parameters
    ----------
    data : InferenceData, DataTree, Dataset, or anything ``arviz_base.convert_to_datatree`` takes

    Returns
    -------
    InferenceData or DataTree
        The same object when it holds groups, so that groups added to it reach the caller.
    """
    if isinstance(data, xr.DataTree) or _is_inference_data(data):
        return data
    if isinstance(data, xr.Dataset):
        return xr.DataTree.from_dict({"posterior": data})
    from arviz_base import convert_to_datatree

    return convert_to_datatree(data)


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
        raise KeyError(f"There is no group {group!r} in data. Available: {available}.")
    node = data[group]
    return node.to_dataset() if isinstance(node, xr.DataTree) else node


def add_groups(data: Idata, groups: Mapping[str, xr.Dataset]) -> None:
    """Add groups to `data` in place, replacing those of the same name."""
    for name, dataset in groups.items():
        # InferenceData accepts a DataTree without complaint and breaks later.
        data[name] = xr.DataTree(dataset) if isinstance(data, xr.DataTree) else dataset


def _is_inference_data(data: Any) -> bool:
    # ArviZ 1.x aliases `arviz.InferenceData` to DataTree, so ask the object and not the module.
    return type(data).__name__ == "InferenceData" and type(data).__module__.startswith("arviz.")
