"""What the names of families and solvers stand for, and what the default stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.engine.streaming.in_memory import InPieces
from az_cv.engine.streaming.plan import KERNEL_DIMENSION
from az_cv.families import (
    Ensemble,
    HierarchicalKernel,
    Kernel,
    LiftedFamily,
    LinearFamily,
    NeuralNetwork,
    Polynomial,
    TrainedFamily,
)
from az_cv.solvers import SGD, Exact, Solver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.engine.settings import Settings

    Family = LinearFamily | TrainedFamily
    FamilyName = Literal["auto", "polynomial", "kernel", "network"]
    SolverName = Literal["auto", "exact", "sgd"]

FAMILIES = ("auto", "polynomial", "kernel", "network")
SOLVERS = ("auto", "exact", "sgd")
# From this dimension on networks are worth their time: kernels see all draws at one distance.
NETWORK_DIMENSION = 40
# They are not where half of the outputs already have errors below this, in units of the plain one.
NETWORK_REACH = 0.1
# The same beside a kernel with sections at some of many draws. Where it gained 2.4 to 140 in half a
# minute and less, two networks took 90 seconds more, and raised gains 1.0 to 2.3, once 3.6 times.
MANY_DRAWS_REACH = 0.5
# With fewer draws than this in each dimension they learn noise.
NETWORK_DRAWS = 8
# In one dimension a second kernel may see so many draws: a second of work.
SECOND_KERNEL_DRAWS = 2000
# From this dimension on coordinates that govern others are looked for.
HIERARCHY_DIMENSION = 5
# The same for a sum over coordinates.
ANOVA_DIMENSION = 5
# Coordinates of draws times draws that make a kernel matrix a matter of a second or two.
MANY_TERMS = 25e6
# Kernel systems are solved in at most so many parts; from half as many on networks join.
MAX_PARTS = 8
MAX_FEATURE_BYTES = 2**29
MAX_DRAWS = Exact().max_draws
# Beyond so many draws kernels have sections at some of them.
MANY_DRAWS = MAX_PARTS * MAX_DRAWS
# Seconds that "auto" gives to the training of each network.
AUTO_SECONDS = 60.0


def resolve_family(
    family: Family | str,
    x: Float[np.ndarray, "n d"],
    s: Float[np.ndarray, "n d"],
    max_draws: int = MAX_DRAWS,
    *,
    top: tuple[int, ...] = (),
    pieces: bool = False,
) -> list[Family]:
    """Return the families to stack on these draws and scores.

    Parameters
    ----------
    family : family or name
    x, s : arrays of shape (n, d)
        Whitened.
    max_draws : int
        Largest number of draws in one kernel system.
    top : tuple of int
        Coordinates that govern others, as far as they were looked for.
    pieces : bool
        Whether kernels are solved from sums over pieces.
    """
    if isinstance(family, str):
        match family:
            case "auto":
                concave = x.shape[1] == 1 and is_log_concave(x[:, 0], s[:, 0])
                return default_stack(
                    len(x), x.shape[1], max_draws, log_concave=concave, top=top, pieces=pieces
                )
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
    if not isinstance(family, LinearFamily | LiftedFamily | TrainedFamily):
        raise TypeError(
            f"family must be a name in {list(FAMILIES)}, a family with `variants`, `features` "
            f"and `gram`, or one with `init` and `apply`; it is {family!r}."
        )
    return [family]


def in_pieces(settings: Settings, n: int, d: int) -> bool:
    """Tell whether the default solves for a kernel at some of the draws, from sums over pieces.

    It does with more draws than kernels of all of them have time for, unless something else is
    asked for. With 40,000 draws, below that, sections at some gained far less for squares.
    """
    names = settings.family, settings.solver
    folds = settings.folds
    is_blocks = isinstance(folds, str) or (isinstance(folds, int | np.integer) and folds >= 2)
    is_default = all(isinstance(name, str) and name == "auto" for name in names)
    return is_default and is_blocks and n > MANY_DRAWS and d <= KERNEL_DIMENSION


def network_reach(*, pieces: bool) -> float:
    """Return the errors of other members below which networks are not trained."""
    return MANY_DRAWS_REACH if pieces else NETWORK_REACH


def default_stack(
    n: int,
    d: int,
    max_draws: int = MAX_DRAWS,
    *,
    log_concave: bool = False,
    top: tuple[int, ...] = (),
    pieces: bool = False,
) -> list[Family]:
    """Return polynomials as far as the draws support them, and kernels.

    Beyond the outermost draws a kernel knows nothing, and a polynomial goes on: heavy tails need
    the third and fourth order, everything else is left to the kernels. One is exact on some of the
    polynomials; in some dimensions one is a sum over coordinates; where coordinates govern others
    one follows that, and in many dimensions it stands for the other kernels and
    the networks, which gain less without it and take longer. Where nothing governs networks join
    in many dimensions, as they do with too many draws for a kernel. In one dimension the paper's
    kernel, which is finest at the centre, serves densities with one peak; between several it
    promises more than it holds. With more draws than that one kernel has sections at some.

    Parameters
    ----------
    n, d : int
        Number of draws, and of parameters.
    max_draws : int
        Largest number of draws in one kernel system.
    log_concave : bool
        Whether the density of one variable is.
    top : tuple of int
        Coordinates that govern others.
    pieces : bool
        Whether kernels are solved from sums over pieces.
    """
    orders = [Polynomial(order=order) for order in range(1, 5)]
    members: list[Family] = [
        p
        for p in orders
        if p.num_features(d) <= _supported(p.order, n)
        and 8 * n * p.num_features(d) <= MAX_FEATURE_BYTES
    ]
    reach = MAX_PARTS * max_draws
    is_structured = bool(top) and d >= NETWORK_DIMENSION and n <= reach
    if pieces:
        members.append(Kernel())
    if n <= reach and not is_structured:
        exact = [p for p in orders[:2] if 8 * p.num_features(d) <= min(n, reach // 2)][-1:]
        members.append(Ensemble([*exact, Kernel()], semi_exact="auto") if exact else Kernel())
    if ANOVA_DIMENSION <= d < NETWORK_DIMENSION and n <= reach:
        members.append(Kernel("anova"))
    if n <= reach and top:
        members.append(HierarchicalKernel(top=top))
    has_draws = d >= NETWORK_DIMENSION and n >= NETWORK_DRAWS * d
    if (has_draws and not is_structured) or n > reach // 2:
        members.append(NeuralNetwork())
    if n > reach // 2:
        # A second one learns squares by itself, which teaches its hidden layer other things. With
        # few draws it is not worth its time: half of the whole for some percent of the gain.
        members.append(NeuralNetwork(squares=False))
    if d == 1 and log_concave and n <= SECOND_KERNEL_DRAWS:
        members.append(Kernel("paper"))
    return members


def on_trial(members: Sequence[Family], n: int, d: int) -> list[bool]:
    """Tell which members of the default cost so much that they must promise something first.

    They are the sum over coordinates, and the kernel of distances where another follows a
    hierarchy.
    """
    if n * n * d <= MANY_TERMS:
        return [False] * len(members)
    is_led = any(isinstance(member, HierarchicalKernel) for member in members)
    return [is_sum(m) or (is_led and isinstance(m, Ensemble | Kernel)) for m in members]


def is_sum(member: Family) -> bool:
    """Tell whether a member is a kernel that sums over coordinates."""
    return isinstance(member, Kernel) and member.base == "anova"


def is_log_concave(x: Float[np.ndarray, " n"], s: Float[np.ndarray, " n"]) -> bool:
    """Tell whether the density of one variable is log-concave, as far as its draws tell.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([-2.0, 0.0, 2.0])
    >>> is_log_concave(x, -x), is_log_concave(x, np.array([-1.0, 0.5, -1.0]))
    (True, False)
    """
    slopes = s[np.argsort(x)]
    return bool((np.diff(slopes) <= 1e-9 * np.abs(slopes).max()).all())


def _supported(order: int, n: int) -> float:
    """Return how many features of this order n draws can carry before the fit follows noise."""
    return {1: np.inf, 2: n / 3}.get(order, n / 8)


def resolve_solver(solver: Solver | str) -> Solver:
    """Return the solver object."""
    if isinstance(solver, str) and solver in SOLVERS:
        return SGD() if solver == "sgd" else Exact()
    if isinstance(solver, Solver):
        return solver
    raise ValueError(
        f"solver {solver!r} is unknown. Choose from {list(SOLVERS)} or pass Exact(...), SGD(...) "
        "or an object with `accepts` and `prepare`."
    )


def solver_for(
    member: Family, settings: Settings, *, is_auto: bool, pieces: bool = False
) -> Solver:
    """Return what fits a member: the user's choice if that accepts it.

    Parameters
    ----------
    member : family
    settings : Settings
    is_auto : bool
        Whether the members are those of the default, whose networks have limited time.
    pieces : bool
        Whether kernels are solved from sums over pieces.
    """
    if pieces and isinstance(member, Kernel):
        return InPieces(settings)
    chosen = resolve_solver(settings.solver)
    if chosen.accepts(member) or not (is_auto or settings.solver == "auto"):
        return chosen
    return SGD(time_budget=AUTO_SECONDS) if is_auto else SGD()
