"""Which features, folds and sizes of pieces memory, time and draws allow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.streaming.cost import (
    Load,
    Speed,
    expected_seconds,
    measured_speed,
    processors,
)
from az_cv.families import Kernel, Polynomial

if TYPE_CHECKING:
    from az_cv.engine.settings import Settings

# Without `max_time` features may take ten minutes of two cores of this speed, whatever the machine.
ENOUGH, TYPICAL = 600.0, Speed(products=2e10, numbers=5e8)
# Features that n draws can tell: no more than one for so many draws; and without `max_time` as many
# as let the work grow with the square of n.
DRAWS_PER_FEATURE = 16
PER_ROOT = 6.0
DRAWS_PER_SCORE = 2.5
# A fit is made to so many draws for each feature, and to so many at least.
FITTED_PER_FEATURE, FEWEST_FITTED = 40, 100_000
USABLE = 0.6  # share of the memory limit; the rest is Python, libraries and what they need
FOLDS = (2, 5)
HIGHEST_ORDER = 4
# Beyond this dimension draws lie at one distance, and sections of a kernel tell little more than
# polynomials do.
KERNEL_DIMENSION = 200
FEWEST_SECTIONS = 100
# Polynomials of third and fourth order join where a kernel still has so many sections, and this
# part of all features; or where they are few. With 1,500 features in ten dimensions order four with
# 500 sections fitted second moments twice as well as order three with 1,040, and means no worse
# than 0.8 times as well (ridges of 1e-8 and more).
ENOUGH_SECTIONS, PART = 500, 1 / 3
MOST_SECTIONS = 4000
LONG_CHAIN, BATCHES = 10_000, 4000
FEW_BATCHES, FEWEST_BATCHES = 250, 50  # of each chain, where outputs are many
LOADED, IN_WORK = 2**25, 2**25  # bytes of a piece, and of the features of a block
SEGMENTS = 8  # tasks for each fold
TIME = "as many as there is time for"


@dataclass(frozen=True)
class Size:
    """How large a question is.

    Attributes
    ----------
    chains, draws, dimension, outputs : int
    chunk : int
        Draws that lie together where they are stored.
    memory : int
        Bytes.
    together : int
        Outputs that lie together.
    reading : (float, float)
        Seconds that it took to read draws with scores, and outputs, once.
    """

    chains: int
    draws: int
    dimension: int
    outputs: int
    chunk: int
    memory: int
    together: int = 0
    reading: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Plan:
    """What to do, and why.

    Attributes
    ----------
    order : int
        Of polynomials.
    interactions : bool
    kernel : Kernel, optional
        Its sections are placed at some of the draws.
    sections : int
    folds : int or "chain"
    rows, block : int
        Draws that are read, and whose features are made, at a time.
    segments : int
        Tasks.
    workers : int
        Threads, without a client.
    columns : int
        Outputs that are estimated together.
    batch : int
        Draws that are averaged before errors are judged.
    features : int
    fitted : int
        Draws that fits are made to; the others only judge.
    load : Load
    costs : dict of str to float
        Seconds that each part is expected to take on this machine.
    reason : str
        What set the number of features.
    buffer, in_buffer : int
        Draws that minibatches are taken from at a time, and in each of the pieces that they are
        read in; 0 where nothing is trained.
    """

    order: int
    interactions: bool
    kernel: Kernel | None
    sections: int
    folds: int | str
    rows: int
    block: int
    segments: int
    workers: int
    columns: int
    batch: int
    features: int
    fitted: int
    load: Load
    costs: dict[str, float]
    reason: str
    buffer: int = 0
    in_buffer: int = 0

    @property
    def seconds(self) -> float:
        """Seconds that all of it is expected to take."""
        return sum(self.costs.values())

    def describe(self) -> str:
        """Say what was picked and why."""
        at_a_time = f", {self.columns:,} quantities at a time" if self.columns else ""
        judged = f"means of {self.batch} draws" if self.batch > 1 else "single draws"
        if self.buffer:
            return (
                f"training on minibatches of {self.buffer:,} draws at a time{at_a_time}; errors "
                f"from {judged}"
            )
        return (
            f"sums of the products of {self.features:,} features ({self.reason}) over pieces of "
            f"{self.rows:,} draws{at_a_time}; errors from {judged}"
        )

    def describe_cost(self) -> str:
        """Say how long it is expected to take, and what takes most of that."""
        largest = sorted(self.costs.items(), key=lambda pair: -pair[1])[:2]
        parts = ", ".join(f"{name} {seconds:.2g} s" for name, seconds in largest)
        return f"{self.seconds:.2g} s expected ({parts})"


def make_plan(
    size: Size, settings: Settings, max_time: float | None = None, enough: float = ENOUGH
) -> Plan:
    """Choose features, folds and sizes.

    Parameters
    ----------
    size : Size
    settings : Settings
        A family other than ``"auto"`` is taken as it is.
    max_time : float, optional
        Seconds that all of it may take, as far as the cost model can tell.
    enough : float
        Seconds of two typical cores that features may take without `max_time`.
    """
    n = size.chains * size.draws
    speed, workers = measured_speed(), processors()
    limits = {
        "as many as the draws can tell": min(
            n / DRAWS_PER_FEATURE, PER_ROOT * math.sqrt(n) if max_time is None else math.inf
        ),
        "as many as the memory limit allows": math.sqrt(
            0.75 * USABLE * size.memory / 8 / (FOLDS[0] + 3)
        ),
    }

    def plan_of(features: float) -> Plan:
        return _plan(size, settings, {**limits, TIME: features}, speed, workers)

    def is_quick(plan: Plan) -> bool:
        if max_time is not None:
            return plan.seconds <= max_time
        parts = expected_seconds(plan.load, TYPICAL, processors=2)
        return sum(parts[name] for name in ("features", "products", "solving")) <= enough

    many = min(limits.values())
    few = min(many, size.dimension)  # scores are worth their time
    if is_quick(plan_of(many)):
        return plan_of(math.inf)
    while many > 1.02 * few:
        between = math.sqrt(few * many)
        few, many = (between, many) if is_quick(plan_of(between)) else (few, between)
    return plan_of(few)


def _plan(
    size: Size, settings: Settings, limits: dict[str, float], speed: Speed, workers: int
) -> Plan:
    """Fill in everything that follows from how many features there may be."""
    n, d = size.chains * size.draws, size.dimension
    budget = USABLE * size.memory
    reason, most = min(limits.items(), key=lambda pair: pair[1])
    # The scores themselves are worth more than any other feature.
    firsts = min(n / DRAWS_PER_SCORE, *list(limits.values())[1:])
    order, interactions, kernel, sections = _family(settings, d, int(most), int(firsts))
    polynomial = _polynomials(d, order, interactions)
    p = 1 + polynomial + sections
    if not isinstance(settings.family, str):
        reason = "as asked for"
    elif sections == 0 and polynomial < most / 2:
        reason = "polynomials"
    bytes_each = 8 * p**2
    room = int(0.75 * budget / bytes_each) - 3
    folds = folds_of(settings, room)
    number = size.chains if folds == "chain" else int(folds)
    segments = number * int(np.clip((room + 3 - 2) // (2 * number), 1, SEGMENTS))
    columns, batch = columns_and_batch(size, p, number)
    rows = rows_of(size, columns)
    block = int(np.clip(IN_WORK // (8 * (p + 2 * columns)), 64, 4096))
    load = Load(
        draws=n,
        fitted=min(n, max(FITTED_PER_FEATURE * p, FEWEST_FITTED)),
        dimension=d,
        outputs=size.outputs,
        polynomials=polynomial,
        sections=sections,
        folds=number,
        blocks=-(-size.outputs // columns),
        batches=size.chains * (size.draws // batch),
        pieces=size.chains * -(-size.draws // rows),
        again=max(size.chunk / rows, 1.0),
        reading=size.reading,
    )
    return Plan(
        order=order,
        interactions=interactions,
        kernel=kernel,
        sections=sections,
        folds=folds,
        rows=rows,
        block=min(block, rows),
        segments=segments,
        workers=min(workers, segments),
        columns=columns,
        batch=batch,
        features=p - 1,
        fitted=load.fitted,
        load=load,
        costs=expected_seconds(load, speed, workers),
        reason=reason,
    )


def _polynomials(d: int, order: int, interactions: bool) -> int:
    return math.comb(d + order, order) - 1 if interactions else order * d


def _family(
    settings: Settings, d: int, most: int, firsts: int
) -> tuple[int, bool, Kernel | None, int]:
    """Return the order of polynomials, whether they interact, and the kernel and its sections."""
    family = settings.family
    if isinstance(family, Polynomial) and family.coordinates is None:
        return family.order, family.interactions, None, 0
    if isinstance(family, Kernel):
        asked = family.centres if isinstance(family.centres, int) else most
        return 0, True, family, max(1, min(asked, max(most, 1)))
    if family not in ("auto", "polynomial", "kernel"):
        raise TypeError(
            f"Draws beyond the memory limit are fitted by polynomials and kernels, or trained; "
            f"family is {family!r}. Choose 'auto', Polynomial() or Kernel(), pass solver=SGD(...), "
            "or raise memory_limit."
        )
    if family != "kernel" and most < d <= firsts:
        return 1, True, None, 0
    if family == "kernel" or d > most:
        return 0, True, Kernel(), max(min(most, MOST_SECTIONS), 1)
    wants_kernel = family == "auto" and d <= KERNEL_DIMENSION
    order, interactions = 1, True
    for higher in range(2, HIGHEST_ORDER + 1):
        size = _polynomials(d, higher, True)
        leaves_room = most - size >= max(ENOUGH_SECTIONS, PART * most)
        if size <= (most if higher == 2 else most / 4) or (higher > 2 and leaves_room):
            order = higher
    if family == "polynomial":
        order = min(order, 2)
    if order == 1 and 2 * d <= most:
        order, interactions = 2, False
    sections = most - _polynomials(d, order, interactions) if wants_kernel else 0
    if sections < FEWEST_SECTIONS:
        return order, interactions, None, 0
    return order, interactions, Kernel(), min(sections, MOST_SECTIONS)


def folds_of(settings: Settings, room: int) -> int | str:
    """Return the folds that are asked for, or as many as there is room for."""
    choice = settings.folds
    if choice == "chain" or (isinstance(choice, int | np.integer) and choice >= 2):
        return choice if choice == "chain" else int(choice)
    if choice != "auto":
        raise ValueError(
            "Beyond the memory limit folds must be 'auto', 'chain' or a number of blocks; they are "
            f"{choice!r}."
        )
    return int(np.clip(room, *FOLDS))


def columns_and_batch(size: Size, p: int, folds: int) -> tuple[int, int]:
    """Return how many outputs are estimated together, and draws averaged before errors are judged.

    One output has `p` coefficients in each fold.
    """
    room = 0.25 * USABLE * size.memory
    batch = 1 if size.draws <= LONG_CHAIN else -(-size.draws // BATCHES)
    columns = columns_of(size, p, folds, batch, room)
    if columns < size.outputs:  # every block of outputs reads them again
        # The averages of all outputs are returned, and must fit beside the work.
        kept = max(int(room / 8 / size.chains / size.outputs), FEWEST_BATCHES)
        batch = max(batch, size.draws // min(FEW_BATCHES, kept))
        columns = columns_of(size, p, folds, batch, room)
        if 0 < size.together <= columns:
            columns -= columns % size.together
    return min(columns, size.outputs), batch


def columns_of(size: Size, p: int, folds: int, batch: int, room: float) -> int:
    """Return how many outputs fit, each with its square."""
    coefficients = 2 * p * (folds * 6 + 4)
    series = 4 * 3 * size.chains * (size.draws // batch)
    return max(1, min(size.outputs, int(room / 8 / (coefficients + series))))


def rows_of(size: Size, columns: int) -> int:
    """Return how many draws are read at a time: whole chunks, where they are not too large."""
    most = max(LOADED // (8 * (2 * size.dimension + 5 * columns)), 64)
    if size.chunk > most:  # equal parts of one: no piece needs two
        return min(-(-size.chunk // -(-size.chunk // most)), size.draws)
    return min(most - most % size.chunk if size.chunk else most, size.draws)
