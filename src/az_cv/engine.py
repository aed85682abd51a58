"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.estimate import Estimate, combine, member_from_fit
from az_cv.families import Ensemble, Kernel, LinearFamily, Polynomial
from az_cv.folds import Folds, make_folds
from az_cv.solvers import Exact
from az_cv.standardise import fit_whitening

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.folds import FoldChoice

FAMILIES = ("auto", "polynomial", "kernel")
SOLVERS = ("auto", "exact")


@dataclass(frozen=True)
class EngineResult:
    """What the engine found.

    Attributes
    ----------
    estimate : Estimate
    folds : Folds
    members : list of LinearFamily
    solver : Exact
    """

    estimate: Estimate
    folds: Folds
    members: list[LinearFamily]
    solver: Exact


def run_engine(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    outputs: Float[np.ndarray, "chain draw q"],
    *,
    family: LinearFamily | Literal["auto", "polynomial", "kernel"] = "auto",
    solver: Exact | Literal["auto", "exact"] = "auto",
    folds: FoldChoice = "auto",
) -> EngineResult:
    """Estimate the expectation of every output.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    outputs : array of shape (chain, draw, q)
    family : family or name
        ``"auto"`` stacks polynomials of order 1 and 2 with a kernel.
    solver : Exact or name
    folds : see :func:`az_cv.folds.make_folds`

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
    exact = resolve_solver(solver)
    members = resolve_family(family, *x_white.shape)
    flat = outputs.reshape(chains * draws, -1)
    # Centred and scaled, so that tolerances mean the same for every output.
    centre, scale = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    standard = (flat - centre) / scale
    fitted = []
    for member in members:
        for setting, fit in exact.systems(member, x_white, s_white, partition.blocks).fit(standard):
            label = describe(setting.family)
            fitted.append(member_from_fit(label, fit, partition, (chains, draws)))
    evaluated = standard.reshape(chains, draws, -1)[:, partition.first_draw :]
    estimate = combine(evaluated, fitted)
    return EngineResult(_rescale(estimate, centre, scale), partition, members, exact)


def resolve_family(family: LinearFamily | str, n: int, d: int) -> list[LinearFamily]:
    """Return the families to stack."""
    if isinstance(family, str):
        match family:
            case "auto":
                return _automatic(n, d)
            case "polynomial":
                return [Polynomial(order=2)]
            case "kernel":
                return [Kernel()]
            case _:
                raise ValueError(
                    f"family {family!r} is unknown. Choose from {list(FAMILIES)} or pass an object "
                    "such as Polynomial(order=2), Kernel() or Ensemble([...])."
                )
    if not isinstance(family, LinearFamily):
        raise TypeError(
            f"family must be a name in {list(FAMILIES)} or a family with `variants`, `features` "
            f"and `gram`; it is {family!r}."
        )
    return [family]


def _automatic(n: int, d: int) -> list[LinearFamily]:
    """Return polynomials as far as the draws support them, and a kernel exact on the quadratics.

    Beyond the outermost draws a kernel knows nothing, and a polynomial goes on: heavy tails need
    the third and fourth order, everything else is left to the kernel.
    """
    orders = [Polynomial(order=order) for order in range(1, 5)]
    members: list[LinearFamily] = [p for p in orders if p.num_features(d) <= _supported(p.order, n)]
    quadratic = 8 * orders[1].num_features(d) <= n
    kernel = Ensemble([orders[1], Kernel()], semi_exact="auto") if quadratic else Kernel()
    return [*members, kernel]


def _supported(order: int, n: int) -> float:
    """Return how many features of this order n draws can carry before the fit follows noise."""
    return {1: np.inf, 2: n / 3}.get(order, n / 8)


def resolve_solver(solver: Exact | str) -> Exact:
    """Return the solver object."""
    if isinstance(solver, Exact):
        return solver
    if solver in SOLVERS:
        return Exact()
    raise ValueError(
        f"solver {solver!r} is unknown. Choose from {list(SOLVERS)} or pass Exact(...)."
    )


def describe(family: LinearFamily) -> str:
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
        tail=scale * estimate.tail,
        weights=estimate.weights,
    )
