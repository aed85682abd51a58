"""Factorisations that wait for further questions about the same draws."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

LIMIT = 800e6  # bytes: six kernel systems of 4000 draws


class Kept:
    """Systems by key, up to a limit in bytes for all of them together; safe under threads.

    Parameters
    ----------
    limit : float
        Limit in bytes.

    Examples
    --------
    >>> import numpy as np
    >>> kept = Kept(limit=100)
    >>> kept.put("search", np.zeros(10), lasting=False)
    >>> kept.put("fit", np.ones(5), lasting=True)
    >>> kept.get("search") is None, kept.nbytes
    (True, 40)
    """

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self._systems: dict[Hashable, Any] = {}
        self._lasting: set[Hashable] = set()
        self._favoured: set[Hashable] = set()
        self._size = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Memory held."""
        with self._lock:
            return self._size

    def get(self, key: Hashable) -> Any | None:
        """Return the system kept under a key, ``None`` if there is none."""
        with self._lock:
            return self._systems.get(key)

    def favour(self, settings: Iterable[Hashable]) -> None:
        """Let systems with these settings, the first parts of their keys, go before all others."""
        with self._lock:
            self._favoured = set(settings)

    def put(self, key: Hashable, system: Any, *, lasting: bool) -> None:
        """Keep a system with its `nbytes`, if there is room.

        A lasting one, of a fit, takes the room of those that only a search made, the largest first:
        a further question starts with the small ones. A favoured one takes that of all others, too.
        """
        with self._lock:
            needed = system.nbytes
            if key in self._systems:
                self._remove(key)
            if lasting and self._size + needed > self.limit:
                self._make_room(needed, [k for k in self._systems if k not in self._lasting])
                if self._is_favoured(key) and needed <= self.limit:
                    self._make_room(needed, [k for k in self._systems if not self._is_favoured(k)])
            if self._size + needed <= self.limit:
                self._systems[key] = system
                self._size += needed
                if lasting:
                    self._lasting.add(key)

    def _is_favoured(self, key: Hashable) -> bool:
        return isinstance(key, tuple) and key[0] in self._favoured

    def _make_room(self, needed: float, others: list[Hashable]) -> None:
        """Remove systems, the largest first, until there is room."""
        for other in sorted(others, key=lambda key: -self._systems[key].nbytes):
            if self._size + needed > self.limit:
                self._remove(other)

    def _remove(self, key: Hashable) -> None:
        self._size -= self._systems.pop(key).nbytes
        self._lasting.discard(key)
