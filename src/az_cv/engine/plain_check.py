"""Whether an answer is compatible with the plain average of the same draws.

Both estimate one expectation, and the plain average knows nothing of gradients. Where the two are
further apart than the plain error explains, one of them is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.stats

if TYPE_CHECKING:
    from jaxtyping import Float

    PerOutput = Float[np.ndarray, " q"]

# Probability that a call on sound draws warns by chance, whatever the number of its quantities.
LEVEL = 1e-3
# The variance of a mean is itself an estimate. Summed over a window of five autocorrelation times,
# it scatters as a chi-squared variable with a tenth of the effective draws as degrees of freedom.
PER_FREEDOM = 10.0


def apart(
    mean: PerOutput, plain_mean: PerOutput, plain_mcse: PerOutput, plain_sd: PerOutput
) -> tuple[PerOutput, PerOutput]:
    """Return how many plain errors answers lie from plain averages, and how many chance explains.

    Parameters
    ----------
    mean : array of shape (q,)
        The answers; NaN is passed over.
    plain_mean, plain_mcse, plain_sd : arrays of shape (q,)
        Mean, error and sd of the plain draws.

    Returns
    -------
    distance, explained : arrays of shape (q,)

    Examples
    --------
    >>> import numpy as np
    >>> plain = np.zeros(3), np.full(3, 0.02), np.ones(3)
    >>> distance, explained = apart(np.array([0.01, 0.2, np.nan]), *plain)
    >>> distance > explained
    array([False,  True, False])
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        distance = np.abs(mean - plain_mean) / plain_mcse
        freedom = (plain_sd / plain_mcse) ** 2 / PER_FREEDOM
    compared = np.isfinite(distance) & np.isfinite(freedom)
    share = LEVEL / (2 * max(int(compared.sum()), 1))
    freedom = np.where(compared, np.maximum(freedom, 1.0), 1.0)
    return np.where(compared, distance, 0.0), np.asarray(scipy.stats.t.isf(share, freedom))
