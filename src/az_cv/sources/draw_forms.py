"""The forms in which a user's function may take draws: a vector, a dict, any pytree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.sources.layout import flatten_variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# What Python, NumPy and JAX raise when a function meets an argument of a form it was not written
# for. Anything else is an error of the function's own, and is let through.
WRONG_FORM = (TypeError, ValueError, LookupError, AttributeError, NotImplementedError)


class Draws(NamedTuple):
    """Draws in the form a user's function takes them."""

    form: str  # for messages
    leaves: list[np.ndarray]  # of shape (chain, draw, ...)
    build: Callable[[Sequence[Any]], Any]  # the argument, from leaves without leading dims
    split: Callable[[Any], Sequence[Any]]  # the leaves of a gradient, from what is returned
    labels: list[str] | None = None
    coords: Mapping[str, np.ndarray] | None = None

    def rows(self) -> list[np.ndarray]:
        """Return the leaves with chain and draw merged into one leading axis."""
        return [leaf.reshape(-1, *leaf.shape[2:]) for leaf in self.leaves]


def read_draws(draws: Any) -> list[Draws]:
    """Return the forms in which a function may take the draws, the likeliest first."""
    if isinstance(draws, xr.Dataset | xr.DataTree) or hasattr(draws, "groups"):
        return _read_posterior(as_idata(draws))
    if hasattr(draws, "shape"):
        array = np.asarray(draws, float)
        if array.ndim not in (2, 3):
            raise ValueError(
                f"draws has shape {array.shape}. Give (chain, draw, d), or (draw, d) for one chain."
            )
        return [_vector_form(array if array.ndim == 3 else array[None])]
    import jax

    structure: Any
    paths, structure = jax.tree_util.tree_flatten_with_path(draws)
    variables = {
        "_".join(str(getattr(key, "key", getattr(key, "name", key))) for key in path): leaf
        for path, leaf in paths
    }
    if len(variables) < len(paths):
        raise ValueError(f"Two arrays of draws have the same name. Names: {list(variables)}.")
    leaves = _float_leaves(variables)
    shapes = [leaf.shape for leaf in leaves]
    if min(map(len, shapes), default=0) < 2 or len({shape[:2] for shape in shapes}) > 1:
        raise ValueError(
            "Every array of draws must begin with the dimensions chain and draw. "
            f"Shapes: {dict(zip(variables, shapes))}."
        )
    labels = flatten_variables(dict(zip(variables, leaves)))[1]
    return [Draws("a pytree", leaves, structure.unflatten, structure.flatten_up_to, labels)]


def _read_posterior(data: Idata) -> list[Draws]:
    posterior = get_group(data, "posterior").transpose(*SAMPLE_DIMS, ...)
    names = [str(name) for name in posterior.data_vars]
    leaves = _float_leaves({name: posterior[name].values for name in names})
    coords = {dim: posterior[dim].values for dim in SAMPLE_DIMS}
    vector, labels = flatten_variables(dict(zip(names, leaves)))
    return [
        _vector_form(vector, labels, coords),
        Draws(
            f"a dict with the keys {names}",
            leaves,
            lambda leaves: dict(zip(names, leaves)),
            lambda gradient: [gradient[name] for name in names],
            labels,
            coords,
        ),
    ]


def _vector_form(
    array: np.ndarray,
    labels: list[str] | None = None,
    coords: Mapping[str, np.ndarray] | None = None,
) -> Draws:
    form = f"a vector of length {array.shape[-1]}"
    return Draws(
        form, [array], lambda leaves: leaves[0], lambda gradient: [gradient], labels, coords
    )


def _float_leaves(variables: Mapping[str, Any]) -> list[np.ndarray]:
    arrays = {name: np.asarray(values) for name, values in variables.items()}
    if discrete := [name for name, array in arrays.items() if array.dtype.kind != "f"]:
        raise TypeError(
            f"Variables {discrete} are not floating point, and there is no gradient for them. "
            "Leave them out of the draws and close over them in the function."
        )
    return [array.astype(float) for array in arrays.values()]


def accepted_form(forms: list[Draws], check: Callable[[Draws], object]) -> Draws:
    """Return the first form of the draws that passes `check`; say how each of them fails."""
    errors: list[Exception] = []
    for form in forms:
        try:
            check(form)
        except WRONG_FORM as err:
            errors.append(err)
        else:
            return form
    if len(errors) == 1:
        raise errors[0]
    reports = [f"- {f.form}: {type(e).__name__}: {e}" for f, e in zip(forms, errors)]
    raise TypeError(
        "The function accepts a draw in none of the forms it was offered.\n" + "\n".join(reports)
    ) from errors[-1]


def side_by_side(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return one vector per draw from its leaves."""
    return np.concatenate([row.reshape(len(row), -1) for row in rows], axis=-1)


def apart(points: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return the leaves of points that lie side by side."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    parts = np.split(points, np.cumsum(sizes)[:-1], axis=1)
    return [part.reshape(len(points), *shape) for part, shape in zip(parts, shapes)]
