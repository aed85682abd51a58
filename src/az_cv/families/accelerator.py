"""A graphics card that JAX sees, and what is made on it in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.families.base import PortableFamily

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from az_cv.families.base import LinearFamily

    Matrix = Float[np.ndarray, "n d"]

# Matrices that are there at once while one is made and factorised.
AT_ONCE = 20
# Fewer draws than this are sooner done in the processor than compiled for the card.
WORTHWHILE = 2000


@cache
def find_accelerator() -> Accelerator | None:
    """Return the graphics card that JAX sees, ``None`` without one.

    JAX is loaded only where one of its plugins for cards is installed.
    """
    if find_spec("jax_plugins") is None and not entry_points(group="jax_plugins"):
        return None
    import jax

    cards = [device for device in jax.devices() if device.platform == "gpu"]
    return Accelerator(cards[0]) if cards else None


def accelerator_for(family: LinearFamily, num_draws: int) -> Accelerator | None:
    """Return the graphics card, if there is one that can make this kernel and is worth its time."""
    is_portable = isinstance(family, PortableFamily) and family.portable
    return find_accelerator() if is_portable and num_draws >= WORTHWHILE else None


@dataclass(frozen=True)
class Accelerator:
    """A device of JAX on which kernel systems are made and solved.

    Attributes
    ----------
    device : jax.Device
    """

    device: Any

    @property
    def memory(self) -> float:
        """Bytes that JAX may use, zero where it does not say."""
        return float((self.device.memory_stats() or {}).get("bytes_limit", 0))

    @property
    def max_draws(self) -> int:
        """How many draws one system may have."""
        return int(math.sqrt(self.memory / (8 * AT_ONCE)))

    def run(
        self, function: Callable[..., tuple[Any, ...]], *arrays: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return what a function makes of arrays, computed on the device."""
        import jax

        with jax.enable_x64(True), jax.default_device(self.device):
            return tuple(map(np.asarray, function(*map(jax.numpy.asarray, arrays))))

    def matrix(self, family: LinearFamily, x: Matrix, s: Matrix) -> Any:
        """Return the Stein kernel matrix between all draws, on the device."""
        import jax

        with jax.enable_x64(True), jax.default_device(self.device):
            there: Any = jax.numpy.asarray(np.stack([x, s]))
            return family.gram(*there, *there)
