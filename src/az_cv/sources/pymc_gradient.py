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
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from az_cv.sources.batches import (
    CHUNK_BYTES,
    MAX_CHUNK,
    Compiled,
    jax_compile,
    jax_float64,
    map_chunks,
)
from az_cv.sources.pymc_graph import Graph, batched_graph, gradient_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Arrays = Sequence[np.ndarray]

logger = logging.getLogger(__name__)

# A compiled loop takes from 10 s to minutes to compile, then a fraction of a millisecond per draw.
PATIENCE_SECONDS = 30.0
# JAX takes longer than this to be loaded and to compile the smallest model.
HURRY_SECONDS = 1.0

# With XLA's default optimisation, derivatives of Matern covariances, in which large terms cancel,
# came out wrong by a factor of 60 on an ARM processor; without it they are right. The cause was not
# traced. Multiplications fused into additions, which make two copies of one value differ in the
# last bit, would explain it. Compilation is faster this way, too.
REPRODUCIBLE_ARITHMETIC = {"xla_backend_optimization_level": "0"}


class Gradients(NamedTuple):
    """Log density and derivatives at every draw, and how they were obtained."""

    log_density: np.ndarray
    arrays: list[np.ndarray]
    evaluate: Callable[[Arrays], np.ndarray]  # the log density elsewhere
    backend: str
    compile_seconds: float
    evaluate_seconds: float


def model_gradients(
    log_density: Graph, values: Arrays, *, argnums: Sequence[int], progressbar: bool = False
) -> Gradients:
    """Differentiate the log density of a model at many draws by the first way that works.

    Parameters
    ----------
    log_density : Graph
        From :func:`az_cv.sources.pymc_graph.log_density_graph`.
    values : sequence of array of shape (n, ...)
        The inputs of `log_density` at every draw.
    argnums : sequence of int
        Positions of the inputs to differentiate; the others are held fixed.
    progressbar : bool, default False

    Returns
    -------
    Gradients
        ``log_density`` has shape (n,), and ``arrays`` one array of shape (n, ...) per entry of
        `argnums`; ``evaluate`` takes inputs as `values`, at any points; ``backend`` is
        ``"jax"``, ``"vectorised"`` or ``"loop"``; ``compile_seconds`` include what was tried in
        vain.
    """
    start = time.perf_counter()
    gradient = gradient_graph(log_density, argnums)
    graph = Graph(gradient.inputs, [*log_density.outputs, *gradient.outputs])
    compiled, backend = first_that_compiles(graph, values)
    ready = time.perf_counter()
    densities, *arrays = map_chunks(
        compiled.function, values, chunk_size=compiled.chunk_size, progressbar=progressbar
    )
    done = time.perf_counter()
    return Gradients(
        densities,
        arrays,
        lambda points: compiled.at(points)[0],
        backend,
        ready - start,
        done - ready,
    )


def first_that_compiles(
    graph: Graph, values: Arrays, *, points: int | None = None
) -> tuple[Compiled, str]:
    """Compile a graph by the first way that works on these values; return it and its name.

    Parameters
    ----------
    graph : Graph
    values : sequence of array of shape (n, ...)
    points : int, optional
        How many points will be asked for in all. Where NumPy is done with them before JAX is
        loaded and has compiled, JAX is left alone.
    """
    ways: list[tuple[str, Callable[[Graph, Arrays], Compiled | None]]] = [
        ("jax", with_jax),
        ("vectorised", vectorised),
        ("loop", compiled_loop),
    ]
    if points is not None:
        share = len(values[0]) / points
        # Simplifying the graph of a small model takes longer than a few hundred points do.
        for is_simplified in (True, False):
            hurry = partial(vectorised, patience=HURRY_SECONDS * share, is_simplified=is_simplified)
            ways.insert(0, ("vectorised", hurry))
    reasons: list[str] = []
    for backend, prepare in ways:
        try:
            compiled = prepare(graph, values)
        except _unsupported() as err:
            if backend == "loop":
                for reason in reasons:
                    err.add_note(reason)
                raise
            reasons.append(f"Before that, {backend} evaluation failed: {type(err).__name__}: {err}")
            logger.info(reasons[-1])
            continue
        if compiled is not None:
            return compiled, backend
    raise RuntimeError("The compiled loop gave no function.")


def _unsupported() -> tuple[type[Exception], ...]:
    """Return what JAX and PyTensor raise for an operation they cannot convert or batch."""
    from jax.errors import JaxRuntimeError
    from pytensor.graph.utils import MethodNotDefined

    return (
        NotImplementedError,
        TypeError,
        ValueError,
        IndexError,
        MethodNotDefined,
        JaxRuntimeError,
    )


def with_jax(graph: Graph, values: Arrays) -> Compiled:
    """Prepare PyTensor's derivatives for JAX, batched and compiled by XLA.

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

    shared = [v for v in graph_inputs(graph.outputs) if isinstance(v, SharedVariable)]
    constants = {v: v.type.constant_type(v.type, v.get_value()) for v in shared}
    fgraph = FunctionGraph(graph.inputs, clone_replace(graph.outputs, constants), clone=True)
    # Constants take their precision from the moment of conversion.
    with _pytensor_to_jax() as jax_funcify, jax_float64(), warnings.catch_warnings():
        # Assertions inside of composite operations are skipped, as those outside of them.
        warnings.filterwarnings("ignore", message="Skipping", category=UserWarning)
        get_mode("JAX").optimizer.rewrite(fgraph)
        return jax_compile(jax_funcify(fgraph), values, compiler_options=REPRODUCIBLE_ARITHMETIC)


def vectorised(
    graph: Graph,
    values: Arrays,
    *,
    patience: float = PATIENCE_SECONDS,
    is_simplified: bool = True,
) -> Compiled | None:
    """Prepare a batched graph that Python runs, which compiles in about a second.

    Parameters
    ----------
    graph : Graph
    values : sequence of array of shape (n, ...)
    patience : float
    is_simplified : bool
        Whether PyTensor simplifies the graph, which is most of that second.

    Returns
    -------
    Compiled or None
        None if a probe projects more than `patience` seconds, or overflows unsimplified.
    """
    with python_functions(is_simplified=is_simplified) as compile_graph:
        function = compile_graph(batched_graph(graph))
        probe = [array[: min(8, len(array))] for array in values]
        num_probe, num_draws = len(probe[0]), len(values[0])
        if not is_simplified and not all(np.isfinite(part).all() for part in function(*probe)):
            return None  # what PyTensor simplifies cannot overflow
        seconds, num_bytes = _cost(lambda: function(*probe))
        if seconds * num_draws / num_probe > patience:
            # Calls have a fixed cost, so few draws overstate it: ask again with more of them.
            probe = [array[: min(100, num_draws)] for array in values]
            num_probe = len(probe[0])
            if seconds < patience:
                seconds, num_bytes = _cost(lambda: function(*probe))
            if seconds * num_draws / num_probe > patience:
                return None

    def evaluate(*chunk: np.ndarray) -> list[np.ndarray]:
        with python_settings():
            return function(*chunk)

    chunk_size = max(1, min(MAX_CHUNK, int(CHUNK_BYTES * num_probe / max(num_bytes, 1))))
    return Compiled(evaluate, chunk_size, is_flexible=True)


def compiled_loop(graph: Graph, values: Arrays) -> Compiled:
    """Prepare to differentiate draw by draw with PyTensor's default compiler."""
    import pytensor

    function = pytensor.function(
        graph.inputs, graph.outputs, on_unused_input="ignore", trust_input=True
    )

    def evaluate(*chunk: np.ndarray) -> list[np.ndarray]:
        # Indexing gives NumPy scalars, which compiled functions that trust their input mishandle.
        rows = [function(*map(np.asarray, row)) for row in zip(*chunk)]
        return [np.stack(column) for column in zip(*rows)]

    return Compiled(evaluate, min(100, len(values[0])), is_flexible=True)


@contextmanager
def python_functions(
    *, is_simplified: bool = True
) -> Iterator[Callable[[Graph], Callable[..., list[np.ndarray]]]]:
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

    mode = Mode(linker="py", optimizer="fast_compile" if is_simplified else "merge").register(
        (in2out(split_sums_and_products, name="split_sums_and_products"), 99.0)
    )
    with python_settings():
        yield lambda graph: pytensor.function(
            graph.inputs, graph.outputs, mode=mode, on_unused_input="ignore"
        )


@contextmanager
def python_settings() -> Iterator[None]:
    """Set what functions from :func:`python_functions` need when they are called."""
    import pytensor

    # Inner graphs of composite operations are compiled at the first call, with C unless told not.
    with pytensor.config.change_flags(cxx=""), np.errstate(all="ignore"):
        yield


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
    """Return the processor seconds and the peak memory, in bytes, of a call of `function`."""
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
    start = time.thread_time()  # other work on the machine does not change it much
    function()
    return time.thread_time() - start, num_bytes
