"""Variables with shapes, and the flat vector of unconstrained parameters they make.

Variables are laid side by side, each flattened row-major, and their elements are labelled
``name`` or ``name_0.1``: nutpie's order and names, so that scores stored by it and scores computed
here line up.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jaxtyping import Float


def parameter_labels(name: str, shape: Sequence[int]) -> list[str]:
    """Return one label per element of a variable.

    Examples
    --------
    >>> parameter_labels("mu", ())
    ['mu']
    >>> parameter_labels("beta", (2, 2))
    ['beta_0.0', 'beta_0.1', 'beta_1.0', 'beta_1.1']
    """
    if not shape:
        return [name]
    return [f"{name}_{'.'.join(map(str, index))}" for index in product(*map(range, shape))]


def flatten_variables(
    variables: Mapping[str, np.ndarray], *, sample_ndim: int = 2
) -> tuple[Float[np.ndarray, "... d"], list[str]]:
    """Concatenate variables along one last axis.

    Parameters
    ----------
    variables : mapping of str to array of shape (chain, draw, ...)
    sample_ndim : int, default 2
        Number of leading dimensions that count draws.

    Returns
    -------
    flat : array of shape (chain, draw, d)
    labels : list of str
        One per element of the last axis.

    Examples
    --------
    >>> import numpy as np
    >>> variables = {"mu": np.zeros((4, 100)), "z": np.ones((4, 100, 2))}
    >>> flat, labels = flatten_variables(variables)
    >>> flat.shape, labels
    ((4, 100, 3), ['mu', 'z_0', 'z_1'])
    """
    flat, labels = [], []
    for name, values in variables.items():
        shape = values.shape[sample_ndim:]
        flat.append(np.reshape(values, (*values.shape[:sample_ndim], int(np.prod(shape)))))
        labels.extend(parameter_labels(name, shape))
    return np.concatenate(flat, axis=-1).astype(float, copy=False), labels
