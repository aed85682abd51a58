"""Sums of families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from az_cv.families.base import (
    BalancedFamily,
    LeadingFeatures,
    LinearFamily,
    NamingFamily,
    PlacedFamily,
    PortableFamily,
)
from az_cv.families.kernel import Kernel
from az_cv.families.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Ensemble:
    """The sum of several families, fitted together.

    Each member enters with equal average variance. With ``semi_exact=True`` the polynomial members
    are not penalised at all, which makes the estimate exact on their span: the semi-exact control
    functional of South, Karvonen, Nemeth, Girolami and Oates (2022).

    Parameters
    ----------
    members : sequence of families
        For the paper's ensembles: ``Ensemble([Kernel("paper"), Polynomial(2)])``, and
        ``Ensemble(paper_kernels() + [Polynomial(2)])`` with two kernels.
    semi_exact : bool or "auto"
        ``"auto"`` fits with and without the polynomials, from the same factorisation, and leaves
        the choice for each output to stacking.
    variances : tuple of float, optional
        Average variance of each member, by which it is divided. Taken from the draws by default.

    See Also
    --------
    az_cv.Polynomial : A member.
    az_cv.Kernel : A member.

    Examples
    --------
    >>> from az_cv import Ensemble, Kernel, Polynomial
    >>> Ensemble([Kernel(), Polynomial(order=1)], semi_exact=True).semi_exact
    True
    """

    members: Sequence[LinearFamily]
    semi_exact: bool | Literal["auto"] = False
    variances: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(self.members))
        if not self.members:
            raise ValueError("An Ensemble needs at least one member.")
        for member in self.members:
            if isinstance(member, type) or not isinstance(member, LinearFamily):
                raise TypeError(
                    f"Members of an Ensemble are objects such as Kernel() and Polynomial(order=2); "
                    f"{member!r} is none."
                )
        if self.semi_exact and not (self._exact() and self._penalised()):
            raise ValueError(
                "semi_exact needs a Polynomial, on whose span the fit is exact, and another "
                f"member; the members are {list(self.members)}."
            )

    def among(self, names: Sequence[str]) -> Ensemble:
        """Return the sum with positions in place of names of unconstrained parameters."""
        members = [m.among(names) if isinstance(m, NamingFamily) else m for m in self.members]
        return replace(self, members=members)

    def placed(self, scale: Float[np.ndarray, "d r"], s: Float[np.ndarray, "n r"]) -> Ensemble:
        """Return the sum for whitened draws, which times `scale` are the original ones."""
        members = [m.placed(scale, s) if isinstance(m, PlacedFamily) else m for m in self.members]
        return replace(self, members=members)

    def balanced(self, s: Matrix) -> Ensemble:
        """Return the sum in coordinates whose draws and scores have the same covariance."""
        members = [m.balanced(s) if isinstance(m, BalancedFamily) else m for m in self.members]
        return replace(self, members=members)

    def variants(self, x: Matrix, s: Matrix) -> Sequence[Ensemble]:
        """Vary the member with most choices; the others take their middle one."""
        choices = [member.variants(x, s) for member in self.members]
        widest = max(range(len(choices)), key=lambda i: len(choices[i]))
        middle = [options[len(options) // 2] for options in choices]
        ensembles = []
        for option in choices[widest]:
            members = (*middle[:widest], option, *middle[widest + 1 :])
            variances = tuple(_mean_variance(member, x, s) for member in members)
            ensembles.append(replace(self, members=members, variances=self.variances or variances))
        return ensembles

    def num_features(self, d: int) -> int | None:
        """Return the number of penalised features, ``None`` if a member has no finite set."""
        counts = [member.num_features(d) for member, _ in self._penalised()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def num_leading(self, d: int) -> int:
        """Return the number of leading features: those of the first member, if it has any."""
        first = self.members[0]
        return first.num_leading(d) if isinstance(first, LeadingFeatures) else 0

    def features(self, x: Matrix, s: Matrix) -> Float[np.ndarray, "n p"]:
        """Return the penalised features of the members side by side."""
        blocks = [member.features(x, s) / variance**0.5 for member, variance in self._penalised()]
        return np.hstack(blocks)

    def spans(self, x: Matrix, s: Matrix) -> list[Float[np.ndarray, "n p"] | None]:
        """Return the sets of features to leave unpenalised, each for a fit of its own."""
        if not self.semi_exact:
            return [None]
        exact = np.hstack([member.features(x, s) for member in self._exact()])
        return [None, exact] if self.semi_exact == "auto" else [exact]

    def gram(self, x: Matrix, s: Matrix, y: Matrix, t: Matrix) -> Float[np.ndarray, "n m"]:
        """Return the sum of the members' Stein kernels, each of unit average variance."""
        (first, scale), *others = self._penalised()
        total = first.gram(x, s, y, t) / scale
        for member, variance in others:
            total += member.gram(x, s, y, t) / variance
        return total

    @property
    def portable(self) -> bool:
        """Whether the kernels of all penalised members can be made on a graphics card."""
        members = [member for member, _ in self._penalised()]
        return all(isinstance(m, PortableFamily) and m.portable for m in members)

    def _exact(self) -> list[LinearFamily]:
        return [m for m in self.members if self.semi_exact and isinstance(m, Polynomial)]

    def _penalised(self) -> list[tuple[LinearFamily, float]]:
        variances = self.variances or (1.0,) * len(self.members)
        return [
            (member, variance)
            for member, variance in zip(self.members, variances)
            if not (self.semi_exact and isinstance(member, Polynomial))
        ]


def paper_kernels(alpha_1: float = 1.0) -> list[Kernel]:
    """Return the two kernels of the paper's multi-kernel ensemble.

    Length scales are the median heuristic and ``sqrt(2)`` times it, with one `alpha_1`.

    Parameters
    ----------
    alpha_1 : float
        Decay of both kernels.

    Returns
    -------
    list of Kernel

    See Also
    --------
    az_cv.Ensemble : Holds several families.
    az_cv.Kernel : One kernel.

    Examples
    --------
    >>> from az_cv.families import paper_kernels
    >>> [round(kernel.length_factor, 3) for kernel in paper_kernels()]
    [1.0, 1.414]
    """
    kernel = Kernel("paper", length_scale="median", alpha_1=alpha_1)
    return [kernel, replace(kernel, length_factor=2**0.5)]


def _mean_variance(member: LinearFamily, y: Matrix, t: Matrix, max_draws: int = 200) -> float:
    rows = slice(None, None, max(1, len(y) // max_draws))
    return float(np.trace(member.gram(y[rows], t[rows], y[rows], t[rows])) / len(y[rows]))
