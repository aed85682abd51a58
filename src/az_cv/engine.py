"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.estimate import Estimate, Member, combine, member_from_fit
from az_cv.families import (
    Ensemble,
    Kernel,
    LinearFamily,
    NeuralNetwork,
    Polynomial,
    TrainedFamily,
)
from az_cv.folds import Folds, make_folds
from az_cv.solvers import SGD, Exact
from az_cv.standardise import fit_whitening

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.folds import FoldChoice
    from az_cv.solvers.training import TrainingRecord

    Family = LinearFamily | TrainedFamily
    FamilyName = Literal["auto", "polynomial", "kernel", "network"]
    SolverName = Literal["auto", "exact", "sgd"]

FAMILIES = ("auto", "polynomial", "kernel", "network")
SOLVERS = ("auto", "exact", "sgd")
# From this dimension on networks are worth their time: kernels see all draws at one distance.
NETWORK_DIMENSION = 40
# Seconds that "auto" gives to the training of each network.
AUTO_SECONDS = 60.0
# Kernel systems are solved in parts up to this many times the largest part.
MAX_PARTS = 4
MAX_FEATURE_BYTES = 2**29


@dataclass(frozen=True)
class EngineResult:
    """What the engine found.

    Attributes
    ----------
    estimate : Estimate
    folds : Folds
    members : list of families
    solver : Exact or SGD
    history : list of TrainingRecord
        Empty unless something was trained.
    """

    estimate: Estimate
    folds: Folds
    members: list[Family]
    solver: Exact | SGD
    history: list[TrainingRecord]


def run_engine(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    outputs: Float[np.ndarray, "chain draw q"],
    *,
    family: Family | FamilyName = "auto",
    solver: Exact | SGD | SolverName = "auto",
    folds: FoldChoice = "auto",
    random_seed: int | None = None,
    progressbar: bool = False,
) -> EngineResult:
    """Estimate the expectation of every output.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    outputs : array of shape (chain, draw, q)
    family : family or name
        ``"auto"`` stacks polynomials of order 1 and 2 with a kernel, and with a network in many
        dimensions or beyond the reach of kernels.
    solver : Exact, SGD or name
        ``"auto"`` trains networks and solves for the others.
    folds : see :func:`az_cv.folds.make_folds`
    random_seed : int, optional
        Of training.
    progressbar : bool
        Show the progress of training.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 2))
    >>> result = run_engine(x, -x, x**2, family=Polynomial(2))
    >>> np.allclose(result.estimate.mean, 1, atol=1e-10)
    True
    """
    chains, draws, d = x.shape
    whitening = fit_whitening(x.reshape(-1, d))
    x_white = whitening.draws(x.reshape(-1, d))
    s_white = whitening.scores(s.reshape(-1, d))
    partition = make_folds(folds, x_white.reshape(chains, draws, -1))
    chosen = resolve_solver(solver)
    members = resolve_family(family, *x_white.shape)
    flat = outputs.reshape(chains * draws, -1)
    # Centred and scaled, so that tolerances mean the same for every output.
    centre, scale = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standard = (flat - centre) / scale
    fitted: list[Member] = []
    history: list[TrainingRecord] = []
    for member in members:
        if not isinstance(chosen, SGD) and isinstance(member, LinearFamily):
            for setting, fit in chosen.fit(member, x_white, s_white, standard, partition.blocks):
                label = describe(setting.family)
                fitted.append(member_from_fit(label, fit, partition, (chains, draws)))
            continue
        trained, records = _sgd_for(member, chosen, family, solver).fit_members(
            member,
            x_white,
            s_white,
            standard,
            partition,
            shape=(chains, draws),
            label=describe(member),
            random_seed=random_seed,
            progressbar=progressbar,
        )
        fitted, history = fitted + trained, history + records
    evaluated = standard.reshape(chains, draws, -1)[:, partition.first_draw :]
    estimate = combine(evaluated, fitted)
    return EngineResult(_rescale(estimate, centre, scale), partition, members, chosen, history)


def resolve_family(family: Family | str, n: int, d: int) -> list[Family]:
    """Return the families to stack."""
    if isinstance(family, str):
        match family:
            case "auto":
                return _automatic_families(n, d)
            case "polynomial":
                return [Polynomial(order=2)]
            case "kernel":
                return [Kernel()]
            case "network":
                return [NeuralNetwork()]
            case _:
                raise ValueError(
                    f"family {family!r} is unknown. Choose from {list(FAMILIES)} or pass an object "
                    "such as Polynomial(order=2), Kernel(), Ensemble([...]) or NeuralNetwork()."
                )
    if not isinstance(family, LinearFamily | TrainedFamily):
        raise TypeError(
            f"family must be a name in {list(FAMILIES)}, a family with `variants`, `features` "
            f"and `gram`, or one with `init` and `apply`; it is {family!r}."
        )
    return [family]


def _automatic_families(n: int, d: int) -> list[Family]:
    members: list[Family] = []
    for order in (1, 2):
        count = Polynomial(order).num_features(d)
        # Beyond a third of the draws a quadratic fit mostly follows noise.
        if (order == 1 or 3 * count <= n) and 8 * n * count <= MAX_FEATURE_BYTES:
            members.append(Polynomial(order))
    within_reach = n <= MAX_PARTS * Exact().max_draws
    if within_reach:
        members.append(Kernel())
    if d >= NETWORK_DIMENSION or not within_reach:
        # The second has to learn squares by itself, which teaches its hidden layer other things.
        members += [NeuralNetwork(), NeuralNetwork(squares=False)]
    return members


def resolve_solver(solver: Exact | SGD | str) -> Exact | SGD:
    """Return the solver object."""
    if isinstance(solver, Exact | SGD):
        return solver
    if solver in SOLVERS:
        return SGD() if solver == "sgd" else Exact()
    raise ValueError(
        f"solver {solver!r} is unknown. Choose from {list(SOLVERS)} or pass Exact(...) or SGD(...)."
    )


def _sgd_for(
    member: Family, chosen: Exact | SGD, family: Family | str, solver: Exact | SGD | str
) -> SGD:
    """Return what trains a member that is not solved for."""
    if isinstance(chosen, SGD):
        return chosen
    if solver != "auto" and family != "auto":
        raise TypeError(
            f"Exact needs a family with `features`; {type(member).__name__} has none. "
            "Use solver=SGD(...)."
        )
    return SGD(time_budget=AUTO_SECONDS) if family == "auto" else SGD()


def describe(family: Family) -> str:
    """Return a short name for tables.

    Examples
    --------
    >>> describe(Polynomial(order=2)), describe(Kernel())
    ('polynomial order 2', 'imq kernel')
    """
    match family:
        case Polynomial():
            return f"polynomial order {family.order}"
        case Kernel():
            return f"{family.base} kernel"
        case NeuralNetwork():
            widths = "-".join(str(width) for width in family.widths)
            return f"{family.activation} network {widths}" + ("" if family.squares else " unpaired")
        case Ensemble():
            return " + ".join(describe(member) for member in family.members)
        case _:
            return type(family).__name__


def _rescale(estimate: Estimate, centre: np.ndarray, scale: np.ndarray) -> Estimate:
    """Return the estimate in the units of the integrands."""
    return Estimate(
        mean=centre + scale * estimate.mean,
        mcse=scale * estimate.mcse,
        plain_mean=centre + scale * estimate.plain_mean,
        plain_mcse=scale * estimate.plain_mcse,
        adjusted=centre + scale * estimate.adjusted,
        doubt=scale * estimate.doubt,
        tail=scale * estimate.tail,
        weights=estimate.weights,
    )
