"""The log density of a Stan model with every constant, at any point."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from az_cv.containers.idata import Idata, as_idata, get_group
from az_cv.sources.stan_draws import draw_unit_vector_lengths, flatten_draws
from az_cv.sources.stan_model import evaluate_rows, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable

    import bridgestan
    from jaxtyping import Float


def stan_log_density(
    data: Idata, *, model: bridgestan.StanModel
) -> Callable[[Float[np.ndarray, "n d"]], Float[np.ndarray, " n"]]:
    """Return the log density of a Stan model at unconstrained points, every constant included.

    BridgeStan keeps the constants of ``~`` statements that CmdStan drops. What the program does not
    say stays out: a prior ``normal(0, 5)`` of a parameter with ``lower=0`` has half its mass.

    Parameters
    ----------
    data : DataTree or InferenceData
        Holds ``posterior`` with every parameter of `model`.
    model : bridgestan.StanModel

    Returns
    -------
    callable
        Maps points, in Stan's unconstrained order, to log densities with Jacobian; minus infinity
        where the program rejects.

    Raises
    ------
    ValueError
        If the model has unit vectors, whose unconstrained density Stan does not normalise.
    """
    posterior = get_group(as_idata(data), "posterior").isel(draw=slice(2))
    draws = flatten_draws(posterior, parameter_names(model))
    rows = np.array(draws, dtype=np.float64, order="C").reshape(-1, draws.shape[-1])
    names = model.param_unc_names()
    unconstrained, _ = evaluate_rows(
        lambda row, out: model.param_unconstrain(row, out=out), rows, len(names), model
    )
    if not np.array_equal(
        draw_unit_vector_lengths(unconstrained[None], names)[0], unconstrained, equal_nan=True
    ):
        raise ValueError(
            f"The Stan model {model.name()!r} has unit vectors, whose lengths have a density that "
            "Stan does not normalise. Write it with angles."
        )

    def evaluate(row: ctypes.Array, out: ctypes.Array) -> None:
        out[0] = model.log_density(row, propto=False, jacobian=True)

    def log_density(points: np.ndarray) -> np.ndarray:
        contiguous = np.array(points, dtype=np.float64, order="C")
        values, failures = evaluate_rows(evaluate, contiguous, 1, model)
        values[list(failures)] = -np.inf
        return values[:, 0]

    return log_density
