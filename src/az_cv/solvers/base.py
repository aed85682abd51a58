"""What a solver is: how a family, draws and outputs become members of an estimate."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.kept import Kept
from az_cv.solvers.linear.extremes import Extremes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Float, Int

    from az_cv.families.base import View
    from az_cv.solvers.error_model import ErrorModel
    from az_cv.solvers.folds import Folds


@dataclass(frozen=True)
class Task:
    """What is known before any output is: draws, and how fits to them are judged.

    Attributes
    ----------
    x, s : arrays of shape (n, d)
        Whitened draws and scores, chain by chain.
    shape : (chains, draws)
    folds : Folds
        The draws that are left out together.
    guide : array of shape (n, g), optional
        Standardised functions that are typical of what will be asked. The coordinates and their
        squares by default.
    errors : ErrorModel
    kept : Kept
        Where factorisations wait for further outputs.
    random_seed : int, optional
    progressbar : bool
    views : sequence of View
        What a family sees that is given something else than draws and scores.
    extremes : Extremes
        Where the outputs that are fitted now are most extreme, for all families.

    See Also
    --------
    az_cv.solvers.Solver : Turns it into members.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.solvers import Task
    >>> from az_cv.solvers.folds import make_folds
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> flat = x.reshape(400, 2)
    >>> task = Task(flat, -flat, (4, 100), make_folds("chain", x))
    >>> task.folds.label
    '4 chains'
    """

    x: Float[np.ndarray, "n d"]
    s: Float[np.ndarray, "n d"]
    shape: tuple[int, int]
    folds: Folds
    guide: Float[np.ndarray, "n g"] | None = None
    errors: ErrorModel = ERROR_MODEL
    kept: Kept = field(default_factory=Kept)
    random_seed: int | None = None
    progressbar: bool = False
    views: Sequence[View] = ()
    extremes: Extremes = field(default_factory=Extremes)


@dataclass(frozen=True)
class Member:
    """One family's contribution: estimates, and residuals on draws left out.

    Attributes
    ----------
    label : str
    estimate : array of shape (q,)
    adjusted : array of shape (chain, draw, q)
        ``f - g`` out of fold.
    tail : array of shape (q,)
        Error from regions without draws: beyond the outermost, and in gaps.

    See Also
    --------
    az_cv.solvers.Solver : Returns members.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv import Exact, Polynomial
    >>> from az_cv.solvers import Task
    >>> from az_cv.solvers.folds import make_folds
    >>> x = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> flat = x.reshape(400, 2)
    >>> task = Task(flat, -flat, (4, 100), make_folds("chain", x))
    >>> member = Exact().prepare(Polynomial(order=1), task).fit(flat).members[0]
    >>> member.adjusted.shape, bool((member.spread < 1e-6).all())
    ((4, 100, 2), True)
    """

    label: str
    estimate: Float[np.ndarray, " q"]
    adjusted: Float[np.ndarray, "chain draw q"]
    tail: Float[np.ndarray, " q"]

    @cached_property
    def spread(self) -> Float[np.ndarray, " q"]:
        """Standard deviations of `adjusted`."""
        return self.adjusted.std(axis=(0, 1))


@dataclass(frozen=True)
class Fitted:
    """What came of fitting a family to some outputs.

    Attributes
    ----------
    members : sequence of Member
        One for each setting that was fitted; none where nothing came of it.
    history : sequence of named tuples
        What happened on the way, one line each.
    whole : Member, optional
        Of a fitter with witnesses, the fit to all draws that fits to parts of them are compared
        with.
    """

    members: Sequence[Member]
    history: Sequence[Any] = ()
    whole: Member | None = None


class Fitter(Protocol):
    """A family on given draws, ready for any outputs."""

    def fit(self, outputs: Float[np.ndarray, "n q"], *, steps: bool = False) -> Fitted:
        """Fit standardised outputs; `steps` says that they are indicators, worth little time."""
        ...


@runtime_checkable
class Foreseeing(Protocol):
    """A fitter that can tell from few draws what its fit to all of them is worth."""

    def errors_of_guide(self, *, chosen: bool = False) -> Float[np.ndarray, " g"] | None:
        """Return the logarithm of the error of each function of the guide, if it is known.

        With the best settings of all that there are, or with those that were `chosen`, on more
        draws.
        """
        ...

    def error_of_steps(self) -> float | None:
        """Return the logarithm of the error of typical indicators, if it is known."""
        ...


@runtime_checkable
class Witnessing(Protocol):
    """A fitter with fits that no estimate is made of, to see whether their errors are right."""

    @property
    def has_witnesses(self) -> bool:
        """Whether there are such fits."""
        ...

    def worse_fits(self, outputs: Float[np.ndarray, "n q"]) -> Sequence[Member]:
        """Fit standardised outputs with settings from all over the grid."""
        ...

    def fits_to_parts(
        self, outputs: Float[np.ndarray, "n q"], parts: Sequence[Int[np.ndarray, " m"]]
    ) -> Sequence[Member]:
        """Fit standardised outputs with one setting to parts of the draws, or to all."""
        ...


@runtime_checkable
class Solver(Protocol):
    """A way to find the control variates of a family.

    See Also
    --------
    az_cv.Exact : The default solver.
    az_cv.SGD : Trains on minibatches.

    Examples
    --------
    >>> from az_cv import SGD, Exact, NeuralNetwork
    >>> from az_cv.solvers import Solver
    >>> isinstance(Exact(), Solver)
    True
    >>> Exact().accepts(NeuralNetwork()), SGD().accepts(NeuralNetwork())
    (False, True)
    """

    def accepts(self, family: Any) -> bool:
        """Tell whether the solver can fit this family."""
        ...

    def prepare(self, family: Any, task: Task) -> Fitter:
        """Do what does not depend on the outputs.

        Raises
        ------
        TypeError
            If the solver does not accept the family; the message says what to do instead.
        """
        ...
