"""What one family, solved or trained, contributes to an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float


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
    """

    label: str
    estimate: Float[np.ndarray, " q"]
    adjusted: Float[np.ndarray, "chain draw q"]
    tail: Float[np.ndarray, " q"]
