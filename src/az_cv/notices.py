"""Warnings that belong to one call.

``warnings.catch_warnings`` records for the whole process: with several threads the warnings of one
call turn up in the table of another. What this package has to say is collected by the call that
says it, and shown to its user when the call is done.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Notice(NamedTuple):
    """What a call has to say."""

    message: str
    category: type[Warning]


# Each thread has a context, and a variable, of its own.
_collected: ContextVar[list[Notice] | None] = ContextVar("az_cv_notices", default=None)


def notify(message: str, category: type[Warning] = UserWarning) -> None:
    """Tell the call in progress, or else the user.

    Examples
    --------
    >>> with silenced() as notices:
    ...     notify("4 draws are few")
    >>> notices[0].message
    '4 draws are few'
    """
    collected = _collected.get()
    if collected is None:
        warnings.warn(message, category, stacklevel=_users_level())
    elif Notice(message, category) not in collected:
        collected.append(Notice(message, category))


@contextmanager
def collected_notices() -> Iterator[list[Notice]]:
    """Collect what is said inside, in a list; at the end, say it."""
    with silenced() as notices:
        try:
            yield notices
        finally:
            said = list(notices)
    for notice in said:
        notify(*notice)


@contextmanager
def silenced() -> Iterator[list[Notice]]:
    """Collect what is said inside, in a list, and keep it from the user."""
    token = _collected.set([])
    notices = _collected.get()
    assert notices is not None
    try:
        yield notices
    finally:
        _collected.reset(token)


def _users_level() -> int:
    """Return the stack level of the first caller outside of the package, for `notify`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("az_cv", "contextlib")
