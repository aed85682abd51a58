"""What a family of control variates offers to the exact solvers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from jaxtyping import Float, Int


class View(NamedTuple):
    """A family as made from some of the draws, and all draws as it sees them.

    Attributes
    ----------
    family : LinearFamily
    x, s : arrays of shape (n, p)
        What it is to be given in place of draws and scores.
    judged : array of int
        Draws that had no part in its making, by which it is judged.
    """

    family: LinearFamily
    x: Float[np.ndarray, "n p"]
    s: Float[np.ndarray, "n p"]
    judged: Int[np.ndarray, " m"]


@runtime_checkable
class NamingFamily(Protocol):
    """A family that may refer to unconstrained parameters by name."""

    def among(self, names: Sequence[str]) -> Any:
        """Return the family with positions in place of names of unconstrained parameters."""
        ...


@runtime_checkable
class PlacedFamily(Protocol):
    """A family that may refer to coordinates as they were before whitening."""

    def placed(self, scale: Float[np.ndarray, "d r"], s: Float[np.ndarray, "n r"]) -> LinearFamily:
        """Return the family for whitened draws with scores `s`.

        Parameters
        ----------
        scale : array of shape (d, r)
            Whitened draws times this are the original ones, up to their mean.
        s : array of shape (n, r)
        """
        ...


@runtime_checkable
class BalancedFamily(Protocol):
    """A family whose features depend on the choice of coordinates, and that can make a good one."""

    def balanced(self, s: Float[np.ndarray, "n d"]) -> LinearFamily:
        """Return the family in coordinates whose draws and scores have the same covariance."""
        ...


@runtime_checkable
class LeadingFeatures(Protocol):
    """A family whose first features matter more than the others."""

    def num_leading(self, d: int) -> int:
        """Return how many features come before all others in importance."""
        ...


@runtime_checkable
class LiftedFamily(Protocol):
    """A family that sees more of each draw than its whitened coordinates."""

    def lift(
        self,
        x: Float[np.ndarray, "n d"],
        s: Float[np.ndarray, "n d"],
        asked: Float[np.ndarray, "n k"],
    ) -> Sequence[View]:
        """Return views of the draws, which together judge each draw once.

        Parameters
        ----------
        x, s : arrays of shape (n, d)
            Unconstrained draws and scores, as they are.
        asked : array of shape (n, k)
            Standardised functions that are typical of what will be asked.
        """
        ...


@runtime_checkable
class WholeMatrix(Protocol):
    """A family that makes the matrix of all draws at once faster than piece by piece."""

    def matrix(
        self, x: Float[np.ndarray, "n d"], s: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n n"]:
        """Return the lower triangle of the Stein kernel matrix, in Fortran order."""
        ...


@runtime_checkable
class PortableFamily(Protocol):
    """A family whose `gram` may take JAX's arrays, too, so that a graphics card can make it."""

    @property
    def portable(self) -> bool:
        """Whether it does with its present parameters."""
        ...


@runtime_checkable
class LinearFamily(Protocol):
    """Control variates linear in their coefficients.

    A family is given by features, by a Stein kernel ``k0(x, y) = sum_j phi_j(x) phi_j(y)``, or by
    both; the solver takes the smaller of the two systems. Draws and scores are standardised.
    """

    def variants(
        self, x: Float[np.ndarray, "n d"], s: Float[np.ndarray, "n d"]
    ) -> Sequence[LinearFamily]:
        """Return fully specified families to choose from, neighbours next to each other."""
        ...

    def num_features(self, d: int) -> int | None:
        """Return the number of features in d dimensions, ``None`` when there is no finite set."""
        ...

    def features(
        self, x: Float[np.ndarray, "n d"], s: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n p"]:
        """Return the features at the draws; each has posterior mean zero."""
        ...

    def gram(
        self,
        x: Float[np.ndarray, "n d"],
        s: Float[np.ndarray, "n d"],
        y: Float[np.ndarray, "m d"],
        t: Float[np.ndarray, "m d"],
    ) -> Float[np.ndarray, "n m"]:
        """Return the Stein kernel between draws `x` (scores `s`) and `y` (scores `t`)."""
        ...
