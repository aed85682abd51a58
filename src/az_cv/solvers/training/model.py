"""What is trained: a family turned into parameters and a prediction, for one training set.

A model has three parts. ``prepare`` looks at the training draws once, in NumPy, and returns the
constants of that training set; ``init`` and ``predict`` are JAX functions of parameters and those
constants, so that one compilation serves every fold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]
    Constants = dict[str, Any]
    Params = dict[str, Any]


class Model(Protocol):
    """What the training loop needs to know."""

    float64: bool
    learning_rate: float | None

    @property
    def columns(self) -> int:
        """Number of control variates trained together."""
        ...

    def prepare(
        self,
        x: Matrix,
        s: Matrix,
        outputs: Float[np.ndarray, "n q"],
        num_draws: int | None = None,
    ) -> Constants:
        """Return the constants of a training set; ``learning_rate`` is among them.

        Of `num_draws` draws these may be some.
        """
        ...

    def init(self, rng_key: Any, constants: Constants) -> Params:
        """Return initial parameters, ``intercept`` among them."""
        ...

    def predict(self, params: Params, constants: Constants, x: Any, s: Any) -> Any:
        """Return the control variates, of shape (n, columns)."""
        ...

    def penalty(self, params: Params, constants: Constants) -> Any:
        """Return the penalty on the parameters, one number per column."""
        ...

    def precondition(self, gradient: Params, constants: Constants) -> Params:
        """Return the direction to move in."""
        ...
