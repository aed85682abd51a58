"""The progress bar of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

# Share that is done, loss, variance on held-out draws.
Report = Callable[[float, float, float], None]


def part(update: Report, run: int, runs: int) -> Report:
    """Return what one run of several reports to the bar of all."""
    return lambda done, loss, variance: update((run + done) / runs, loss, variance)


class _Bar:
    """A rich progress bar that shows the loss and the variance on held-out draws."""

    def __init__(self, label: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3g}, out of fold {task.fields[variance]:.3g}"),
            TimeRemainingColumn(),
        )
        self.task = self.progress.add_task(
            f"Training {label}", total=1.0, loss=math.nan, variance=math.nan
        )

    def __enter__(self) -> Report:
        self.progress.start()
        return lambda done, loss, variance: self.progress.update(
            self.task, completed=done, loss=loss, variance=variance
        )

    def __exit__(self, *error: object) -> None:
        self.progress.stop()


def progress(enabled: bool, label: str) -> Any:
    """Return a context whose value is called with progress, loss and held-out variance."""
    return _Bar(label) if enabled else nullcontext(lambda done, loss, variance: None)
