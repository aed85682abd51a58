"""Short names of families, for tables and messages."""

from __future__ import annotations

from typing import Any

from az_cv.families.ensemble import Ensemble
from az_cv.families.hierarchy import HierarchicalKernel
from az_cv.families.kernel import Kernel
from az_cv.families.neural import NeuralNetwork
from az_cv.families.polynomial import Polynomial


def describe(family: Any) -> str:
    """Return a short name for tables.

    Examples
    --------
    >>> describe(Polynomial(order=2)), describe(Kernel())
    ('polynomial order 2', 'imq kernel')
    """
    match family:
        case Polynomial():
            chosen = family.coordinates
            where = "" if chosen is None else f" in {len(chosen)} coordinates"
            return f"polynomial order {family.order}{where}"
        case Kernel():
            return f"{family.base} kernel"
        case HierarchicalKernel():
            return "hierarchical kernel"
        case NeuralNetwork():
            widths = "-".join(str(width) for width in family.widths)
            return f"{family.activation} network {widths}" + ("" if family.squares else " unpaired")
        case Ensemble():
            return " + ".join(describe(member) for member in family.members)
        case _:
            return type(family).__name__
