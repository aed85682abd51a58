"""What a table cannot say in numbers: which of them to distrust."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.containers.labels import listed, scalar_labels
from az_cv.engine.plain_check import apart
from az_cv.engine.tails import heavy_tails
from az_cv.notices import notify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.labelled.stacking import Stacked

    PerOutput = Float[np.ndarray, " q"]


def notify_heavy(stacked: Stacked) -> None:
    """Name the quantities whose mean may not exist, whatever the table says of it."""
    exponents = heavy_tails(stacked.matrix)
    heavy = np.flatnonzero(np.isfinite(exponents))
    if not len(heavy):
        return
    names = scalar_labels(stacked.template)
    notify(
        f"The tails of {listed([names[k] for k in heavy])} are very heavy (Pareto k "
        f"{exponents[heavy].max():.2g}; the variance exists below 0.5, the mean below 1): the "
        "variance, and perhaps the mean, does not exist, and then no number for it is right. Ask "
        "for a function that is bounded, or for the ends of the interval."
    )


def notify_apart(
    names: Sequence[str],
    what: str,
    mean: PerOutput,
    plain_mean: PerOutput,
    plain_mcse: PerOutput,
    plain_sd: PerOutput,
) -> None:
    """Name the quantities whose answer and plain average contradict each other.

    Parameters
    ----------
    names : sequence of str
    what : str
        What the answers are, in the plural.
    mean, plain_mean, plain_mcse, plain_sd : arrays of shape (q,)
        As in :func:`az_cv.engine.plain_check.apart`.
    """
    distance, explained = apart(mean, plain_mean, plain_mcse, plain_sd)
    far = np.flatnonzero(distance > explained)
    if not len(far):
        return
    worst = far[np.argmax(distance[far])]
    notify(
        f"The corrected {what} of {listed([names[int(k)] for k in far])} lie up to "
        f"{distance[worst]:.2g} plain errors from the plain averages, where chance explains "
        f"{explained[worst]:.2g}. One of the two is wrong: a density with an edge or a jump, "
        "gradients of another model, chains that have not converged, or tails that few draws "
        "reach. Compare with ArviZ's summary, and trust neither before you know. Draws of an "
        "approximation (Laplace, ADVI, Pathfinder) need draws='approximate', or log_weights."
    )
