"""A trained model at any draws, a chunk at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.solvers.training.model import Constants, Model, Params
    from az_cv.solvers.training.plan import Trained

CHUNK = 4096


class Predictor:
    """Control variates of a model, compiled once for chunks of one size."""

    def __init__(self, model: Model) -> None:
        import jax

        self.model = model
        self._evaluate = jax.jit(model.predict)

    def __getstate__(self) -> Model:
        # What is compiled stays in its process.
        model = copy.copy(self.model)
        if hasattr(model, "_evaluate"):
            model._evaluate = None
        return model

    def __setstate__(self, model: Model) -> None:
        self.__init__(model)  # type: ignore[misc]

    def __call__(
        self,
        params: Params,
        constants: Constants,
        draws: tuple[Any, ...],
        rows: Int[np.ndarray, " m"],
        chunk: int = CHUNK,
    ) -> Float[np.ndarray, "m c"]:
        """Return the control variates at `rows` of the draws and scores, in bounded memory."""
        x, s = draws[:2]
        values = np.empty((len(rows), self.model.columns), dtype=np.asarray(x[:1]).dtype)
        for start in range(0, len(rows), chunk):
            own = rows[start : start + chunk]
            padded = np.resize(own, chunk)
            result = self._evaluate(params, constants, x[padded], s[padded])
            values[start : start + len(own)] = np.asarray(result)[: len(own)]
        return values


@dataclass(frozen=True)
class Control:
    """What training found for one fold: the average over independently started trainings.

    Attributes
    ----------
    predictor : Predictor
    constants : dict
    trained : sequence of Trained
        Each has parameters.
    chunk : int
        Draws that are evaluated at a time.
    """

    predictor: Predictor
    constants: Constants
    trained: Sequence[Trained]
    chunk: int = CHUNK

    def at(
        self, draws: tuple[Any, ...], rows: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "m q"]:
        """Return the control variates at `rows` of whitened draws and scores, or at all."""
        rows = np.arange(len(draws[0])) if rows is None else rows
        found = []
        for trained in self.trained:
            assert trained.params is not None
            values = self.predictor(trained.params, self.constants, draws, rows, self.chunk)
            found.append(trained.best_columns(values))
        return np.mean(found, axis=0, dtype=float)
