"""What goes into a training, and what comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.solvers.training.model import Params

CLEARLY = 0.9  # ratio of variances


class TrainingRecord(NamedTuple):
    """One line of a training history."""

    member: str
    fold: int
    restart: int
    epoch: float
    loss: float
    held_out_variance: float


@dataclass(frozen=True)
class Plan:
    """How to train: everything about the run that does not depend on the draws.

    Attributes
    ----------
    objective, schedule : str
    optimizer : optax.GradientTransformation or None
        ``None``: scaled gradient steps for linear families, Adam for networks.
    batch_size, window : int
        Draws of a step; successive draws in a run.
    num_epochs : float
    output_penalty : float
        Weight of the mean of g^2.
    averaging : float
        Share of the steps, at the end, whose parameters are averaged.
    early_stopping : bool
    seconds : float
        Time this run may take.
    """

    objective: str
    schedule: str
    optimizer: Any
    batch_size: int
    window: int
    num_epochs: float
    output_penalty: float
    averaging: float
    early_stopping: bool
    seconds: float = math.inf


class Draws(NamedTuple):
    """Standardised draws, scores and outputs on the device, in the precision of the model."""

    x: Any
    s: Any
    outputs: Any


class State(NamedTuple):
    """What a training step changes."""

    params: Params
    optimizer: Any
    average: Params
    averaged: Any
    step: Any


@dataclass(frozen=True)
class Trained:
    """The outcome of training.

    Attributes
    ----------
    params : dict, optional
        ``None`` when every attempt diverged.
    errors : array of shape (strengths, outputs)
        Variance of the residuals at the held-out draws, or at the training draws without such.
    records : list of TrainingRecord
    """

    params: Params | None
    errors: Float[np.ndarray, "k q"]
    records: list[TrainingRecord]

    def improves_on(self, other: Trained) -> bool:
        """Tell whether errors are clearly smaller; held-out draws are few."""
        mine, others = (trained.errors.min(axis=0) + 1e-300 for trained in (self, other))
        return bool(np.log(mine).mean() < np.log(others).mean() + math.log(CLEARLY))

    def best_columns(self, values: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n q"]:
        """Return for every output the values of the strength with the smallest error."""
        k, q = self.errors.shape
        best = np.argmin(self.errors, axis=0)
        return values.reshape(len(values), k, q)[:, best, np.arange(q)]
