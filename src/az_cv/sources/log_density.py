"""Scores from a log density or its gradient, and draws given as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from az_cv.sources.batches import Compiled, jax_compile, jax_float64, jax_map_chunks, map_chunks
from az_cv.sources.differences import integrate_gradient, require_gradient_of
from az_cv.sources.draw_forms import (
    WRONG_FORM,
    Draws,
    accepted_form,
    apart,
    read_draws,
    side_by_side,
)
from az_cv.sources.edges import edge_attrs, find_edges
from az_cv.sources.finite import drop_non_finite
from az_cv.sources.schema import scores_dataset
from az_cv.sources.stored import stored_log_density

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def log_density_scores(
    draws: Any,
    *,
    log_density: Callable | None = None,
    gradient: Callable | None = None,
    progressbar: bool = True,
) -> xr.Dataset:
    """Make scores from draws and a JAX log density, or a gradient, or both.

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
        Maps one draw to a scalar, and is written in JAX. Need not be normalised. Beside `gradient`
        it may be any function: its differences are compared with the gradients at some draws.
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
        If no function is given, or what it returns has the wrong shape, or the gradient is not that
        of the log density.

    See Also
    --------
    az_cv.scores_dataset : If you have the gradients themselves.
    az_cv.scores : Finds the gradients of any model it knows.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.sources import log_density_scores
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 3))
    >>> scores = log_density_scores(draws, gradient=lambda x: -x)
    >>> bool((scores.gradient == -scores.unconstrained_draw).all())
    True
    """
    if log_density is None and gradient is None:
        raise TypeError("Give log_density, or gradient, or both.")
    forms = read_draws(draws)
    if gradient is not None:
        form = accepted_form(forms, lambda form: _is_vectorised(gradient, form))
        gradients = _call_gradient(gradient, form, progressbar)
        density, error = None, 0.0
        if log_density is not None:
            require_gradient_of(log_density, form.build, form.rows(), gradients)
        elif _has_stored_density(draws):
            density, error = integrate_gradient(
                side_by_side(form.rows()), lambda points: _gradient_at(gradient, form, points)
            )
    elif log_density is not None:
        form = accepted_form(forms, lambda form: _check_scalar(log_density, form))
        compiled = _differentiated(log_density, form)
        density, *gradients = map_chunks(
            compiled.function,
            form.rows(),
            chunk_size=compiled.chunk_size,
            progressbar=progressbar,
        )
    num_chains, num_draws = form.leaves[0].shape[:2]
    points = side_by_side(form.rows())
    attrs: dict[str, object] = {"source": "log_density" if gradient is None else "gradient"}
    if gradient is not None and density is not None:
        attrs |= {"log_density_error": error}
        density = density.reshape(num_chains, num_draws)
    elif density is not None:
        shapes = [row.shape[1:] for row in form.rows()]
        attrs |= edge_attrs(
            find_edges(
                points[np.isfinite(density)],
                lambda points, _: compiled.at(apart(points, shapes))[0],
                form.labels or [f"x_{j}" for j in range(points.shape[1])],
            )
        )
        density = density.reshape(num_chains, num_draws)
    return drop_non_finite(
        scores_dataset(
            points.reshape(num_chains, num_draws, -1),
            side_by_side(gradients).reshape(num_chains, num_draws, -1),
            log_density=density,
            parameter_names=form.labels,
            coords=form.coords,
            attrs=attrs,
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


def _check_scalar(log_density: Callable, form: Draws) -> None:
    import jax

    with jax_float64():
        output = jax.eval_shape(log_density, form.build([row[0] for row in form.rows()]))
    shapes = [leaf.shape for leaf in jax.tree.leaves(output)]
    if shapes != [()]:
        raise ValueError(
            f"log_density must return one number per draw; it returns arrays of shape {shapes}."
        )


def _differentiated(log_density: Callable, form: Draws) -> Compiled:
    """Return the log density and its derivatives, compiled for the draws."""
    import jax

    both = jax.value_and_grad(lambda leaves: log_density(form.build(leaves)))

    def value_and_gradient(*leaves: Any) -> list[Any]:
        value, gradient = both(list(leaves))
        return [value, *gradient]

    return jax_compile(value_and_gradient, form.rows())


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


def _gradient_at(gradient: Callable, form: Draws, points: np.ndarray) -> np.ndarray:
    """Return the gradient at other points than the draws."""
    leaves = apart(points, [row.shape[1:] for row in form.rows()])
    elsewhere = form._replace(leaves=[leaf[None] for leaf in leaves])
    return side_by_side(_call_gradient(gradient, elsewhere, progressbar=False))


def _has_stored_density(draws: Any) -> bool:
    is_tree = isinstance(draws, xr.DataTree) or hasattr(draws, "groups")
    return is_tree and stored_log_density(draws) is not None


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
