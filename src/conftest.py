"""What the examples in docstrings need before pytest collects them."""

# A module that pytest imports before the package hides the function of its name: az_cv.summary.
import az_cv  # noqa: F401
