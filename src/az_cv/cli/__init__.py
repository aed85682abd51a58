"""The `az-cv` command."""

from az_cv.cli.command import main

__all__ = ["main"]
