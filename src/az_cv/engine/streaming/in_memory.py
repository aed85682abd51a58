"""Many draws in memory: a kernel and polynomials, solved from sums over pieces."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.engine.streaming.estimates import ROUNDING, in_order
from az_cv.engine.streaming.gram import Functions
from az_cv.engine.streaming.graph import in_threads
from az_cv.engine.streaming.pieces import Draws, cut
from az_cv.engine.streaming.plan import Size, make_plan
from az_cv.engine.streaming.solve import ridges_of
from az_cv.engine.streaming.solving import Solving, design_for, sample_for
from az_cv.families import Kernel
from az_cv.solvers.base import Fitted, Member
from az_cv.solvers.time_limit import remaining
from az_cv.threads import SMALL, considerate_threads, one_thread

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.settings import Settings
    from az_cv.engine.streaming.plan import Plan
    from az_cv.solvers.base import Task

    Rows = Float[np.ndarray, "n k"]

# Bytes that the sums may take beside the draws. A constant: the answer is not to depend on what
# else is in memory.
ROOM = 2 * 10**9
# Seconds of two typical cores: somebody waits for an answer that is precise enough after a minute.
ENOUGH = 60.0
KEPT = 4e8  # bytes of sums that wait for further outputs
PILOT = 5000  # draws that the kernel is chosen on, and that carry its sections


@dataclass(frozen=True)
class InPieces:
    """Solve for the sections of a kernel at some of the draws, beside polynomials.

    Products of features are summed up piece by piece, so that memory and time do not grow with the
    square of the number of draws.

    Parameters
    ----------
    settings : Settings
        Those of the engine.
    """

    settings: Settings

    def accepts(self, family: Any) -> bool:
        """Tell whether a family is a kernel."""
        return isinstance(family, Kernel)

    def prepare(self, family: Kernel, task: Task) -> Summed:
        """Return the draws, ready for any outputs."""
        return Summed(self.settings, task)


class Summed:
    """Draws in memory, and features whose sums are known once a first output was fitted."""

    def __init__(self, settings: Settings, task: Task) -> None:
        self.settings = settings
        self.task = task

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Chains, draws of each, and dimension."""
        return (*self.task.shape, self.task.x.shape[1])

    def plan(self, seconds: float = math.inf) -> Plan:
        """Say how many features, folds and draws in a piece; errors are judged on single draws."""
        size = Size(*self.sizes, outputs=self.sizes[2], chunk=0, memory=ROOM)
        limit = None if seconds == math.inf else seconds
        return replace(make_plan(size, self.settings, limit, ENOUGH), batch=1)

    @cached_property
    def solving(self) -> Solving:
        """The features that there is time for without a limit, whose sums are kept."""
        return self._solving(self.plan())

    def _solving(self, plan: Plan) -> Solving:
        task = self.task
        few = slice(None, None, -(-len(task.x) // PILOT))
        x, s = task.x[few], task.s[few]
        guide = np.hstack([x, (x**2 - 1) / math.sqrt(2)])
        if task.guide is not None:
            guide = task.guide[few]
        with one_thread():
            design = design_for(plan, x, s, guide)
        ridges = ridges_of(len(task.x), automatic=True)
        keeps = 8 * design.size**2 * plan.load.folds <= KEPT
        return Solving(
            AsTheyAre(), design, sample_for(plan, x), [], plan, ridges, keeps, in_threads
        )

    def fit(self, outputs: Rows, *, steps: bool = False) -> Fitted:
        """Fit standardised outputs; indicators gain too little for their time."""
        if steps:
            return Fitted([])
        chains, draws = self.task.shape
        x, s, given = (a.reshape(chains, draws, -1) for a in (self.task.x, self.task.s, outputs))
        q = outputs.shape[1]
        functions = Functions(slice(0, q), np.zeros(q), np.ones(q), np.ones(q), squares=False)
        seconds = remaining()
        with considerate_threads(SMALL):
            # What little time there was now is not to be seen in later answers.
            solving = self.solving if seconds == math.inf else self._solving(self.plan(seconds))
            plan = solving.plan
            segments = cut(Draws(x, s, given), plan.folds, plan.rows, plan.segments)
            asked = replace(solving, segments=segments)  # other threads ask other questions
            parts, _, beyond, _ = asked.residuals(functions)
            solving.grams = asked.grams
        adjusted = in_order(parts, chains).adjusted
        label = solving.design.labels()[-1]
        tail = np.hypot(beyond, ROUNDING)
        return Fitted([Member(label, adjusted.mean(axis=(0, 1)), adjusted, tail)])


class AsTheyAre:
    """Draws and scores that are standardised already."""

    def draws(self, x: Rows) -> Rows:
        """Return the draws."""
        return x

    def scores(self, s: Rows) -> Rows:
        """Return the scores."""
        return s
