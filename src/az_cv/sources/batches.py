"""Gradients at many draws, in chunks of bounded memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.progress import track

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

# Enough draws to amortise one call, few enough for a progress bar to move.
MAX_CHUNK = 500
CHUNK_BYTES = 2**29


class Compiled(NamedTuple):
    """A function of many draws, how many it takes at once, and whether it takes fewer."""

    function: Callable[..., Sequence[np.ndarray]]
    chunk_size: int
    is_flexible: bool = False

    def at(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Evaluate at any number of points, in chunks of the size compiled for.

        Examples
        --------
        >>> import numpy as np
        >>> Compiled(lambda x: [2 * x], chunk_size=2).at([np.arange(5)])
        [array([0, 2, 4, 6, 8])]
        """
        if self.is_flexible:
            return map_chunks(self.function, arrays, chunk_size=self.chunk_size)
        n = len(arrays[0])
        rows = np.arange(-(-n // self.chunk_size) * self.chunk_size).clip(max=n - 1)
        filled = [array[rows] for array in arrays]
        return [out[:n] for out in map_chunks(self.function, filled, chunk_size=self.chunk_size)]


def jax_float64() -> AbstractContextManager:
    """Return a context in which JAX computes in double precision, here and in this thread only."""
    import jax

    return jax.enable_x64(True)


def map_chunks(
    function: Callable[..., Sequence[np.ndarray]],
    arrays: Sequence[np.ndarray],
    *,
    chunk_size: int = MAX_CHUNK,
    progressbar: bool = False,
    description: str = "Evaluating gradients",
) -> list[np.ndarray]:
    """Apply `function` to chunks of the leading axis and concatenate what it returns.

    Parameters
    ----------
    function : callable
        Takes one array per entry of `arrays`, returns a sequence of arrays, all of the same length.
    arrays : sequence of array of shape (n, ...)
    chunk_size : int
        Upper bound on the length of a chunk.
    progressbar : bool, default False
        Show a progress bar if there is more than one chunk.
    description : str
        Text beside the progress bar.

    Returns
    -------
    list of array of shape (n, ...)

    Examples
    --------
    >>> import numpy as np
    >>> map_chunks(lambda x: [2 * x], [np.arange(5)], chunk_size=2)
    [array([0, 2, 4, 6, 8])]
    """
    n = len(arrays[0])
    size = _even_size(n, chunk_size)
    num_chunks = -(-n // size)
    results = []
    chunks = track(
        range(num_chunks),
        description=description,
        transient=True,
        disable=not progressbar or num_chunks == 1,
    )
    for chunk in chunks:
        # Every chunk has the same shape, filled up with the last draw, so JAX compiles only once.
        rows = np.arange(chunk * size, (chunk + 1) * size).clip(max=n - 1)
        results.append([np.asarray(out) for out in function(*(array[rows] for array in arrays))])
    return [np.concatenate(parts)[:n] for parts in zip(*results)]


def compiled_at_first_use(
    compile_for: Callable[[Sequence[np.ndarray]], Compiled],
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return a function of any number of draws, compiled when it is first called.

    Parameters
    ----------
    compile_for : callable
        Compiles for draws such as those it is given.

    Examples
    --------
    >>> import numpy as np
    >>> def compile_for(arrays):
    ...     return Compiled(lambda x: [2 * x], len(arrays[0]))
    >>> double = compiled_at_first_use(compile_for)
    >>> double([np.arange(3)])
    [array([0, 2, 4])]
    """
    compiled: list[Compiled] = []

    def evaluate(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        if not compiled:
            # A first call with few draws must not set the size of all further chunks.
            rows = np.arange(MAX_CHUNK) % len(arrays[0])
            compiled.append(compile_for([array[rows] for array in arrays]))
        return compiled[0].at(arrays)

    return evaluate


def jax_map_chunks(
    function: Callable[..., Sequence],
    arrays: Sequence[np.ndarray],
    *,
    progressbar: bool = False,
    compiler_options: dict[str, str] | None = None,
    float64: bool = True,
) -> list[np.ndarray]:
    """Apply a JAX function of one draw to many draws, compiled.

    Parameters
    ----------
    function : callable
        Takes one array per entry of `arrays`, returns a sequence of arrays.
    arrays : sequence of array of shape (n, ...)
    progressbar : bool, default False
    compiler_options : dict of str to str, optional
        Passed to ``jax.jit``.
    float64 : bool, default True
        Compute in double precision, whatever the setting of JAX.

    Returns
    -------
    list of array of shape (n, ...)

    Examples
    --------
    >>> import jax, numpy as np
    >>> gradient = jax.grad(lambda x: -0.5 * x**2)
    >>> jax_map_chunks(lambda x: [gradient(x)], [np.arange(3.0)])
    [array([-0., -1., -2.])]
    """
    compiled = jax_compile(function, arrays, compiler_options=compiler_options, float64=float64)
    return map_chunks(
        compiled.function, arrays, chunk_size=compiled.chunk_size, progressbar=progressbar
    )


def jax_compile(
    function: Callable[..., Sequence],
    arrays: Sequence[np.ndarray],
    *,
    compiler_options: dict[str, str] | None = None,
    float64: bool = True,
) -> Compiled:
    """Compile a JAX function of one draw for chunks of the draws in `arrays`.

    Parameters are those of :func:`jax_map_chunks`.

    Returns
    -------
    Compiled
        Takes chunks of exactly ``chunk_size`` draws.
    """
    import jax

    def context() -> AbstractContextManager:
        return jax_float64() if float64 else nullcontext()

    num_draws = len(arrays[0])
    with context():
        batched = jax.jit(jax.vmap(function), compiler_options=compiler_options)
        chunk_size = min(MAX_CHUNK, num_draws)
        jaxpr = batched.trace(*(array[:chunk_size] for array in arrays)).jaxpr
        # XLA fuses most intermediate results away, so their total is an upper bound.
        held = sum(_num_bytes(variable) for step in jaxpr.eqns for variable in step.outvars)
        chunk_size = max(1, int(chunk_size * min(1.0, CHUNK_BYTES / max(held, 1))))
        size = _even_size(num_draws, chunk_size)
        executable = batched.lower(*(array[:size] for array in arrays)).compile()

    def evaluate(*chunk: np.ndarray) -> Sequence[np.ndarray]:
        with context():
            return executable(*chunk)

    return Compiled(evaluate, size)


def _even_size(num_draws: int, chunk_size: int) -> int:
    """Return the size of equal chunks, none longer than `chunk_size`."""
    return -(-num_draws // -(-num_draws // chunk_size))


def _num_bytes(variable: object) -> int:
    shape = getattr(variable.aval, "shape", ())  # type: ignore[attr-defined]
    return 8 * int(np.prod(shape))
