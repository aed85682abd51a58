"""Three ways to evaluate the gradient of a PyMC model at many draws.

JAX is the fastest on every model measured. Without it, or where it lacks an operation, a batched
graph run by Python calls of NumPy avoids long compilations; a compiled function called draw by draw
is left for models with large matrices.
"""

from __future__ import annotations

import logging
import sys
import time
import tracemalloc
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from az_cv.scores.batches import CHUNK_BYTES, MAX_CHUNK, jax_float64, jax_map_chunks, map_chunks
from az_cv.scores.pymc_graph import Graph, batched_graph, gradient_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Arrays = Sequence[np.ndarray]

logger = logging.getLogger(__name__)

# A compiled loop takes from 10 s to minutes to compile, then a fraction of a millisecond per draw.
PATIENCE_SECONDS = 30.0

# XLA computes a value anew wherever it is used, and by default fuses multiplications into additions
# there, so that two copies may differ in the last bit. Derivatives of Matern covariances, in which
# large terms cancel, came out wrong by a factor of 60. Compilation is faster this way, too.
REPRODUCIBLE_ARITHMETIC = {"xla_backend_optimization_level": "0"}


class Gradients(NamedTuple):
    """Derivatives at every draw, and how they were obtained."""

    arrays: list[np.ndarray]
    backend: str
    seconds: float


def model_gradients(
    log_density: Graph, values: Arrays, *, argnums: Sequence[int], progressbar: bool = False
) -> Gradients:
    """Differentiate the log density of a model at many draws by the first way that works.

    Parameters
    ----------
    log_density : Graph
        From :func:`az_cv.scores.pymc_graph.log_density_graph`.
    values : sequence of array of shape (n, ...)
        The inputs of `log_density` at every draw.
    argnums : sequence of int
        Positions of the inputs to differentiate; the others are held fixed.
    progressbar : bool, default False

    Returns
    -------
    Gradients
        ``arrays`` has one array of shape (n, ...) per entry of `argnums`; ``backend`` is
        ``"jax"``, ``"vectorised"`` or ``"loop"``; ``seconds`` includes compilation.
    """
    ways: dict[str, Callable[..., list[np.ndarray] | None]] = {
        "jax": with_jax,
        "vectorised": vectorised,
        "loop": compiled_loop,
    }
    start = time.perf_counter()
    for backend, evaluate in ways.items():
        try:
            arrays = evaluate(log_density, values, argnums=argnums, progressbar=progressbar)
        except Exception as err:
            # JAX and PyTensor raise many types for an operation they cannot convert or batch.
            if backend == "loop":
                raise
            logger.info("%s evaluation of the gradient failed: %s", backend, err)
            continue
        if arrays is not None:
            seconds = time.perf_counter() - start
            logger.info(
                "%d gradients in %.1f s, compilation included (%s)",
                len(values[0]),
                seconds,
                backend,
            )
            return Gradients(arrays, backend, seconds)
    raise RuntimeError("The compiled loop gave no gradients.")


def with_jax(
    log_density: Graph, values: Arrays, *, argnums: Sequence[int], progressbar: bool = False
) -> list[np.ndarray]:
    """Evaluate PyTensor's derivatives with JAX, batched and compiled by XLA.

    Differentiating in PyTensor keeps the derivatives that PyMC samples with: JAX has rules of its
    own for branches not taken, and gives NaN for some censored likelihoods.
    """
    from pytensor.compile.mode import get_mode
    from pytensor.compile.sharedvalue import SharedVariable
    from pytensor.graph.fg import FunctionGraph
    from pytensor.graph.replace import clone_replace

    try:
        from pytensor.graph.traversal import graph_inputs
    except ImportError:
        from pytensor.graph.basic import graph_inputs

    inputs, outputs = gradient_graph(log_density, argnums)
    shared = [v for v in graph_inputs(outputs) if isinstance(v, SharedVariable)]
    constants = {v: v.type.constant_type(v.type, v.get_value()) for v in shared}
    fgraph = FunctionGraph(inputs, clone_replace(outputs, constants), clone=True)
    # Constants take their precision from the moment of conversion.
    with _pytensor_to_jax() as jax_funcify, jax_float64(), warnings.catch_warnings():
        # Assertions inside of composite operations are skipped, as those outside of them.
        warnings.filterwarnings("ignore", message="Skipping", category=UserWarning)
        get_mode("JAX").optimizer.rewrite(fgraph)
        return jax_map_chunks(
            jax_funcify(fgraph),
            values,
            progressbar=progressbar,
            compiler_options=REPRODUCIBLE_ARITHMETIC,
        )


def vectorised(
    log_density: Graph,
    values: Arrays,
    *,
    argnums: Sequence[int],
    progressbar: bool = False,
    patience: float = PATIENCE_SECONDS,
) -> list[np.ndarray] | None:
    """Differentiate with a batched graph that Python runs, which compiles in about a second.

    Returns
    -------
    list of array, or None
        None if a probe projects more than `patience` seconds.
    """
    graph = batched_graph(gradient_graph(log_density, argnums))
    with python_functions() as compile_graph:
        function = compile_graph(graph)
        probe = [array[: min(8, len(array))] for array in values]
        num_probe, num_draws = len(probe[0]), len(values[0])
        seconds, num_bytes = _cost(lambda: function(*probe))
        if seconds * num_draws / num_probe > patience:
            # Calls have a fixed cost, so few draws overstate it: ask again with more of them.
            probe = [array[: min(100, num_draws)] for array in values]
            num_probe = len(probe[0])
            if seconds < patience:
                seconds, num_bytes = _cost(lambda: function(*probe))
            if seconds * num_draws / num_probe > patience:
                return None
        chunk_size = max(1, min(MAX_CHUNK, int(CHUNK_BYTES * num_probe / max(num_bytes, 1))))
        return map_chunks(function, values, chunk_size=chunk_size, progressbar=progressbar)


def compiled_loop(
    log_density: Graph, values: Arrays, *, argnums: Sequence[int], progressbar: bool = False
) -> list[np.ndarray]:
    """Differentiate draw by draw with PyTensor's default compiler."""
    import pytensor

    graph = gradient_graph(log_density, argnums)
    function = pytensor.function(
        graph.inputs, graph.outputs, on_unused_input="ignore", trust_input=True
    )

    def evaluate(*chunk: np.ndarray) -> list[np.ndarray]:
        # Indexing gives NumPy scalars, which compiled functions that trust their input mishandle.
        rows = [function(*map(np.asarray, row)) for row in zip(*chunk)]
        return [np.stack(column) for column in zip(*rows)]

    return map_chunks(evaluate, values, chunk_size=100, progressbar=progressbar)


@contextmanager
def python_functions() -> Iterator[Callable[[Graph], Callable[..., list[np.ndarray]]]]:
    """Give a function that turns a graph into Python calls; call the results inside this block."""
    import pytensor
    import pytensor.tensor as pt
    from pytensor.compile.mode import Mode
    from pytensor.graph.rewriting.basic import in2out, node_rewriter
    from pytensor.scalar.basic import Add, Mul
    from pytensor.tensor.elemwise import Elemwise

    @node_rewriter([Elemwise])
    def split_sums_and_products(fgraph: Any, node: Any) -> list[Any] | None:
        # NumPy has no ufunc of three inputs, and PyTensor would loop over the elements in Python.
        kind = type(node.op.scalar_op)
        if kind not in (Add, Mul) or len(node.inputs) < 3:
            return None
        result = node.inputs[0]
        for other in node.inputs[1:]:
            result = pt.add(result, other) if kind is Add else pt.mul(result, other)
        return [result]

    mode = Mode(linker="py", optimizer="fast_compile").register(
        (in2out(split_sums_and_products, name="split_sums_and_products"), 99.0)
    )
    # Inner graphs of composite operations are compiled at the first call, with C unless told not.
    with pytensor.config.change_flags(cxx=""), np.errstate(all="ignore"):
        yield lambda graph: pytensor.function(
            graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore"
        )


@contextmanager
def _pytensor_to_jax() -> Iterator[Callable]:
    """Give PyTensor's conversion to JAX without the precision switch that its import flips.

    ``pytensor.link.jax.dispatch`` sets ``jax_enable_x64`` for the whole process. PyMC's JAX
    samplers rely on this, so when this is the first import the switch is set back and the import
    forgotten: they will import it, and flip the switch, for themselves.
    """
    import jax
    import pytensor.link.jax

    package = "pytensor.link.jax.dispatch"
    first_import, enabled = package not in sys.modules, jax.config.read("jax_enable_x64")
    from pytensor.link.jax.dispatch import jax_funcify

    if first_import:
        jax.config.update("jax_enable_x64", enabled)
    try:
        yield jax_funcify
    finally:
        if first_import:
            for name in [name for name in sys.modules if name.startswith(package)]:
                del sys.modules[name]
            del pytensor.link.jax.dispatch


def _cost(function: Callable[[], object]) -> tuple[float, int]:
    """Return the seconds a second call of `function` takes, and its peak memory in bytes."""
    function()
    started = not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    function()
    num_bytes = tracemalloc.get_traced_memory()[1] - held
    if started:
        tracemalloc.stop()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start, num_bytes
