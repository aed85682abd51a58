"""Labelled integrands as one matrix of numbers near one, and the way back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@dataclass(frozen=True)
class Stacked:
    """Integrands as one matrix, and the way back.

    Attributes
    ----------
    template : Dataset
    matrix : array of shape (chain, draw, q)
        Each column in units of its own: the squares of numbers such as 1e-165 would vanish.
    unit : array of shape (q,)
        Powers of two, so that nothing is rounded.
    """

    template: xr.Dataset
    matrix: Float[np.ndarray, "chain draw q"]
    unit: Float[np.ndarray, " q"]

    @property
    def finite(self) -> Bool[np.ndarray, " q"]:
        """Which outputs are finite everywhere."""
        return np.isfinite(self.matrix).all(axis=(0, 1))

    def unstack(self, values: Float[np.ndarray, " q"]) -> xr.Dataset:
        """Return one number per output under the names, dims and coords of the integrands."""
        return self._split(values, ())

    def unstack_draws(
        self,
        values: Float[np.ndarray, "chain draw q"],
        first: int,
        places: Int[np.ndarray, " b"] | None = None,
    ) -> xr.Dataset:
        """Return draws of every output; draws before `first` were not evaluated.

        With `places` they are averages over neighbours, that begin there.
        """
        draws = slice(first, None) if places is None else places
        return self._split(values, SAMPLE_DIMS).assign_coords(
            {
                dim: self.template[dim][draws if dim == "draw" else slice(None)]
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
    """Put every element of every integrand side by side.

    Examples
    --------
    >>> tiny = xr.Dataset({"a": (("chain", "draw"), [[3e-200, -1e-200]])})
    >>> stacked = stack(tiny)
    >>> bool(1 <= abs(stacked.matrix).max() < 2)
    True
    >>> float((stacked.matrix * stacked.unit)[0, 0, 0])
    3e-200
    """
    values = element_matrix(integrands)
    unit = power_of_two(values)
    return Stacked(integrands, values / unit, unit)


def element_matrix(integrands: xr.Dataset) -> Float[np.ndarray, "chain draw q"]:
    """Return every element of every integrand, in the units of the user."""
    blocks = [
        np.asarray(value.data, dtype=float).reshape(*value.shape[:2], -1)
        for value in integrands.data_vars.values()
    ]
    return np.concatenate(blocks, axis=2)


def power_of_two(values: Float[np.ndarray, "chain draw q"]) -> Float[np.ndarray, " q"]:
    """Return the power of two just below the largest magnitude of each output, 1 for zeros."""
    largest = np.abs(values).max(axis=(0, 1))
    usable = np.isfinite(largest) & (largest > 0)
    exponent = np.frexp(np.where(usable, largest, 1.0))[1] - 1
    return np.ldexp(1.0, exponent)


def varying(matrix: Float[np.ndarray, "chain draw q"]) -> Bool[np.ndarray, " q"]:
    """Return which outputs are finite everywhere and not constant."""
    usable = np.isfinite(matrix).all(axis=(0, 1))
    usable[usable] &= np.ptp(matrix[..., usable], axis=(0, 1)) > 0
    return usable


def sample_elements(posterior: xr.Dataset, most: int) -> Float[np.ndarray, "chain draw k"]:
    """Return elements of the posterior's variables, evenly picked where there are more than `most`.

    Nothing else is read, so that large posteriors on disk stay there. What is not a number, or is
    not sampled, is passed over; each element is in units of its own, as in :class:`Stacked`.
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
    values = np.concatenate(blocks, axis=2)
    return values / power_of_two(values) if values.shape[2] else values
