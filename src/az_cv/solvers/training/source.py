"""Where minibatches come from: draws in memory, all of them or some at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int

    from az_cv.solvers.training.plan import Draws

    Rows = Int[np.ndarray, " m"]


class Buffer(NamedTuple):
    """Draws, and which of them are meant.

    Attributes
    ----------
    draws : Draws
    rows : index array
        For ``batch_means`` the first rows of runs. Longer than `size` where one compilation is to
        serve buffers of several sizes.
    size : int
        How many of `rows` count.
    """

    draws: Draws
    rows: Any
    size: int


class Source(Protocol):
    """What the training loop needs to know of the draws."""

    @property
    def count(self) -> int:
        """Rows that minibatches are taken from in a pass over the draws."""
        ...

    @property
    def capacity(self) -> int:
        """How many of them are in memory at a time."""
        ...

    @property
    def held_out(self) -> Buffer:
        """Draws that are not trained on."""
        ...

    def start(self, rng_key: Any) -> None:
        """Begin a training, whose passes over the draws follow from the key."""
        ...

    def at(self, taken: int) -> Buffer:
        """Return the draws to train on when so many have been taken for minibatches."""
        ...


@dataclass(frozen=True)
class Stored:
    """Draws that are all in memory.

    Attributes
    ----------
    draws : Draws
    rows, held_out_rows : index arrays
        What is trained on, and what judges it.
    """

    draws: Draws
    rows: Rows
    held_out_rows: Rows

    @property
    def count(self) -> int:
        """Rows that minibatches are taken from."""
        return len(self.rows)

    @property
    def capacity(self) -> int:
        """All of them."""
        return len(self.rows)

    @property
    def held_out(self) -> Buffer:
        """Draws that are not trained on."""
        return Buffer(self.draws, self.held_out_rows, len(self.held_out_rows))

    def start(self, rng_key: Any) -> None:
        """Do nothing: minibatches follow from the key of the trainer."""

    def at(self, taken: int) -> Buffer:
        """Return all of them, whatever was taken."""
        return self._all

    @cached_property
    def _all(self) -> Buffer:
        # Rows are padded to the same length in every fold: one compilation serves them all.
        return Buffer(self.draws, np.resize(self.rows, len(self.draws.x)), len(self.rows))
