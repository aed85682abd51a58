"""What the experiments share: estimators, the paper's tuning, and tables of errors.

An experiment is a list of cases. Each repetition of a case gives draws, scores, integrands and, for
every integrand, its true expectation; each method turns the first three into estimates.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from az_cv import SGD, Ensemble, Exact, Kernel, NeuralNetwork, Polynomial
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.engine.whitening import fit_whitening
from az_cv.families.kernel import median_length_scale
from az_cv.solvers.base import Task
from az_cv.solvers.folds import Folds, make_folds

RESULTS = Path(__file__).parent / "results"
ALPHA_1 = (1e6, 1e5, 1e4, 1e3, 1e2, 1e1, 1.0, 1e-1, 1e-2)  # the paper's grid
ALPHA_2_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)  # times the median heuristic
RIDGES = (1e-12, 1e-8, 1e-4)
WHOLE = 10**6  # draws in one linear system: the paper splits none
TUNING_DRAWS = 1000


class Sample(NamedTuple):
    """One repetition: draws and scores (chain, draw, d), integrands (chain, draw, q), truth (q)."""

    x: np.ndarray
    s: np.ndarray
    f: np.ndarray
    truth: np.ndarray


Method = Callable[[Sample], np.ndarray]


@dataclass(frozen=True)
class Row:
    """One line of a table of results.

    Attributes
    ----------
    experiment, case, method : str
    mae : float
        Mean absolute error over repetitions; the median of it when a case has many integrands.
    error : float
        Its standard error.
    seconds : float
        Median over repetitions.
    choice : float
        Seconds it took, once, to choose hyper-parameters by cross-validation.
    repetitions : int
    machine : str
        What it ran on, and how many repetitions at a time.
    """

    experiment: str
    case: str
    method: str
    mae: float
    error: float
    seconds: float
    choice: float
    repetitions: int
    machine: str


def compare(
    experiment: str,
    samples: Sequence[Sample],
    methods: dict[str, Method],
    cases: Sequence[str],
    options: argparse.Namespace,
) -> list[Row]:
    """Run every method on every repetition.

    Parameters
    ----------
    experiment : str
    samples : sequence of Sample
        The repetitions.
    methods : dict of name to method
    cases : sequence of str
        One per integrand; integrands with the same name are one case.
    options : Namespace
        ``jobs``: repetitions to run at a time, each in a process of its own. ``methods``: names of
        the methods to run, all when there are none.
    """
    jobs = options.jobs
    methods = {k: v for k, v in methods.items() if not options.methods or k in options.methods}
    if not methods:
        return []
    if jobs == 1:
        measured = [measure(methods, sample) for sample in samples]
    else:
        with ProcessPoolExecutor(jobs, get_context("spawn"), keep_compiled) as pool:
            measured = list(pool.map(partial(measure, methods), samples))
    errors = np.stack([errors for errors, _ in measured], axis=1)  # (method, repetition, integrand)
    seconds = np.median([seconds for _, seconds in measured], axis=0)
    rows = []
    for name, absolute, time_taken in zip(methods, errors, seconds):
        for case in dict.fromkeys(cases):
            each = absolute[:, [label == case for label in cases]]
            spread = each.std(axis=0) / max(len(each) - 1, 1) ** 0.5
            rows.append(
                Row(
                    experiment,
                    case,
                    name,
                    float(np.median(each.mean(axis=0))),
                    float(np.median(spread)),
                    float(time_taken),
                    getattr(methods[name], "choice", 0.0),
                    len(each),
                    machine(jobs),
                )
            )
            show(rows[-1])
    return rows


def machine(jobs: int) -> str:
    """Return the device that trains, and how many repetitions share it."""
    import jax

    kind = jax.devices()[0].device_kind
    return kind.upper() if jobs == 1 else f"{kind.upper()}, {jobs} repetitions at a time"


def measure(methods: dict[str, Method], sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Return absolute errors (method, integrand) and seconds (method) of one repetition."""
    errors, seconds = [], []
    for method in methods.values():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no gain, divergence: the errors tell
            estimate = method(sample)
        seconds.append(time.perf_counter() - start)
        errors.append(np.abs(estimate - sample.truth))
    return np.array(errors), np.array(seconds)


def show(row: Row) -> None:
    print(
        f"{row.case:34s}{row.method:34s}{row.mae:10.2e} +- {row.error:7.1e}{row.seconds:9.2f} s",
        flush=True,
    )


def plain(sample: Sample) -> np.ndarray:
    """Average over all draws."""
    return sample.f.mean(axis=(0, 1))


def default(sample: Sample) -> np.ndarray:
    """Answer with the package's defaults, all hyper-parameters chosen for the integrands."""
    settings = Settings(solver=Exact(tune_for="functions"), random_seed=0)
    return Engine(sample.x, sample.s, settings).estimate(sample.f).mean


def in_sample(sample: Sample) -> np.ndarray:
    """Answer with the defaults, but by the constants of fits to all draws, as the paper does."""
    settings = Settings(solver=Exact(tune_for="functions"), folds=None, random_seed=0)
    return Engine(sample.x, sample.s, settings).estimate(sample.f).mean


@dataclass(frozen=True)
class Alone:
    """The method that is one family and solver, without stacking and without guard.

    Attributes
    ----------
    family : family
    solver : Exact or SGD
    folds : float, optional
        Fraction of the draws to train on, all of them by default.
    choice : float
        Seconds that were spent on hyper-parameters.
    """

    family: Polynomial | Kernel | Ensemble | NeuralNetwork
    solver: Exact | SGD
    folds: float | None
    choice: float = 0.0

    def __call__(self, sample: Sample) -> np.ndarray:
        """Estimate the expectations."""
        standard, centre, scale = standardise(sample)
        parts = make_folds(self.folds, standard.x)
        if self.folds is None and isinstance(self.solver, SGD):
            parts = replace(parts, blocks=())  # one training, and no error to judge
        shape = sample.x.shape[:2]
        x, s, f = (a.reshape(-1, a.shape[2]) for a in standard[:3])
        task = Task(x, s, shape, parts, random_seed=0)
        members = self.solver.prepare(self.family, task).fit(f).members
        return centre + scale * members[0].estimate if members else plain(sample)


def standardise(sample: Sample) -> tuple[Sample, np.ndarray, np.ndarray]:
    """Return whitened draws and scores, integrands of unit variance, and their centre and scale."""
    d = sample.x.shape[2]
    whitening = fit_whitening(sample.x.reshape(-1, d))
    x = whitening.draws(sample.x.reshape(-1, d)).reshape(*sample.x.shape[:2], -1)
    s = whitening.scores(sample.s.reshape(-1, d)).reshape(x.shape)
    centre, scale = sample.f.mean(axis=(0, 1)), sample.f.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    return Sample(x, s, (sample.f - centre) / scale, sample.truth), centre, scale


class Tuned(NamedTuple):
    """A kernel and a ridge, and the seconds it took to choose them."""

    kernel: Kernel
    ridge: float
    seconds: float


def tuned_kernel(sample: Sample, folds: float | None = None) -> Tuned:
    """Choose alpha_1, alpha_2 and the ridge of the paper's kernel by 5-fold cross-validation.

    Parameters
    ----------
    sample : Sample
        Standardised.
    folds : float, optional
        Only this part of each chain is seen.
    """
    draws = sample.x.shape[1] if folds is None else round(folds * sample.x.shape[1])
    x, s, f = (a[:, :draws].reshape(-1, a.shape[2]) for a in sample[:3])
    x, s, f = (a[:: -(-len(x) // TUNING_DRAWS)] for a in (x, s, f))
    blocks = Folds(tuple(np.arange(k, len(x), 5) for k in range(5)), 0, False, "every fifth")
    typical = median_length_scale(x)
    start, best, chosen = time.perf_counter(), np.inf, None
    for alpha_1 in ALPHA_1:
        for factor in ALPHA_2_FACTORS:
            kernel = Kernel("paper", length_scale=factor * typical, alpha_1=alpha_1)
            for ridge in RIDGES:
                task = Task(x, s, (1, len(x)), blocks)
                ((_, fit),) = Exact(ridge=ridge).prepare(kernel, task).systems.fit(f)
                error = np.log((fit.residual**2).mean(axis=0) + 1e-300).mean()
                if error < best:
                    best, chosen = error, (kernel, ridge)
    assert chosen is not None
    return Tuned(*chosen, time.perf_counter() - start)


def paper_methods(
    tuned: Tuned,
    folds: float | None,
    *,
    network: NeuralNetwork | None = None,
    kernel_epochs: float = 25,
    num_centres: int = 500,
    objective: str = "least_squares",
) -> dict[str, Method]:
    """Return the paper's methods with its own settings: b = 8, beta / (gamma + t), 25 epochs.

    Parameters
    ----------
    tuned : Tuned
        From :func:`tuned_kernel`.
    folds : fraction of the draws to train on, or None for all of them
    network : NeuralNetwork, optional
    kernel_epochs : float
    num_centres : int
        Draws that carry kernel sections; the paper takes every training draw.
    objective : {"least_squares", "variance"}
    """
    kernel, ridge, choice = tuned
    sgd = replace(SGD.paper(objective), strength=ridge, num_centres=num_centres)
    quadratic = Polynomial(2)
    second = replace(kernel, length_scale=2**0.5 * float(kernel.length_scale))
    methods = {
        "polynomial, linear system": Alone(quadratic, Exact(ridge=1e-10, max_draws=WHOLE), folds),
        "polynomial, SGD": Alone(quadratic, sgd, folds),
        "kernel, linear system": Alone(kernel, Exact(ridge=ridge, max_draws=WHOLE), folds, choice),
        "kernel, SGD": Alone(kernel, replace(sgd, num_epochs=kernel_epochs), folds, choice),
        "kernel + polynomial, SGD": Alone(Ensemble([kernel, quadratic]), sgd, folds, choice),
        "two kernels + polynomial, SGD": Alone(
            Ensemble([kernel, second, quadratic]), sgd, folds, choice
        ),
    }
    if network is not None:
        trained = replace(sgd, regularizer="control_variate", learning_rate=1e-2)
        methods["network, SGD"] = Alone(network, trained, folds)
    return methods


def arguments(description: str, argv: Sequence[str] | None, repetitions: int = 20):
    """Return the options of an experiment, and keep what JAX compiles between repetitions."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="two small repetitions of each case")
    parser.add_argument("--repetitions", type=int, default=repetitions)
    parser.add_argument("--jobs", type=int, default=1, help="repetitions to run at a time")
    parser.add_argument("--methods", nargs="+", help="run these alone, and keep older numbers")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    if options.quick:
        options.repetitions = 2
    keep_compiled()
    return options


def keep_compiled() -> None:
    """Keep what JAX compiles, between repetitions and between processes."""
    import jax

    cache = Path(tempfile.gettempdir()) / "az_cv_compiled"
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def write(rows: Sequence[Row], name: str, folder: Path) -> Path:
    """Write the rows as CSV, in the place of older ones of the same method; return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.csv"
    merged = {(row.experiment, row.case, row.method): row for row in read(path)}
    merged |= {(row.experiment, row.case, row.method): row for row in rows}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row.__dataclass_fields__)
        for row in merged.values():
            errors = (f"{row.mae:.3g}", f"{row.error:.2g}")
            times = (f"{row.seconds:.3g}", f"{row.choice:.3g}")
            names = (row.experiment, row.case, row.method)
            writer.writerow([*names, *errors, *times, row.repetitions, row.machine])
    return path


def read(path: Path) -> list[Row]:
    """Return the rows of a table, none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Row(
                **{
                    **line,
                    **{key: float(line[key]) for key in ("mae", "error", "seconds", "choice")},
                    "repetitions": int(line["repetitions"]),
                }
            )
            for line in csv.DictReader(file)
        ]
