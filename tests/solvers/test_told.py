"""The line that says what is done."""

import io
import time

import pytest
import rich
from rich.console import Console
from rich.progress import Progress

from az_cv.solvers.linear import told as module
from az_cv.solvers.linear.told import told


@pytest.fixture
def screen(monkeypatch):
    """Return what a terminal would show, with no patience."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr("rich.get_console", lambda: console)
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    return written


def test_what_takes_long_is_told(screen):
    with told(True, "Solving for all draws: Kernel", 12.3):
        time.sleep(0.4)
    assert "Solving for all draws: Kernel" in screen.getvalue()
    assert "of about 12 s" in screen.getvalue()


def test_what_is_done_soon_is_not(screen, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 5.0)
    with told(True, "Solving", 12.3):
        pass
    assert "Solving" not in screen.getvalue()


def test_nothing_is_told_to_those_who_do_not_ask(screen):
    with told(False, "Solving", 12.3):
        time.sleep(0.2)
    assert screen.getvalue() == ""


def test_a_longer_bar_stays(screen):
    with Progress(console=rich.get_console()) as bar:
        bar.add_task("Blocks", total=3)
        with told(True, "Solving"):
            time.sleep(0.2)
    assert "Blocks" in screen.getvalue()


def test_an_error_ends_the_line(screen):
    with pytest.raises(ZeroDivisionError), told(True, "Solving"):
        time.sleep(0.2)
        1 / 0  # noqa: B018


def test_a_file_gets_no_line(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr("rich.get_console", lambda: Console(file=written))
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with told(True, "Solving", 12.3):
        time.sleep(0.1)
    assert written.getvalue() == ""
