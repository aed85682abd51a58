"""Solvers that fit a family to the integrands."""

from az_cv.solvers.exact import Exact

__all__ = ["Exact"]
