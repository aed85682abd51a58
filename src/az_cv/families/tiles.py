"""Tiles of a matrix, so that elementwise work on it stays in the processor's cache."""

from __future__ import annotations

from typing import TypeAlias

WIDTH, HEIGHT = 128, 512

Tile: TypeAlias = tuple[slice, slice]


def lower_tiles(n: int) -> list[Tile]:
    """Return columns and rows of tiles that cover the lower triangle of an n by n matrix.

    Examples
    --------
    >>> lower_tiles(600)[:3]
    [(slice(0, 128, None), slice(0, 512, None)), (slice(0, 128, None), slice(512, 1024, None)), \
(slice(128, 256, None), slice(128, 640, None))]
    """
    corners = [(k, j) for k in range(0, n, WIDTH) for j in range(k, n, HEIGHT)]
    return [(slice(k, k + WIDTH), slice(j, j + HEIGHT)) for k, j in corners]
