"""How the learning rate falls during training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = ("constant", "cosine", "inverse")
WARM_UP = 0.05


def inverse_schedule(beta: float, gamma: float) -> Callable[[Any], Any]:
    """Return the paper's learning rate ``beta / (gamma + t)``, to use with any optax optimiser.

    Parameters
    ----------
    beta, gamma : float
        The rate starts at ``beta / gamma``, and has fallen to half of that after `gamma` steps.

    Returns
    -------
    callable
        Takes the number t of steps done, and returns the rate.

    See Also
    --------
    az_cv.SGD : Takes it as the learning rate of an optimiser.

    Examples
    --------
    >>> from az_cv.solvers import inverse_schedule
    >>> inverse_schedule(2.0, 8.0)(2)
    0.2
    """
    return lambda t: beta / (gamma + t)


def relative_rate(schedule: str, progress: Any) -> Any:
    """Return the learning rate relative to its peak, `progress` running from 0 to 1.

    ``inverse`` is ``beta / (gamma + t)`` with `gamma` a tenth of the steps.

    Examples
    --------
    >>> float(relative_rate("inverse", 0.9))
    0.1
    """
    import jax.numpy as jnp

    match schedule:
        case "cosine":
            rise = progress / WARM_UP
            fall = 0.5 * (1 + jnp.cos(jnp.pi * (progress - WARM_UP) / (1 - WARM_UP)))
            return jnp.where(progress < WARM_UP, rise, fall)
        case "inverse":
            return 1 / (1 + 10 * progress)
        case _:
            return 1.0
