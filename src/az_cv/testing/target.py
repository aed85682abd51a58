"""What a target is, its draws as labelled data, and its moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import xarray as xr

from az_cv.sources.schema import scores_dataset

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


class Target(Protocol):
    """A distribution with a score and integrands of known expectation."""

    def sample(self, rng: np.random.Generator, n: int) -> Matrix:
        """Draw n independent samples."""
        ...

    def score(self, x: Matrix) -> Matrix:
        """Return the gradient of the log density at each row."""
        ...

    def integrands(self, x: Matrix) -> dict[str, Float[np.ndarray, " n"]]:
        """Return integrands evaluated at each row."""
        ...

    def expectations(self) -> dict[str, float]:
        """Return the expectation of each integrand."""
        ...


def as_datatree(
    target: Target, *, chains: int = 4, draws: int = 1000, random_seed: int = 0
) -> tuple[xr.DataTree, xr.Dataset]:
    """Sample a target into the form that :func:`az_cv.summary` takes.

    Parameters
    ----------
    target : Target
        One of ``az_cv.testing``, or an object of your own with ``sample``, ``score`` and
        ``integrands``.
    chains, draws : int
        How many chains, and how many draws each of them has. All draws are independent.
    random_seed : int

    Returns
    -------
    data : DataTree
        The integrands as variables of the group ``posterior``.
    scores : Dataset
        The draws themselves and the gradients there, for ``az_cv.summary(data, scores=scores)``.

    See Also
    --------
    az_cv.load_eight_schools : A posterior that was sampled.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.testing import Gaussian, as_datatree
    >>> data, scores = as_datatree(Gaussian(np.eye(2)), draws=100)
    >>> sorted(data["posterior"].data_vars)
    ['x0', 'x0^2', 'x1', 'x1^2']
    """
    rng = np.random.default_rng(random_seed)
    x = target.sample(rng, chains * draws)
    shape = (chains, draws)
    variables = {
        name: (("chain", "draw"), values.reshape(shape))
        for name, values in target.integrands(x).items()
    }
    coords = {"chain": np.arange(chains), "draw": np.arange(draws)}
    data = xr.DataTree.from_dict({"posterior": xr.Dataset(variables, coords=coords)})
    return data, scores_dataset(x.reshape(*shape, -1), target.score(x).reshape(*shape, -1))


def coordinate_moments(x: Matrix) -> dict[str, np.ndarray]:
    """Return first and second moments of every coordinate as functions at the draws."""
    first = {f"x{j}": x[:, j] for j in range(x.shape[1])}
    return first | {f"x{j}^2": x[:, j] ** 2 for j in range(x.shape[1])}


def named_moments(first: np.ndarray, second: np.ndarray) -> dict[str, float]:
    """Return moments under the names that `coordinate_moments` gives."""
    named = {f"x{j}": float(value) for j, value in enumerate(first)}
    return named | {f"x{j}^2": float(value) for j, value in enumerate(second)}
