"""Factorisations that wait for further questions about the same draws."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

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

    def put(self, key: Hashable, system: Any, *, lasting: bool) -> None:
        """Keep a system with its `nbytes`, if there is room.

        A lasting one, of a fit, takes the room of those that only a search made, the largest first:
        a further question starts with the small ones.
        """
        with self._lock:
            needed = system.nbytes
            if key in self._systems:
                self._remove(key)
            if lasting and self._size + needed > self.limit:
                searched = [other for other in self._systems if other not in self._lasting]
                for other in sorted(searched, key=lambda key: -self._systems[key].nbytes):
                    if self._size + needed > self.limit:
                        self._remove(other)
            if self._size + needed <= self.limit:
                self._systems[key] = system
                self._size += needed
                if lasting:
                    self._lasting.add(key)

    def _remove(self, key: Hashable) -> None:
        self._size -= self._systems.pop(key).nbytes
