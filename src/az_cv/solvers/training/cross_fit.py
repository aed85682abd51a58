"""Training on all blocks of draws but one, and evaluation there, for each block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from az_cv.notices import notify
from az_cv.solvers.base import Fitted, Member
from az_cv.solvers.folds import run_length
from az_cv.solvers.time_limit import leave_out, remaining
from az_cv.solvers.training.course import Course
from az_cv.solvers.training.objectives import run_starts
from az_cv.solvers.training.plan import Draws
from az_cv.solvers.training.predictor import CHUNK
from az_cv.solvers.training.progress import progress
from az_cv.solvers.training.rows import HELD_OUT, split, training_blocks
from az_cv.solvers.training.source import Stored
from az_cv.solvers.training.trainer import Trainer

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.families.base import LinearFamily
    from az_cv.families.neural import TrainedFamily
    from az_cv.solvers.base import Task
    from az_cv.solvers.training.sgd import SGD

    Outputs = Float[np.ndarray, "n q"]

# A training that must be shorter is not begun: compiling alone takes that long.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Trainee:
    """A family on given draws, to be trained for any outputs.

    Folds that leave out single draws are replaced by whole chains. In sample, the mean of ``f - g``
    over the draws it was trained on is the estimate: the paper's ``m = n``.
    """

    solver: SGD
    family: LinearFamily | TrainedFamily
    task: Task

    def fit(self, outputs: Outputs, *, steps: bool = False) -> Fitted:
        """Train on outputs; indicators are not worth it."""
        if steps:
            return Fitted([])
        import jax

        task, solver = self.task, self.solver
        x, s, shape, folds = task.x, task.s, task.shape, task.folds
        n, q = outputs.shape
        blocks = training_blocks(folds, shape)
        largest = max((len(block) for block in blocks), default=0)
        plan = solver.plan(self.family, max(n - largest, 1), shape[1], q)
        model = solver.model(self.family, x.shape[1], q, plan)
        course = Course(solver, self.family, len(blocks) + folds.in_sample, task.random_seed)
        label, history = course.label, course.history
        if remaining() < LEAST_SECONDS * course.runs:
            leave_out(label)
            return Fitted([])
        plan = replace(plan, seconds=course.seconds_each(remaining()))
        adjusted = outputs.copy()
        gap = run_length(x.reshape(*shape, -1)) if shape[0] == 1 else 0
        with jax.enable_x64(model.float64), progress(task.progressbar, label) as update:
            dtype = np.float64 if model.float64 else np.float32
            draws = Draws(*(jax.device_put(np.asarray(a, dtype)) for a in (x, s, outputs)))
            trainer = Trainer(model, plan, min(CHUNK, n))
            trainings = [(block, block) for block in blocks]
            if folds.in_sample:  # one more, which leaves nothing out
                trainings.append((np.array([], dtype=int), np.arange(n)))
            for fold, (left_out, evaluated) in enumerate(trainings):
                held_out_share = HELD_OUT if solver.early_stopping else 0.0
                rows, held_out = split(n, left_out, gap, held_out_share)
                constants = model.prepare(x[rows], s[rows], outputs[rows])
                starts = rows
                if solver.objective == "batch_means":
                    starts = run_starts(rows, shape[1], plan.window)
                control = course.train(
                    trainer, Stored(draws, starts, held_out), constants, fold, update
                )
                if control is None:
                    return Fitted([], history)
                residual = outputs[evaluated] - control.at(draws, evaluated)
                adjusted[left_out] = residual[: len(left_out)]
        if not np.isfinite(adjusted).all():
            notify(f"{label} is not finite at some draws and is left out.")
            return Fitted([], history)
        chains = adjusted.reshape(*shape, -1)[:, folds.first_draw :]
        mean, tail = chains.mean(axis=(0, 1)), np.zeros(q)
        if folds.in_sample:
            in_sample = residual.mean(axis=0)
            mean, tail = in_sample, np.abs(mean - in_sample)
        return Fitted([Member(label, mean, chains, tail)], history)
