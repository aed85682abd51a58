"""The array engine: draws, scores and integrands in, estimates out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.estimate import (
    Estimate,
    Member,
    all_exact,
    combine,
    member_from_fit,
)
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


class Engine:
    """Draws, scores and choices, ready to estimate the expectation of any outputs.

    What does not depend on the outputs (whitening, folds, factorisations) is done once and kept.

    Parameters
    ----------
    x, s : arrays of shape (chain, draw, d)
        Unconstrained draws and scores.
    family : family or name
        ``"auto"`` stacks polynomials with a kernel.
    solver : Exact or name
    folds : see :func:`az_cv.folds.make_folds`
    """

    def __init__(
        self,
        x: Float[np.ndarray, "chain draw d"],
        s: Float[np.ndarray, "chain draw d"],
        *,
        family: LinearFamily | Literal["auto", "polynomial", "kernel"] = "auto",
        solver: Exact | Literal["auto", "exact"] = "auto",
        folds: FoldChoice = "auto",
    ) -> None:
        chains, draws, d = x.shape
        self.shape = (chains, draws)
        self._choices = (family, solver)
        self.solver = resolve_solver(solver)
        whitening = fit_whitening(x.reshape(-1, d))
        x_white = whitening.draws(x.reshape(-1, d))
        s_white = whitening.scores(s.reshape(-1, d))
        self.folds = make_folds(folds, x_white.reshape(chains, draws, -1))
        self.members = resolve_family(family, *x_white.shape)
        self._systems = [
            (member, self.solver.systems(member, x_white, s_white, self.folds.blocks))
            for member in self.members
        ]

    def estimate(self, outputs: Float[np.ndarray, "chain draw q"]) -> Estimate:
        """Estimate the expectation of every output."""
        flat = outputs.reshape(-1, outputs.shape[2])
        # Centred and scaled, so that tolerances mean the same for every output.
        centre, scale = flat.mean(axis=0), flat.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        standard = (flat - centre) / scale
        fitted: list[Member] = []
        for member, systems in self._systems:
            for _, fit in systems.fit(standard):
                fitted.append(member_from_fit(describe(member), fit, self.folds, self.shape))
            if all_exact(fitted):
                break
        evaluated = standard.reshape(*self.shape, -1)[:, self.folds.first_draw :]
        return combine(evaluated, fitted).rescaled(centre, scale)


_latest: dict[tuple[object, ...], Engine] = {}


def engine_for(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    *,
    family: LinearFamily | Literal["auto", "polynomial", "kernel"],
    solver: Exact | Literal["auto", "exact"],
    folds: FoldChoice,
) -> Engine:
    """Return the latest engine if draws, scores and choices are the same, else a new one.

    The factorisations of one engine stay in memory, up to `az_cv.solvers.exact.MEMORY` bytes, so
    that a further question about the same posterior is answered at once. Answers do not depend on
    what was asked before.
    """
    digest = hashlib.blake2b(np.ascontiguousarray(x)).digest()
    digest += hashlib.blake2b(np.ascontiguousarray(s)).digest()
    # An engine holds its family and solver, so that their identity is not reused while it lives.
    choices = [choice if isinstance(choice, str) else id(choice) for choice in (family, solver)]
    key = (digest, x.shape, *choices, folds)
    if key not in _latest:
        _latest.clear()
        _latest[key] = Engine(x, s, family=family, solver=solver, folds=folds)
    return _latest[key]


def clear_cache() -> None:
    """Free the factorisations kept from the latest call.

    Examples
    --------
    >>> clear_cache()
    """
    _latest.clear()


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
    family, solver, folds : see :class:`Engine`

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 2))
    >>> result = run_engine(x, -x, x**2, family=Polynomial(2))
    >>> np.allclose(result.estimate.mean, 1, atol=1e-10)
    True
    """
    engine = Engine(x, s, family=family, solver=solver, folds=folds)
    return EngineResult(engine.estimate(outputs), engine.folds, engine.members, engine.solver)


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
