"""The trainings of one family, one for each set of draws that is left out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.families.description import describe
from az_cv.families.neural import NeuralNetwork, TrainedFamily
from az_cv.notices import notify
from az_cv.solvers.training.plan import Trained, TrainingRecord
from az_cv.solvers.training.predictor import Control
from az_cv.solvers.training.progress import Report, part

if TYPE_CHECKING:
    from az_cv.families.base import LinearFamily
    from az_cv.solvers.training.model import Constants
    from az_cv.solvers.training.sgd import SGD
    from az_cv.solvers.training.source import Source
    from az_cv.solvers.training.trainer import Trainer


@dataclass
class Course:
    """What trainings on different draws share: decays that were found, random keys, a history.

    Attributes
    ----------
    solver : SGD
    family : LinearFamily or TrainedFamily
    folds : int
        Trainings, each of as many copies as the family has.
    random_seed : int, optional
    history : list of TrainingRecord
    """

    solver: SGD
    family: LinearFamily | TrainedFamily
    folds: int
    random_seed: int | None = None
    history: list[TrainingRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.label = describe(self.family)
        self.copies = self.family.networks if isinstance(self.family, NeuralNetwork) else 1
        self._decays = self.solver.weight_decays(isinstance(self.family, TrainedFamily))
        self.runs = self.folds * self.copies + len(self._decays) - 1
        self._seed = int(np.random.SeedSequence(self.random_seed).generate_state(1)[0])

    def seconds_each(self, left: float) -> float:
        """Return the seconds of one training when so many are left for all."""
        return min(self.solver.time_budget or math.inf, left) / self.runs

    def train(
        self, trainer: Trainer, source: Source, constants: Constants, fold: int, report: Report
    ) -> Control | None:
        """Train for one fold; say so and return nothing where it diverges.

        Parameters
        ----------
        trainer : Trainer
        source : Source
            Has draws outside of the fold alone.
        constants : dict
            From the model's ``prepare`` on such draws.
        fold : int
            Counted from zero.
        report : callable
            Called with the share of all trainings that is done, the loss and the held-out variance.
        """
        import jax

        solver, found = self.solver, []
        for copy in range(self.copies):
            run = fold * self.copies + copy
            tried = [
                trainer.train(
                    {**constants, "weight_decay": decay},
                    source,
                    jax.random.fold_in(jax.random.key(self._seed), run),
                    label=self.label,
                    fold=fold,
                    max_restarts=solver.max_restarts,
                    report=part(report, run, self.folds * self.copies),
                )
                for decay in self._decays
            ]
            best = _best(tried)
            trained, self._decays = tried[best], self._decays[best : best + 1]
            self.history += trained.records
            if trained.params is None:
                notify(
                    f"Training of {self.label} diverged {solver.max_restarts + 1} times, down "
                    f"to a learning rate of {_last_rate(constants, solver):.1g}. "
                    "It is left out of the estimates."
                )
                return None
            found.append(trained)
        own = {**constants, "weight_decay": self._decays[0]}  # as compiled, though not needed
        return Control(trainer.predictor, own, found, trainer.chunk)


def _best(tried: list[Trained]) -> int:
    best = 0
    for k in range(1, len(tried)):
        best = k if tried[k].improves_on(tried[best]) else best
    return best


def _last_rate(constants: dict[str, Any], solver: SGD) -> float:
    return float(constants["learning_rate"]) * 0.25**solver.max_restarts
