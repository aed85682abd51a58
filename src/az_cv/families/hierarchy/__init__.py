"""Control variates that know which parameters of a model govern others."""

from az_cv.families.hierarchy.hierarchical_kernel import HierarchicalKernel
from az_cv.families.hierarchy.influence import Influence, find_influence
from az_cv.families.hierarchy.lifting import global_coordinates, standardised_influence

__all__ = [
    "HierarchicalKernel",
    "Influence",
    "find_influence",
    "global_coordinates",
    "standardised_influence",
]
