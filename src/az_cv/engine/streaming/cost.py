"""The cost model: seconds that a stream will take on this machine, part by part."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from az_cv.engine.streaming.graph import current_client
from az_cv.engine.streaming.kernels import RIDGES as SEARCHED
from az_cv.engine.streaming.kernels import TRAINED
from az_cv.engine.streaming.solve import RIDGES
from az_cv.engine.streaming.whitening import LARGE
from az_cv.lapack import row_products

# Passes of an array through the processor, counted in the code of each part.
PER_SECTION = 25  # of the kernel between draws and sections
PER_POLYNOMIAL = 4
PER_FUNCTION = 16  # standardised, squared, subtracted from, compared, averaged
PER_RESIDUAL = 400  # effective sizes take Fourier transforms, twice
PER_COORDINATE = 10
SECONDS_PER_OUTPUT = 1e-3  # weights, errors and labels of one output
SECONDS_PER_PIECE = 4e-3  # dask's graph of one piece, in each pass
SECONDS_AT_LEAST = 0.5
VARIANTS = 8  # length scales that are tried
STRENGTHS = 4  # ridges that are trained together
TRAINED_SHARE = 0.3  # of the speed of BLAS, that steps of training reach
SECONDS_PER_STEP = 2e-4
SECONDS_TO_COMPILE = 2.0


@dataclass(frozen=True)
class Speed:
    """What one processor does in a second.

    Attributes
    ----------
    products : float
        Products of features that are summed.
    numbers : float
        Numbers that are read, changed and written.
    """

    products: float
    numbers: float


@dataclass(frozen=True)
class Load:
    """What is to be done.

    Attributes
    ----------
    draws, fitted, dimension, outputs : int
        Fits are made to some of the draws.
    polynomials, sections : int
        Features of either kind.
    folds : int
    blocks : int
        Of outputs: each of them makes the features again, twice.
    batches : int
        Averages over draws behind the errors of one output, in all chains.
    pieces : int
    again : float
        How often a chunk is read in one pass: pieces may be smaller.
    reading : (float, float)
        Seconds that it took to read draws with scores, and outputs, once.
    """

    draws: int
    fitted: int
    dimension: int
    outputs: int
    polynomials: int
    sections: int
    folds: int
    blocks: int
    batches: int
    pieces: int
    again: float = 1.0
    reading: tuple[float, float] = (0.0, 0.0)


def expected_seconds(load: Load, speed: Speed, processors: int) -> dict[str, float]:
    """Return the seconds of each part of a stream.

    Products are counted as multiplications with an addition, of which a symmetric matrix needs
    half.

    Examples
    --------
    >>> load = Load(10**6, 10**6, 10, 10, 65, 2000, 5, 1, 16_000, 400)
    >>> parts = expected_seconds(load, Speed(products=2e10, numbers=1e9), 2)
    >>> list(parts)
    ['reading', 'features', 'products', 'solving', 'errors']
    >>> max(parts, key=parts.get)
    'features'
    """
    n, d, q, m = load.draws, load.dimension, load.outputs, load.sections
    looked_at = load.blocks * (n + load.fitted)
    p = 1 + load.polynomials + m
    passes = 2 * load.blocks
    whitening = 2 * d**2 if d <= LARGE else 0
    scores, outputs = load.reading
    reading = scores * (2 + (1 + passes) * load.again) + outputs * (3 + 2 * load.again)
    reading += SECONDS_PER_PIECE * load.pieces * (1 + passes) / processors
    # Sections are made orthonormal by a triangular solve: as many products as their sums take.
    features = (load.blocks * load.fitted * m**2 + looked_at * 8 * m * d) / speed.products
    features += n * (2 * passes + 4) * whitening / speed.products
    numbers = looked_at * (PER_SECTION * m + PER_POLYNOMIAL * load.polynomials)
    numbers += n * (1 + passes) * PER_COORDINATE * d
    features += numbers / speed.numbers
    products = (load.fitted * (p**2 + 4 * p * q) + n * 4 * p * q) / speed.products
    products += n * 2 * q * PER_FUNCTION / speed.numbers
    # With a kernel there is a fit without the outermost draws, too.
    fits = (load.folds + (m > 0)) * len(RIDGES)
    solving = fits * (p**3 / 3 + 20 * p**2 * q) / speed.products + 8 * fits * p**2 / speed.numbers
    errors = 2 * q * load.batches * PER_RESIDUAL / speed.numbers + SECONDS_PER_OUTPUT * q
    seconds = {
        "reading": reading,
        "features": features / processors + (_search_seconds(d, speed) if m else 0.0),
        "products": products / processors,
        "solving": solving / processors,
        "errors": errors,
    }
    return {**seconds, "errors": seconds["errors"] + SECONDS_AT_LEAST}


@dataclass(frozen=True)
class Schooling:
    """What is to be trained.

    Attributes
    ----------
    hidden : int
        Features of which each output is a sum.
    is_network : bool
        Whether these are trained, or rotated.
    outputs : int
        That are trained together.
    batch_size : int
    epochs : float
    trainings : int
        Of one block of outputs.
    is_whole : bool
        Whether a buffer holds all draws of a training.
    """

    hidden: int
    is_network: bool
    outputs: int
    batch_size: int
    epochs: float
    trainings: int
    is_whole: bool


def training_seconds(
    load: Load, schooling: Schooling, speed: Speed, processors: int
) -> dict[str, float]:
    """Return the seconds of each part of a stream that is trained by stochastic gradients.

    Examples
    --------
    >>> load = Load(10**6, 10**6, 10, 10, 0, 0, 2, 1, 16_000, 400)
    >>> school = Schooling(512, True, 20, 500, 2.0, 3, False)
    >>> parts = training_seconds(load, school, Speed(products=2e10, numbers=1e9), 2)
    >>> max(parts, key=parts.get)
    'training'
    """
    n, d, q = load.draws, load.dimension, load.outputs
    trained = n * (1 - 1 / load.folds) * schooling.epochs * schooling.trainings * load.blocks
    passes = 1 + load.blocks * (1 if schooling.is_whole else schooling.epochs * schooling.trainings)
    scores, outputs = load.reading
    reading = (scores * (passes + 1) + outputs * passes) * load.again
    reading += SECONDS_PER_PIECE * load.pieces * passes
    h, k = schooling.hidden, schooling.outputs
    # Forwards and backwards; networks twice, for values and for derivatives.
    products = 3 * h * k * (1 if schooling.is_network else STRENGTHS)
    products += 6 * h * d if schooling.is_network else h**2 + h * d
    steps = trained / schooling.batch_size
    training = trained * products / (TRAINED_SHARE * speed.products) + SECONDS_PER_STEP * steps
    errors = 2 * q * load.batches * PER_RESIDUAL / speed.numbers + SECONDS_PER_OUTPUT * q
    return {
        "reading": reading,
        "features": n * 10 * d**2 / speed.products / processors,
        "training": training + SECONDS_TO_COMPILE * load.folds * load.blocks,
        "errors": errors + SECONDS_AT_LEAST,
    }


def _search_seconds(d: int, speed: Speed) -> float:
    """Return what the choice of a length scale takes."""
    matrices = 2 * TRAINED**2 * (8 * d / speed.products + PER_SECTION / speed.numbers)
    systems = len(SEARCHED) * (TRAINED**3 / 3 / speed.products + 4 * TRAINED**2 / speed.numbers)
    return VARIANTS * (matrices + systems)


def measured_speed(size: int = 400, repeats: int = 3) -> Speed:
    """Measure this machine, one processor of it, in a fraction of a second."""
    rng = np.random.default_rng(0)
    features, gram = rng.normal(size=(size, 2048)), np.zeros((size, size), order="F")
    products = numbers = math.inf
    with threadpool_limits(limits=1):
        for _ in range(repeats):
            started = time.perf_counter()
            row_products(features, gram)
            between = time.perf_counter()
            features *= 1.0
            products = min(products, between - started)
            numbers = min(numbers, time.perf_counter() - between)
    return Speed(features.shape[1] * size**2 / products, features.size / numbers)


def processors() -> int:
    """Return how many processors do the work: those of dask's client, or of this process."""
    client = current_client()
    if client is not None:
        return max(sum(client.nthreads().values()), 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
