"""Training by stochastic gradients on pieces, and what it leaves of draws it has not seen."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.engine.combination import PLAIN
from az_cv.engine.streaming.adjust import Residuals, merge_residuals, residuals_of
from az_cv.engine.streaming.buffer import Buffered
from az_cv.engine.streaming.graph import map_reduce
from az_cv.engine.streaming.pieces import middle, pieces_of, stretches
from az_cv.solvers.training.course import Course
from az_cv.solvers.training.predictor import CHUNK, Control, Predictor
from az_cv.solvers.training.progress import progress
from az_cv.solvers.training.rows import HELD_OUT
from az_cv.solvers.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jaxtyping import Float

    from az_cv.engine.settings import Settings
    from az_cv.engine.streaming.gram import Functions
    from az_cv.engine.streaming.pieces import Draws, Piece, Segment
    from az_cv.engine.streaming.plan import Plan
    from az_cv.engine.streaming.whitening import Standardising
    from az_cv.families.base import LinearFamily
    from az_cv.families.neural import TrainedFamily
    from az_cv.solvers.training.plan import TrainingRecord
    from az_cv.solvers.training.sgd import SGD

    Rows = Float[np.ndarray, "n k"]

HELD_OUT_PART = 8  # of the buffer, at most, judges when to stop


@dataclass(frozen=True)
class TrainedWork:
    """What the tasks of the last pass need.

    Attributes
    ----------
    whitening : Standardising
    functions : Functions
    batch : int
        Draws that are averaged.
    control : Control, optional
        Of a training that has not seen the fold; without it nothing is fitted.
    """

    whitening: Standardising
    functions: Functions
    batch: int
    control: Control | None

    def fitted(self, piece: Piece) -> Iterator[tuple[Rows, Rows, Rows]]:
        """Return control variates, functions and outputs."""
        x, s, outputs = piece.all(self.functions.columns)
        size = len(x) if self.control is None else self.control.chunk
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            values = self.functions.of(outputs[rows])
            yield self._control(x[rows], s[rows], values), values, outputs[rows]

    def _control(self, x: Rows, s: Rows, values: Rows) -> Rows:
        if self.control is None:
            return np.zeros_like(values)
        import jax

        model = self.control.predictor.model
        dtype = np.float64 if model.float64 else np.float32
        white = self.whitening.draws(x), self.whitening.scores(s)
        with jax.enable_x64(model.float64):  # of this thread
            return self.control.at(tuple(np.asarray(a, dtype) for a in white))


@dataclass(frozen=True)
class Lesson:
    """A family to be trained on pieces, whatever the outputs.

    Attributes
    ----------
    solver : SGD
    family : LinearFamily or TrainedFamily
    draws : Draws
    segments : sequence of Segment
    plan : Plan
    whitening : Standardising
    dimension : int
        Of whitened draws.
    settings : Settings
    chunk : int
        Draws that lie together where they are stored.
    """

    solver: SGD
    family: LinearFamily | TrainedFamily
    draws: Draws
    segments: Sequence[Segment]
    plan: Plan
    whitening: Standardising
    dimension: int
    settings: Settings
    chunk: int = 0

    def residuals(
        self, functions: Functions, seconds: float
    ) -> tuple[dict[int, Residuals], list[str], np.ndarray, list[TrainingRecord]]:
        """Train for every fold on the others; return what is left of each.

        Parameters
        ----------
        functions : Functions
        seconds : float
            What training may take.

        Returns
        -------
        parts : dict of fold to Residuals
        labels : list of str
            Of the fit of each function; where training diverged nothing is fitted.
        tail : array of shape (k,)
            Error of each fit from the region beyond the outermost draws: none is known.
        history : list of TrainingRecord
        """
        import jax

        draws, plan, solver = self.draws, self.plan, self.solver
        chains, length = draws.sizes[:2]
        parts = stretches(chains, length, plan.folds)
        folds = sorted({fold for fold, _ in parts})
        q = 2 * len(functions.centre)
        largest = max(sum(b - a for f, (_, a, b) in parts if f == fold) for fold in folds)
        how = solver.plan(self.family, chains * length - largest, length, q)
        model = solver.model(self.family, self.dimension, q, how)
        course = Course(solver, self.family, len(folds), self.settings.random_seed)
        how = replace(how, seconds=course.seconds_each(seconds))
        window = how.window if solver.objective == "batch_means" else 1
        work = TrainedWork(self.whitening, functions, plan.batch, None)
        trainer = Trainer(model, how, min(CHUNK, plan.rows))
        found: dict[int, Residuals] = {}
        shown = progress(self.settings.progressbar, course.label)
        with jax.enable_x64(model.float64), shown as update:
            for place, fold in enumerate(folds):
                outside = [stretch for own, stretch in parts if own != fold]
                count = sum(end - first for _, first, end in outside)
                share = HELD_OUT if solver.early_stopping else 0.0
                judging = min(int(share * count), plan.buffer // HELD_OUT_PART)
                trained, held_out = (
                    pieces_of(draws, some, self._rows(window), self.chunk)
                    for some in middle(outside, judging)
                )
                source = Buffered(
                    trained,
                    held_out,
                    self.whitening,
                    functions,
                    plan.buffer,
                    np.float64 if model.float64 else np.float32,
                    window,
                )
                constants = model.prepare(*source.sample(), num_draws=source.draws)
                control = course.train(trainer, source, constants, place, update)
                del source  # its memory is wanted
                if control is None:
                    return self._pass(work, self.segments), [PLAIN] * q, np.zeros(q), course.history
                # The model remembers the last fold alone; workers have a copy of it as it is.
                control = replace(control, predictor=Predictor(copy.copy(model)))
                own = [segment for segment in self.segments if segment.fold == fold]
                found |= self._pass(replace(work, control=control), own)
        return found, [course.label] * q, np.zeros(q), course.history

    def _rows(self, window: int) -> int:
        """Return the draws in a piece: many pieces make a buffer that is like all draws."""
        return max(self.plan.in_buffer, 4 * window if window > 1 else 1)

    def _pass(self, work: TrainedWork, segments: Sequence[Segment]) -> dict[int, Any]:
        folds = {segment.fold for segment in segments}
        return map_reduce(
            residuals_of, dict.fromkeys(folds, work), segments, merge_residuals, self.plan.workers
        )
