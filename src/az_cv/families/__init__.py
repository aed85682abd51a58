"""Families of control variates."""

from az_cv.families.base import (
    BalancedFamily,
    LeadingFeatures,
    LiftedFamily,
    LinearFamily,
    NamingFamily,
    PlacedFamily,
    PortableFamily,
    View,
    WholeMatrix,
)
from az_cv.families.ensemble import Ensemble, paper_kernels
from az_cv.families.hierarchy import HierarchicalKernel
from az_cv.families.kernel import Kernel
from az_cv.families.neural import NeuralNetwork, Potential, TrainedFamily
from az_cv.families.polynomial import Polynomial

__all__ = [
    "BalancedFamily",
    "Ensemble",
    "HierarchicalKernel",
    "Kernel",
    "LeadingFeatures",
    "LiftedFamily",
    "LinearFamily",
    "NamingFamily",
    "NeuralNetwork",
    "PlacedFamily",
    "Polynomial",
    "PortableFamily",
    "Potential",
    "TrainedFamily",
    "View",
    "WholeMatrix",
    "paper_kernels",
]
