"""One line that says what is done and about how long it takes, for whatever takes a while."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Seconds after which the line appears.
PATIENCE = 2.0


@contextmanager
def told(enabled: bool, what: str, seconds: float | None = None) -> Iterator[None]:
    """Show what is done, if it is still being done after two seconds.

    Files and pipes get nothing: the line is for someone who waits.

    Parameters
    ----------
    enabled : bool
        Whether the user wants to see progress.
    what : str
    seconds : float, optional
        How long it is expected to take.
    """
    from rich import get_console

    console = get_console()
    if not enabled or not (console.is_interactive or console.is_jupyter):
        yield
        return
    from rich.errors import LiveError
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    if seconds:
        columns.append(TextColumn(f"of about {max(seconds, 1):.0f} s"))
    line = Progress(*columns, console=console, transient=True)
    line.add_task(what)

    def show() -> None:
        try:
            line.start()
        except LiveError:  # the bar of a longer piece of work is there already
            pass

    timer = Timer(PATIENCE, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if line.live.is_started:
            line.stop()
