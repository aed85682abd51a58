"""One formula for arrays in the processor's memory and on a graphics card."""

from __future__ import annotations

from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """Return the module whose functions take an array: NumPy, or ``jax.numpy`` for JAX's arrays.

    Examples
    --------
    >>> import numpy as np
    >>> namespace(np.ones(3)).__name__
    'numpy'
    """
    return np if isinstance(array, np.ndarray) else array.__array_namespace__()
