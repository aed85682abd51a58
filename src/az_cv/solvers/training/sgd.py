"""Minibatch training of every family."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.families.base import LiftedFamily, LinearFamily
from az_cv.families.neural import TrainedFamily
from az_cv.solvers.training.cross_fit import Trainee
from az_cv.solvers.training.linear_model import LinearModel
from az_cv.solvers.training.network_model import NetworkModel
from az_cv.solvers.training.objectives import OBJECTIVES, default_window
from az_cv.solvers.training.plan import Plan
from az_cv.solvers.training.schedules import SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from az_cv.solvers.base import Task

REGULARIZERS = ("auto", "coefficients", "control_variate", "none")
# Ridges tried together, relative to the average variance of the family as those of Exact.
STRENGTHS = (1e-8, 1e-4, 1e-2, 1.0)
# Decays of network weights. Regressions with many coefficients want much, hierarchies little: the
# first training tries both, the others take the better one.
WEIGHT_DECAYS = (3.0, 1.0)
OUTPUT_PENALTY = 1e-2
NETWORK_RATE = 0.02


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
        Peak of the learning rate. ``"auto"``: from the spectrum of the features; 0.02 for networks.
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
        Strength of the regulariser. Ridges are relative to the average variance of the family, as
        in ``Exact``. If there are several, each output takes the one that does best on held-out
        draws. If there are several decays of a network's weights, the first training finds the
        one that does best on held-out draws.
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

    See Also
    --------
    az_cv.Exact : Solves by factorisation.
    az_cv.plots.plot_training : Draws how training went.

    Examples
    --------
    >>> from az_cv import SGD
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

    def accepts(self, family: Any) -> bool:
        """Tell whether a family can be trained: all but those with coefficients without penalty.

        Those that see more of a draw than its coordinates need an exact solver, too.
        """
        if isinstance(family, LiftedFamily):
            return False
        if isinstance(family, TrainedFamily):
            return True
        return isinstance(family, LinearFamily) and getattr(family, "semi_exact", False) is not True

    def prepare(self, family: LinearFamily | TrainedFamily, task: Task) -> Trainee:
        """Return the family on these draws, to be trained for any outputs."""
        self.require(family)
        return Trainee(self, family, task)

    def require(self, family: Any) -> None:
        """Refuse a family that cannot be trained."""
        if self.accepts(family):
            return
        if isinstance(family, LiftedFamily):
            raise TypeError(f"{type(family).__name__} needs solver=Exact().")
        raise TypeError(
            "SGD penalises every member and cannot be exact on the polynomials of "
            f"{type(family).__name__}. Use solver=Exact() for semi_exact=True."
        )

    def plan(self, family: LinearFamily | TrainedFamily, num_rows: int, draws: int, q: int) -> Plan:
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

    def weight_decays(self, network: bool) -> tuple[float, ...]:
        """Return the decays of network weights to try."""
        if not network or self.regularizer in ("none", "control_variate"):
            return (0.0,)
        if self.strength == "auto":
            return WEIGHT_DECAYS if self.early_stopping else WEIGHT_DECAYS[:1]
        return tuple(float(strength) for strength in np.atleast_1d(self.strength))

    def model(
        self, family: LinearFamily | TrainedFamily, d: int, q: int, plan: Plan
    ) -> LinearModel | NetworkModel:
        """Return the family as a model for q outputs."""
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
