"""The engine of the latest call, kept for further questions about the same posterior."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.engine.engine import Engine
from az_cv.engine.weighted import WeightedEngine

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.engine.settings import Settings

_latest: dict[object, Engine] = {}
_lock = Lock()


def engine_for(
    x: Float[np.ndarray, "chain draw d"],
    s: Float[np.ndarray, "chain draw d"],
    settings: Settings,
    *,
    guide: Float[np.ndarray, "chain draw g"] | None,
    asked: Float[np.ndarray, "chain draw k"] | None = None,
    weights: Float[np.ndarray, "chain draw"] | None = None,
) -> Engine:
    """Return the latest engine if draws, scores and settings are the same, else a new one.

    The factorisations of one engine stay in memory, up to the bytes of :mod:`az_cv.solvers.kept`,
    so that a further question about the same posterior is answered at once. Answers do not depend
    on what was asked before.
    """
    key = value_key((x, s, guide, asked, settings, weights))
    with _lock:
        engine = _latest.get(key)
        if engine is None:
            _latest.clear()  # the old one is gone before the new one needs its memory
    if engine is None:
        engine = (
            Engine(x, s, settings, guide=guide, asked=asked)
            if weights is None
            else WeightedEngine(x, s, weights, settings, guide=guide, asked=asked)
        )
        with _lock:
            _latest.clear()
            _latest[key] = engine
    return engine


def clear_cache() -> None:
    """Free the factorisations kept from the latest call.

    See Also
    --------
    az_cv.summary : Keeps its last fits for the next call.

    Examples
    --------
    >>> from az_cv import clear_cache
    >>> clear_cache()
    """
    with _lock:
        _latest.clear()


def value_key(value: Any) -> Any:
    """Return what is equal for equal values: of arrays a digest, of settings their fields.

    Examples
    --------
    >>> from az_cv.families import Polynomial
    >>> value_key(Polynomial(2)) == value_key(Polynomial(2)) != value_key(Polynomial(3))
    True
    """
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).data).digest()
        return ("array", value.shape, value.dtype.str, digest)
    if is_dataclass(value) and not isinstance(value, type):
        parts = (value_key(getattr(value, field.name)) for field in fields(value))
        return (type(value), *parts)
    if isinstance(value, tuple | list):
        return (type(value), *map(value_key, value))
    try:
        hash(value)
    except TypeError:
        # Its engine holds the object, so that the number is not reused while that lives.
        return ("object", id(value))
    # 1 == 1.0 == True, which mean other things.
    return (type(value), value)
