"""A time that the user sets for a call.

Whoever works looks at what is left of it, does what fits, and says what was left out.
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class TimeLimit:
    """When to stop, and what was left out on the way.

    Attributes
    ----------
    deadline : float
        Time in seconds of :func:`time.perf_counter`.
    left_out : list of str
    """

    deadline: float
    left_out: list[str] = field(default_factory=list)


_current: ContextVar[TimeLimit | None] = ContextVar("time_limit", default=None)


@contextmanager
def time_limit(seconds: float | None) -> Iterator[TimeLimit]:
    """Limit what is done inside to some seconds; within another limit, to the shorter of both.

    Examples
    --------
    >>> with time_limit(60) as limit:
    ...     leave_out("networks")
    ...     remaining() <= 60, limit.left_out
    (True, ['networks'])
    >>> remaining()
    inf
    """
    outer = _current.get()
    deadline = math.inf if seconds is None else time.perf_counter() + seconds
    if outer is None:
        limit = TimeLimit(deadline)
    else:
        limit = TimeLimit(min(deadline, outer.deadline), outer.left_out)
    token = _current.set(limit)
    try:
        yield limit
    finally:
        _current.reset(token)


def remaining() -> float:
    """Return the seconds that are left, infinite where there is no limit."""
    limit = _current.get()
    return math.inf if limit is None else limit.deadline - time.perf_counter()


def leave_out(what: str) -> None:
    """Note what there was no time for, once."""
    limit = _current.get()
    if limit is not None and what not in limit.left_out:
        limit.left_out.append(what)


def require_time(max_time: float | None) -> None:
    """Refuse what is no time.

    Examples
    --------
    >>> require_time(-1)
    Traceback (most recent call last):
    ValueError: max_time must be a positive number of seconds or None; it is -1.
    """
    is_number = isinstance(max_time, int | float) and not isinstance(max_time, bool)
    if max_time is not None and not (is_number and max_time > 0):
        raise ValueError(
            f"max_time must be a positive number of seconds or None; it is {max_time!r}."
        )


@dataclass
class Cost:
    """What a kernel system costs, learned from smaller ones.

    Making the matrix grows with the square of the number of draws, factorising it with the cube.
    """

    draws: int = 0
    making: float = 0.0
    factorising: float = 0.0

    def learn(self, draws: int, making: float, factorising: float) -> None:
        """Note the seconds that a system took, if none that was larger is known."""
        if draws >= self.draws:
            self.draws, self.making, self.factorising = draws, making, factorising

    def predict(self, draws: float) -> float:
        """Return the seconds that a system of so many draws takes, zero if nothing is known.

        Examples
        --------
        >>> cost = Cost()
        >>> cost.learn(1000, 0.5, 0.25)
        >>> cost.predict(2000)
        4.0
        """
        if not self.draws:
            return 0.0
        growth = draws / self.draws
        return self.making * growth**2 + self.factorising * growth**3
