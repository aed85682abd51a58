"""Log densities given as functions, at many points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.sources.batches import compiled_at_first_use, jax_compile, jax_float64
from az_cv.sources.draw_forms import WRONG_FORM, Draws, accepted_form, read_draws

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float


def callable_log_density(
    draws: Any, function: Callable
) -> Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]:
    """Return a log density as a function of many points.

    Parameters
    ----------
    draws : array, pytree of arrays, DataTree or InferenceData
        See :func:`az_cv.sources.log_density_scores`. They tell the form in which the function
        takes one.
    function : callable
        Returns one number per draw, every constant included. JAX or NumPy.

    Returns
    -------
    callable
        Maps points of shape (n, d) to n log densities.

    Raises
    ------
    TypeError
        If `function` returns a gradient.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.zeros((4, 100, 2))
    >>> callable_log_density(draws, lambda x: -0.5 * (x**2).sum())(np.ones((3, 2)))
    array([-1., -1., -1.])
    """

    def check(form: Draws) -> None:
        with jax_float64():
            output = function(form.build([row[0] for row in form.rows()]))
        if np.shape(output) != ():
            raise TypeError(
                f"The function returns an array of shape {np.shape(output)} for one draw, so it is "
                "a gradient. The evidence needs the log density itself, with every constant: one "
                "number for each draw."
            )

    form = accepted_form(read_draws(draws), check)
    shapes = [leaf.shape[2:] for leaf in form.leaves]
    sizes = [int(np.prod(shape)) for shape in shapes]

    evaluate = compiled_at_first_use(
        lambda rows: jax_compile(lambda *leaves: [function(form.build(leaves))], rows)
    )

    def log_density(points: np.ndarray) -> np.ndarray:
        blocks = np.split(points, np.cumsum(sizes)[:-1], axis=1)
        rows = [block.reshape(len(points), *shape) for block, shape in zip(blocks, shapes)]
        try:
            return evaluate(rows)[0]
        except WRONG_FORM:
            # Not written in JAX: call it draw by draw.
            return np.array([float(function(form.build(row))) for row in zip(*rows)])

    return log_density
