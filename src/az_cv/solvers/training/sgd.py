"""Minibatch training of every family."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.families.neural import NeuralNetwork, TrainedFamily
from az_cv.notices import notify
from az_cv.solvers.folds import run_length
from az_cv.solvers.member import Member
from az_cv.solvers.training.linear_model import LinearModel
from az_cv.solvers.training.network_model import NetworkModel
from az_cv.solvers.training.objectives import OBJECTIVES, default_window, run_starts
from az_cv.solvers.training.plan import Draws, Plan, TrainingRecord
from az_cv.solvers.training.progress import part, progress
from az_cv.solvers.training.rows import split, training_blocks
from az_cv.solvers.training.schedules import SCHEDULES
from az_cv.solvers.training.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    from az_cv.families.base import LinearFamily
    from az_cv.solvers.folds import Folds

    Matrix = Float[np.ndarray, "n d"]
    Outputs = Float[np.ndarray, "n q"]
    Rows = Int[np.ndarray, " m"]

REGULARIZERS = ("auto", "coefficients", "control_variate", "none")
# Ridges tried together, relative to the average variance of the family as those of Exact.
STRENGTHS = (1e-8, 1e-4, 1e-2, 1.0)
# Decays of network weights. Regressions with many coefficients want much, hierarchies little: the
# first training tries both, the others take the better one.
WEIGHT_DECAYS = (3.0, 1.0)
OUTPUT_PENALTY = 1e-2
NETWORK_RATE = 0.02
HELD_OUT = 0.1


@dataclass(frozen=True)
class SGD:
    """Train by stochastic gradients on minibatches.

    Every argument has a default that needs no tuning: linear families take preconditioned gradient
    steps at a rate from the spectrum of their features, networks take Adam with a cosine schedule.
    Draws are evaluated by a fit that has not seen their chain (contiguous eighths of one chain).

    Parameters
    ----------
    objective : {"least_squares", "variance", "batch_means"}
        Mean squared residual with a trained intercept; average over pairs of the minibatch; or the
        asymptotic variance of the mean of the residual chain, from averages over runs of draws.
    optimizer : optax.GradientTransformation, optional
        Used as it is, in place of the built-in rule, the learning rate and its schedule.
    learning_rate : float or "auto"
        Its peak. ``"auto"``: from the spectrum of the features; 0.02 for networks.
    schedule : {"auto", "constant", "cosine", "inverse"}
        ``inverse`` is the paper's ``beta / (gamma + t)``. ``"auto"``: constant with averaging for
        linear families, cosine for networks.
    batch_size : int or "auto"
        512 for linear families, 256 for networks, more when there are very many draws.
    num_epochs : float or "auto"
        Passes over the training draws. 50 for linear families, 30 for networks, fewer when there
        are many draws.
    regularizer : {"auto", "coefficients", "control_variate", "none"}
        Ridge on the coefficients, the default of linear families; the mean of ``g^2``, as the
        paper uses for networks; networks shrink their weights by default.
    strength : float, sequence of float or "auto"
        Of the regulariser. Ridges are relative to the average variance of the family, as in
        ``Exact``; of several, each output takes the best on held-out draws. Of several decays of a
        network's weights the first training finds the best on held-out draws.
    precondition : bool
        Rotate and rescale the features of linear families by their covariance on a subsample.
    averaging : float or "auto"
        Share of the steps, at the end, whose parameters are averaged. ``"auto"``: half for linear
        families, a tenth for networks.
    early_stopping : bool
        Keep a tenth of the training draws aside, and the parameters that do best on them.
    num_centres : int
        Draws that carry kernel sections, for kernels without centres of their own.
    train_kernel : bool
        Train length scale and ``alpha_1`` of kernels together with the coefficients.
    window : int, optional
        Length of the runs of ``batch_means``; the square root of the draws per chain by default.
    time_budget : float, optional
        Seconds for all folds together. Training is shortened to fit, and a run that was shortened
        depends on the speed of the machine.
    max_restarts : int
        How often a diverging run starts again, each time at a quarter of the learning rate.

    Examples
    --------
    >>> SGD(objective="variance", batch_size=8, num_epochs=25).objective
    'variance'
    """

    objective: Literal["least_squares", "variance", "batch_means"] = "least_squares"
    optimizer: Any = None
    learning_rate: float | Literal["auto"] = "auto"
    schedule: Literal["auto", "constant", "cosine", "inverse"] = "auto"
    batch_size: int | Literal["auto"] = "auto"
    num_epochs: float | Literal["auto"] = "auto"
    regularizer: Literal["auto", "coefficients", "control_variate", "none"] = "auto"
    strength: float | Sequence[float] | Literal["auto"] = "auto"
    precondition: bool = True
    averaging: float | Literal["auto"] = "auto"
    early_stopping: bool = True
    num_centres: int = 1000
    train_kernel: bool = False
    window: int | None = None
    time_budget: float | None = None
    max_restarts: int = 4

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("objective", self.objective, OBJECTIVES),
            ("schedule", self.schedule, ("auto", *SCHEDULES)),
            ("regularizer", self.regularizer, REGULARIZERS),
        ):
            if value not in choices:
                raise ValueError(f"{name} {value!r} is unknown. Choose from {list(choices)}.")
        for name in ("learning_rate", "batch_size", "num_epochs", "time_budget", "window"):
            value = getattr(self, name)
            if value not in ("auto", None) and not value > 0:
                raise ValueError(f"{name} must be positive; it is {value!r}.")
        if self.batch_size == 1 and self.objective == "variance":
            raise ValueError("objective 'variance' compares pairs: batch_size must be at least 2.")

    @classmethod
    def paper(cls, objective: Literal["least_squares", "variance"] = "least_squares") -> SGD:
        """Return the settings of Si, Oates, Duncan, Carin and Briol: b = 8, 25 epochs.

        Plain gradient steps with learning rate ``beta / (gamma + t)``, the last parameters.
        """
        return cls(
            objective=objective,
            schedule="inverse",
            batch_size=8,
            num_epochs=25,
            precondition=False,
            averaging=0.0,
            early_stopping=False,
            strength=1e-4,
        )

    def fit_members(
        self,
        family: LinearFamily | TrainedFamily,
        x: Matrix,
        s: Matrix,
        outputs: Outputs,
        folds: Folds,
        *,
        shape: tuple[int, int],
        label: str,
        random_seed: int | None = None,
        progressbar: bool = False,
    ) -> tuple[list[Member], list[TrainingRecord]]:
        """Train on all blocks but one and evaluate there, for each block.

        Parameters
        ----------
        family : family
        x, s : arrays of shape (n, d)
            Standardised draws and scores.
        outputs : array of shape (n, q)
            Standardised.
        folds : Folds
            Those that leave out single draws are replaced by whole chains. In sample, the mean
            of ``f - g`` over the draws it was trained on is the estimate: the paper's ``m = n``.
        shape : (chains, draws)
        label : str
        random_seed : int, optional
        progressbar : bool

        Returns
        -------
        members : list of Member
            One, or none when training failed.
        history : list of TrainingRecord
        """
        import jax

        n, q = outputs.shape
        blocks = training_blocks(folds, shape)
        largest = max((len(block) for block in blocks), default=0)
        plan = self._plan(family, max(n - largest, 1), shape[1], q)
        model = self._model(family, x.shape[1], q, plan)
        seeds = np.random.SeedSequence(random_seed).generate_state(1)
        copies = family.networks if isinstance(family, NeuralNetwork) else 1
        decays = self._weight_decays(isinstance(family, TrainedFamily))
        runs = (len(blocks) + folds.in_sample) * copies + len(decays) - 1
        seconds = (self.time_budget or math.inf) / runs
        adjusted = outputs.copy()
        history: list[TrainingRecord] = []
        gap = run_length(x.reshape(*shape, -1)) if shape[0] == 1 else 0
        with jax.enable_x64(model.float64), progress(progressbar, label) as update:
            dtype = np.float64 if model.float64 else np.float32
            draws = Draws(*(jax.device_put(np.asarray(a, dtype)) for a in (x, s, outputs)))
            trainer = Trainer(model, replace(plan, seconds=seconds), draws)
            trainings = [(block, block) for block in blocks]
            if folds.in_sample:  # one more, which leaves nothing out
                trainings.append((np.array([], dtype=int), np.arange(n)))
            for fold, (left_out, evaluated) in enumerate(trainings):
                rows, held_out = split(n, left_out, gap, HELD_OUT if self.early_stopping else 0.0)
                constants = model.prepare(x[rows], s[rows], outputs[rows])
                constants["weight_decay"] = decays[0]
                starts = rows
                if self.objective == "batch_means":
                    starts = run_starts(rows, shape[1], plan.window)
                total = np.zeros((len(evaluated), q))
                for copy in range(copies):
                    run = fold * copies + copy
                    tried = [
                        trainer.train(
                            {**constants, "weight_decay": decay},
                            starts,
                            held_out,
                            jax.random.fold_in(jax.random.key(int(seeds[0])), run),
                            label=label,
                            fold=fold,
                            max_restarts=self.max_restarts,
                            report=part(update, run, len(trainings) * copies),
                        )
                        for decay in decays
                    ]
                    best = 0
                    for k in range(1, len(tried)):
                        best = k if tried[k].improves_on(tried[best]) else best
                    trained, decays = tried[best], decays[best : best + 1]
                    history += trained.records
                    if trained.params is None:
                        notify(
                            f"Training of {label} diverged {self.max_restarts + 1} times, down to "
                            f"a learning rate of {_last_rate(constants, self.max_restarts):.1g}. "
                            "It is left out of the estimates."
                        )
                        return [], history
                    values = trainer.predict(trained.params, constants, evaluated)
                    total += trained.best_columns(values) / copies
                residual = outputs[evaluated] - total
                adjusted[left_out] = residual[: len(left_out)]
        if not np.isfinite(adjusted).all():
            notify(f"{label} is not finite at some draws and is left out.")
            return [], history
        chains = adjusted.reshape(*shape, -1)[:, folds.first_draw :]
        mean = chains.mean(axis=(0, 1))
        if folds.in_sample:
            in_sample = residual.mean(axis=0)
            return [Member(label, in_sample, chains, np.abs(mean - in_sample))], history
        return [Member(label, mean, chains, np.zeros(q))], history

    def _plan(
        self, family: LinearFamily | TrainedFamily, num_rows: int, draws: int, q: int
    ) -> Plan:
        """Settle every choice left open."""
        network = isinstance(family, TrainedFamily)
        window = self.window or default_window(draws)
        # Few steps per epoch waste draws, many waste time on overheads.
        usual = int(np.clip(num_rows // 12, 64, 256 if network else 512))
        automatic = max(usual, min(4096, num_rows // 1000))
        batch = automatic if self.batch_size == "auto" else self.batch_size
        if self.objective == "batch_means":
            batch = max(8, round(batch / window)) * window
        # No more steps than 30 passes over 50,000 draws take, and at least two passes.
        most = (30 if network else 50) * max(num_rows, 3000) / num_rows
        automatic_epochs = max(2.0, min(most, 6000 * batch / num_rows))
        epochs = automatic_epochs if self.num_epochs == "auto" else self.num_epochs
        return Plan(
            objective=self.objective,
            schedule=("cosine" if network else "constant")
            if self.schedule == "auto"
            else self.schedule,
            optimizer=self.optimizer,
            batch_size=int(batch),
            window=window,
            num_epochs=float(epochs),
            output_penalty=(
                self.strength if isinstance(self.strength, int | float) else OUTPUT_PENALTY
            )
            if self.regularizer == "control_variate"
            else 0.0,
            averaging=(0.1 if network else 0.5) if self.averaging == "auto" else self.averaging,
            early_stopping=self.early_stopping,
        )

    def _weight_decays(self, network: bool) -> tuple[float, ...]:
        """Return the decays of network weights to try."""
        if not network or self.regularizer in ("none", "control_variate"):
            return (0.0,)
        if self.strength == "auto":
            return WEIGHT_DECAYS if self.early_stopping else WEIGHT_DECAYS[:1]
        return tuple(float(strength) for strength in np.atleast_1d(self.strength))

    def _model(
        self, family: LinearFamily | TrainedFamily, d: int, q: int, plan: Plan
    ) -> LinearModel | NetworkModel:
        rate = None if self.learning_rate == "auto" else float(self.learning_rate)
        if isinstance(family, TrainedFamily):
            return NetworkModel(family, d, q, NETWORK_RATE if rate is None else rate)
        strengths = (
            STRENGTHS
            if self.strength == "auto" and self.early_stopping
            else (1e-6,)
            if self.strength == "auto"
            else np.atleast_1d(self.strength)
        )
        if self.regularizer in ("none", "control_variate"):
            strengths = (0.0,)
        return LinearModel(
            family,
            d,
            q,
            tuple(float(strength) for strength in strengths),
            plan.batch_size,
            self.num_centres,
            self.precondition,
            self.train_kernel,
            _pool(plan),
            learning_rate=rate,
        )


def _pool(plan: Plan) -> Callable[[np.ndarray], np.ndarray]:
    """Return what the objective does to features before it squares them."""
    if plan.objective != "batch_means":
        return lambda features: features
    window = plan.window

    def average_runs(features: np.ndarray) -> np.ndarray:
        whole = len(features) // window * window
        runs = features[:whole].reshape(-1, window, features.shape[1])
        return math.sqrt(window) * runs.mean(axis=1)

    return average_runs


def _last_rate(constants: dict[str, Any], restarts: int) -> float:
    return float(constants["learning_rate"]) * 0.25**restarts
