"""What is trained on draws beyond memory, and how many of them are in memory at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.choices import resolve_family, resolve_solver, solver_for
from az_cv.engine.streaming.cost import (
    Load,
    Schooling,
    measured_speed,
    processors,
    training_seconds,
)
from az_cv.engine.streaming.plan import (
    FOLDS,
    SEGMENTS,
    Plan,
    Size,
    columns_and_batch,
    folds_of,
    rows_of,
)
from az_cv.families.neural import NeuralNetwork, TrainedFamily
from az_cv.solvers import SGD, Exact

if TYPE_CHECKING:
    from az_cv.engine.settings import Settings
    from az_cv.families.base import LinearFamily

    Trainable = LinearFamily | TrainedFamily

BUFFERED = 0.2  # share of the memory; while it is filled there are two of it
PIECES = 16  # of which a buffer is made at least, so that it is like all draws
HIDDEN = 512  # units that a family of the user's own is thought to have


def training_of(settings: Settings) -> tuple[SGD, Trainable] | None:
    """Return what is to be trained and how, ``None`` where an exact solver does the work.

    ``"auto"`` stands for a network where training is asked for.

    Raises
    ------
    TypeError
        If the solver is one that holds all draws, or cannot train the family.

    Examples
    --------
    >>> from az_cv.engine.settings import Settings
    >>> training_of(Settings(family="network"))[1].widths
    (512,)
    >>> training_of(Settings()) is None
    True
    """
    chosen = resolve_solver(settings.solver)
    if not isinstance(chosen, Exact | SGD):
        raise TypeError(
            f"Draws beyond the memory limit are fitted by Exact() and SGD(); solver is {chosen!r}. "
            "Choose one of them, or raise memory_limit."
        )
    if settings.family == "auto" and not isinstance(chosen, SGD):
        return None
    nothing = np.empty((0, 1))
    name = "network" if settings.family == "auto" else settings.family
    (family,) = resolve_family(name, nothing, nothing)
    solver = solver_for(family, settings, is_auto=False)
    if not isinstance(solver, SGD):
        return None
    solver.require(family)
    return solver, family


def plan_training(size: Size, settings: Settings, solver: SGD, family: Trainable) -> Plan:
    """Choose folds and sizes.

    Parameters
    ----------
    size : Size
    settings : Settings
    solver : SGD
    family : LinearFamily or TrainedFamily
    """
    n, d = size.chains * size.draws, size.dimension
    speed, workers = measured_speed(), processors()
    folds = folds_of(settings, FOLDS[0])
    number = size.chains if folds == "chain" else int(folds)
    hidden = _hidden(solver, family, n, d)
    is_network = isinstance(family, TrainedFamily)
    columns, batch = columns_and_batch(size, hidden + d, number)
    rows = rows_of(size, columns)
    numbers = (4 if is_network else 8) * (2 * d + 2 * columns)
    buffer = max(min(int(BUFFERED * size.memory / numbers), n), 64)
    # A chunk is read whole, however little of it is wanted.
    in_buffer = max(buffer // PIECES, min(size.chunk, buffer // 4), 1)
    how = solver.plan(family, max(n - n // number, 1), size.draws, 2 * columns)
    blocks = -(-size.outputs // columns)
    load = Load(
        draws=n,
        fitted=n,
        dimension=d,
        outputs=size.outputs,
        polynomials=0,
        sections=0,
        folds=number,
        blocks=blocks,
        batches=size.chains * (size.draws // batch),
        pieces=size.chains * -(-size.draws // min(rows, in_buffer)),
        again=max(size.chunk / rows, 1.0),
        reading=size.reading,
    )
    copies = family.networks if isinstance(family, NeuralNetwork) else 1
    decays = len(solver.weight_decays(is_network))
    schooling = Schooling(
        hidden=hidden,
        is_network=is_network,
        outputs=2 * columns,
        batch_size=how.batch_size,
        epochs=how.num_epochs,
        trainings=number * copies + decays - 1,
        is_whole=buffer >= n - n // number,
    )
    return Plan(
        order=0,
        interactions=True,
        kernel=None,
        sections=0,
        folds=folds,
        rows=rows,
        block=min(rows, 4096),
        segments=number * SEGMENTS,
        workers=min(workers, number * SEGMENTS),
        columns=columns,
        batch=batch,
        features=hidden,
        fitted=n,
        load=load,
        costs=training_seconds(load, schooling, speed, workers),
        reason="as asked for",
        buffer=buffer,
        in_buffer=min(in_buffer, rows),
    )


def _hidden(solver: SGD, family: Trainable, n: int, d: int) -> int:
    """Return how many features each output is a sum of."""
    if isinstance(family, NeuralNetwork):
        return max(family.widths)
    if isinstance(family, TrainedFamily):
        return HIDDEN
    return family.num_features(d) or min(solver.num_centres, n)
