"""How much memory there is, and what a user calls two gigabytes."""

from __future__ import annotations

import os
import re
from pathlib import Path

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
UNKNOWN = 4 * 2**30  # where the system does not say
SMALLEST = 2**20


def memory_bytes(memory_limit: float | str | None) -> int:
    """Return a limit in bytes; ``None`` is what the system has to spare.

    Examples
    --------
    >>> memory_bytes("2GB"), memory_bytes("1.5 GiB"), memory_bytes(10**9)
    (2000000000, 1610612736, 1000000000)
    >>> memory_bytes("much")
    Traceback (most recent call last):
    ValueError: memory_limit must be bytes or text such as '2GB'; it is 'much'.
    """
    if memory_limit is None:
        return available_memory()
    is_number = isinstance(memory_limit, int | float) and not isinstance(memory_limit, bool)
    if is_number:
        size = float(memory_limit)
    elif isinstance(memory_limit, str) and (found := WRITTEN.fullmatch(memory_limit)):
        units = BINARY if found[3] else UNITS
        size = float(found[1]) * units.get(found[2].lower(), 1)
    else:
        raise ValueError(
            f"memory_limit must be bytes or text such as '2GB'; it is {memory_limit!r}."
        )
    if not SMALLEST <= size < float("inf"):
        raise ValueError(
            f"memory_limit must be at least {SMALLEST // 2**20} MiB; it is {memory_limit!r}."
        )
    return int(size)


def available_memory() -> int:
    """Return the bytes that new work can have, of the machine or of the container around it."""
    found = [UNKNOWN]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    except OSError:
        if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
            found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
        found += [int(most) - int(used)] if most != "max" else []
    except OSError:
        pass
    return max(min(found, default=UNKNOWN), SMALLEST)
