"""Scores from a log density or its gradient, and draws given as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS, Idata, as_idata, get_group
from az_cv.sources.batches import (
    jax_float64,
    jax_map_chunks,
    map_chunks,
)
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.layout import flatten_variables
from az_cv.sources.schema import scores_dataset

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


def log_density_scores(
    draws: Any,
    *,
    log_density: Callable | None = None,
    gradient: Callable | None = None,
    progressbar: bool = True,
) -> xr.Dataset:
    """Make scores from draws and either a JAX log density or a gradient.

    Parameters
    ----------
    draws : array, pytree of arrays, DataTree or InferenceData
        Draws on the unconstrained scale of the function:

        * an array of shape (chain, draw, d), or (draw, d) for one chain: the function takes a
          vector of length d;
        * a dict or other pytree of arrays of shape (chain, draw, ...): the function takes the same
          pytree without the two leading dimensions;
        * a tree with a group ``posterior``: the function takes the vector of all its variables,
          side by side and each flattened row-major, or a dict of them.
    log_density : callable, optional
        Maps one draw to a scalar, and is written in JAX. Need not be normalised.
    gradient : callable, optional
        Maps one draw to the gradient of the log density there, or all draws along a leading axis
        to all gradients: which of the two is found out by calling it. NumPy or JAX.
    progressbar : bool, default True
        Show a progress bar while evaluating gradients.

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`.

    Warns
    -----
    NonFiniteScoresWarning
        If draws without a finite score had to be left out.

    Raises
    ------
    TypeError, ValueError
        If not exactly one function is given, or what it returns has the wrong shape.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 3))
    >>> scores = log_density_scores(draws, gradient=lambda x: -x)
    >>> bool((scores.gradient == -scores.unconstrained_draw).all())
    True
    """
    if (log_density is None) == (gradient is None):
        raise TypeError("Give either log_density or gradient, not both and not neither.")
    forms = read_draws(draws)
    if log_density is not None:
        form = accepted_form(forms, lambda form: _check_scalar(log_density, form))
        gradients = _differentiate(log_density, form, progressbar)
    elif gradient is not None:
        form = accepted_form(forms, lambda form: _is_vectorised(gradient, form))
        gradients = _call_gradient(gradient, form, progressbar)
    num_chains, num_draws = form.leaves[0].shape[:2]
    return drop_non_finite(
        scores_dataset(
            _side_by_side(form.rows()).reshape(num_chains, num_draws, -1),
            _side_by_side(gradients).reshape(num_chains, num_draws, -1),
            parameter_names=form.labels,
            coords=form.coords,
            attrs={"source": "log_density" if gradient is None else "gradient"},
        )
    )


def callable_scores(draws: Any, function: Callable, *, progressbar: bool = True) -> xr.Dataset:
    """Make scores from draws and a function that is either a JAX log density or a gradient.

    A function that returns one number for one draw is a log density, any other a gradient.

    Parameters
    ----------
    draws : array, pytree of arrays, DataTree or InferenceData
        See :func:`log_density_scores`.
    function : callable
    progressbar : bool, default True

    Returns
    -------
    Dataset
        ``unconstrained_draw`` and ``gradient``, see :mod:`az_cv.sources.schema`.

    Raises
    ------
    TypeError
        If `function` returns a number but is not written in JAX, so that it has no derivative.
    """
    import jax

    for form in read_draws(draws):
        first = form.build([row[0] for row in form.rows()])
        with jax_float64():
            try:
                output = jax.eval_shape(function, first)
            except WRONG_FORM:
                try:
                    output = function(first)
                except WRONG_FORM:
                    continue  # takes the draw in another form, or only many draws at once
                if np.ndim(output) == 0:
                    raise TypeError(
                        "The function returns one number per draw, so it is a log density, but JAX "
                        "cannot differentiate it. Write it with jax.numpy, or pass its gradient."
                    ) from None
        if getattr(output, "shape", None) == ():
            return log_density_scores(draws, log_density=function, progressbar=progressbar)
        break
    return log_density_scores(draws, gradient=function, progressbar=progressbar)


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


def _check_scalar(log_density: Callable, form: Draws) -> None:
    import jax

    with jax_float64():
        output = jax.eval_shape(log_density, form.build([row[0] for row in form.rows()]))
    shapes = [leaf.shape for leaf in jax.tree.leaves(output)]
    if shapes != [()]:
        raise ValueError(
            f"log_density must return one number per draw; it returns arrays of shape {shapes}."
        )


def _differentiate(log_density: Callable, form: Draws, progressbar: bool) -> list[np.ndarray]:
    import jax

    gradient = jax.grad(lambda leaves: log_density(form.build(leaves)))
    return jax_map_chunks(
        lambda *leaves: gradient(list(leaves)), form.rows(), progressbar=progressbar
    )


def _call_gradient(gradient: Callable, form: Draws, progressbar: bool) -> list[np.ndarray]:
    def evaluate_all(*leaves: np.ndarray) -> Sequence[Any]:
        return form.split(gradient(form.build(leaves)))

    def evaluate_each(*leaves: np.ndarray) -> list[np.ndarray]:
        rows = [evaluate_all(*row) for row in zip(*leaves)]
        return [np.stack([np.asarray(leaf, float) for leaf in column]) for column in zip(*rows)]

    rows = form.rows()
    with jax_float64():
        if _is_vectorised(gradient, form):
            return map_chunks(evaluate_all, rows, progressbar=progressbar)
        try:
            return jax_map_chunks(evaluate_all, rows, progressbar=progressbar)
        except WRONG_FORM:
            # Not written in JAX: call it draw by draw.
            return map_chunks(evaluate_each, rows, progressbar=progressbar)


def _is_vectorised(gradient: Callable, form: Draws) -> bool:
    """Call a gradient with one draw and with several to see which it takes; check the shapes."""

    def call(leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
        with jax_float64():
            output = gradient(form.build(leaves))
        arrays = [np.asarray(leaf, float) for leaf in form.split(output)]
        expected, shapes = [leaf.shape for leaf in leaves], [array.shape for array in arrays]
        if shapes != expected:
            raise ValueError(
                f"gradient returned arrays of shape {shapes} where the draws have {expected}. "
                "Return one derivative per parameter."
            )
        return arrays

    few = [row[:3] for row in form.rows()]
    try:
        one_by_one = [call([row[i] for row in few]) for i in range(len(few[0]))]
    except WRONG_FORM:
        # Perhaps it takes only many draws at once. If not, what it raises then is the error.
        call(few)
        return True
    try:
        at_once = call(few)
    except WRONG_FORM:
        return False
    # A function of one vector may accept a matrix and mean something else by it.
    stacked = [np.stack(column) for column in zip(*one_by_one)]
    return all(np.allclose(a, b, rtol=1e-6, equal_nan=True) for a, b in zip(at_once, stacked))


def _side_by_side(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([row.reshape(len(row), -1) for row in rows], axis=-1)
