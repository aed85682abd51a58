"""Scores from a compiled CmdStan model, without any other Stan software.

CmdStan evaluates gradients at many unconstrained points (its method ``log_prob``) but has no method
that takes many constrained draws. Its sampler does: a chain per draw, started at that draw, that
takes one step too short to move. The diagnostic file of such a chain holds the unconstrained draw
and the gradient there. One process runs hundreds of chains.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from az_cv.sources.cmdstan_files import num_unconstrained
from az_cv.sources.rounded_draws import restore_rounded
from az_cv.sources.stan_draws import parse_names, repair_draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

CHAINS_PER_PROCESS = 500
# A step of this size is lost to rounding in every coordinate that is not zero itself.
STEP = "1e-300"


class ExecutableError(Exception):
    """The executable evaluates no draw at all; the message says why."""


@dataclass(frozen=True)
class _Program:
    executable: Path
    data_file: Path | None
    seed: int


class Evaluated(NamedTuple):
    """What an executable has to say of draws; NaN where the model fails."""

    unconstrained: Float[np.ndarray, "chain draw d"]
    gradient: Float[np.ndarray, "chain draw d"]
    log_density: Float[np.ndarray, "chain draw"]
    failures: dict[tuple[int, int], str]
    names: list[str]  # of the unconstrained parameters
    restored: Bool[np.ndarray, "chain draw"] | None  # see `rounded_draws`


def evaluate_draws(
    executable: Path,
    draws: Float[np.ndarray, "chain draw p"],
    names: Sequence[str],
    *,
    data_file: Path | None,
    seed: int,
) -> Evaluated:
    """Unconstrain draws and evaluate gradients with a CmdStan executable.

    Parameters
    ----------
    executable : Path
        Compiled by CmdStan 2.28 or later.
    draws : array of shape (chain, draw, p)
        Constrained draws; transformed parameters and generated quantities may be among them.
    names : sequence of str
        Stan's flat names of the last axis.
    data_file : Path or None
    seed : int
        Seed of random transformed data.

    Returns
    -------
    Evaluated

    Raises
    ------
    ExecutableError
        If the executable evaluates none of the first draws, or a parameter is a unit vector.
    """
    program = _Program(executable, data_file, seed)
    flat = draws.reshape(-1, draws.shape[-1])
    try:
        names_found = _unconstrained_names(program, None)
    except ExecutableError:  # some models need better starts than random ones
        names_found = _unconstrained_names(program, _starts(flat[:1], names))
    parameters = {_base(name) for name in names_found}
    missing = parameters - {_base(name) for name in names}
    if missing:
        raise ExecutableError(
            f"{executable} has parameters {sorted(missing)}, which the draws have not. Pass the "
            "executable the draws came from."
        )
    columns = [i for i, name in enumerate(names) if _base(name) in parameters]
    parameter_names = [names[i] for i in columns]
    values, restored = restore_rounded(draws[..., columns], parameter_names)
    values = repair_draws(values, parameter_names, names_found)
    _refuse_unit_vectors(values, parameter_names, names_found)
    flat = values.reshape(-1, len(columns))
    points, gradient, log_density, failures = _evaluate(
        program,
        _starts(flat, parameter_names),
        np.flatnonzero(np.isfinite(flat).all(axis=1)),
        len(names_found),
    )
    by_draw = {divmod(row, draws.shape[1]): message for row, message in failures.items()}
    shape = (*draws.shape[:2], len(names_found))
    return Evaluated(
        points.reshape(shape),
        gradient.reshape(shape),
        log_density.reshape(shape[:2]),
        by_draw,
        names_found,
        restored,
    )


def log_densities(
    executable: Path, points: Float[np.ndarray, "n d"], *, data_file: Path | None, seed: int
) -> Float[np.ndarray, " n"]:
    """Return the log density at unconstrained points, -inf where the model fails.

    Parameters
    ----------
    executable : Path
    points : array of shape (n, d)
    data_file : Path or None
    seed : int
        Seed of random transformed data.
    """
    program = _Program(executable, data_file, seed)
    values = np.full(len(points), -np.inf)

    def evaluate(rows: Int[np.ndarray, " k"]) -> None:
        try:
            values[rows] = _log_prob(program, points[rows])
        except ExecutableError:  # one point that fails ends the process
            if len(rows) > 1:
                for half in np.array_split(rows, 2):
                    evaluate(half)

    evaluate(np.arange(len(points)))
    return values


def _log_prob(program: _Program, points: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
    with tempfile.TemporaryDirectory(prefix="az_cv-") as folder:
        # CmdStan reads the rows of an array column-major.
        rows = points.ravel().reshape(points.shape, order="F")
        (Path(folder) / "points.json").write_text(json.dumps({"params_r": rows.tolist()}))
        command = ["log_prob", "unconstrained_params=points.json"]
        _run(program, Path(folder), command, ["output", "file=density.csv", "sig_figs=18"])
        lines = (Path(folder) / "density.csv").read_text(encoding="utf-8").splitlines()
    found = [line.split(",", 1)[0] for line in lines if line and line[0] != "#"][1:]
    if len(found) != len(points):
        raise ExecutableError(f"{program.executable} evaluated {len(found)} points.")
    return np.array([float(value) for value in found])


def _base(name: str) -> str:
    return name.replace(":", ".").split(".")[0]


def _refuse_unit_vectors(
    values: Float[np.ndarray, "chain draw p"],
    names: Sequence[str],
    unconstrained_names: Sequence[str],
) -> None:
    free = {variable.name: variable.positions.size for variable in parse_names(unconstrained_names)}
    for variable in parse_names(names):
        is_vector = bool(variable.shape) and not variable.is_complex
        if not is_vector or free[variable.name] != variable.positions.size:
            continue
        entries = values[..., variable.positions]
        if variable.shape[-1] > 1 and np.allclose(np.linalg.norm(entries, axis=-1), 1, atol=1e-5):
            raise ExecutableError(
                f"{variable.name!r} is a unit vector, whose draws do not tell the unconstrained "
                "ones. Use BridgeStan, or sample with save_latent_dynamics=True."
            )


def _starts(draws: Float[np.ndarray, "n p"], names: Sequence[str]) -> list[str]:
    """Return each draw as the JSON that starts a chain there."""
    import stanio

    # stanio lays out one draw, whose values are their own positions; the others are filled in.
    variables = stanio.parse_header(",".join(names))
    positions = np.arange(len(names), dtype=float)[None]
    layout = stanio.dump_stan_json(
        {name: variable.extract_reshape(positions)[0] for name, variable in variables.items()}
    )
    order = [int(float(number)) for number in re.findall(r"\b\d+\.0\b", layout)]
    template = re.sub(r"\b\d+\.0\b", "%r", layout)
    return [template % tuple(row) for row in draws[:, order].tolist()]


def _evaluate(
    program: _Program, starts: Sequence[str], finite: Int[np.ndarray, " k"], size: int
) -> tuple[
    Float[np.ndarray, "n d"], Float[np.ndarray, "n d"], Float[np.ndarray, " n"], dict[int, str]
]:
    """Evaluate all draws, in halves where one draw makes the process fail."""
    points, gradient = np.full((2, len(starts), size), np.nan)
    log_density = np.full(len(starts), np.nan)
    failures = dict.fromkeys(set(range(len(starts))) - set(finite.tolist()), "it is not finite.")

    def evaluate(rows: Int[np.ndarray, " k"]) -> None:
        if not rows.size:
            return
        try:
            found = _run_chains(program, [starts[row] for row in rows])
            points[rows], gradient[rows], log_density[rows], _ = found
        except ExecutableError as error:
            if len(rows) == 1:
                failures[int(rows[0])] = str(error)
            else:
                for half in np.array_split(rows, 2):
                    evaluate(half)

    first, rest = np.split(finite, [5])
    evaluate(first)
    if all(row in failures for row in first.tolist()):
        raise ExecutableError(failures[int(first[0])] if first.size else "No draw is finite.")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(evaluate, np.array_split(rest, -(-len(rest) // CHAINS_PER_PROCESS) or 1)))
    return points, gradient, log_density, failures


def _unconstrained_names(program: _Program, starts: Sequence[str] | None) -> list[str]:
    return _run_chains(program, starts)[3]


def _run_chains(
    program: _Program, starts: Sequence[str] | None
) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k d"], Float[np.ndarray, " k"], list[str]]:
    """Run one process with a chain per start, or one chain from a random start."""
    count = 1 if starts is None else len(starts)
    # CmdStan numbers the files of several chains; one chain has no number.
    numbers = [""] if count == 1 else [f"_{i + 1}" for i in range(count)]
    # Thousands of small files: memory is much faster than a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="az_cv-", dir=memory) as folder:
        for number, start in zip(numbers, starts or []):
            with open(f"{folder}/start{number}.json", "wb", buffering=0) as file:
                file.write(start.encode())
        _run_sampler(program, Path(folder), count, ["init=start.json"] if starts else [])
        # Comments, the names of the columns, the first of which is lp__, and one row.
        names, rows = b"", []
        for number in numbers:
            names, row = _first_row(f"{folder}/point{number}.csv", program)
            rows.append(row.split(b","))
    header = names.decode().strip().split(",")
    size = num_unconstrained(header)
    if not size:
        raise ExecutableError("The model has no parameters.")
    first = len(header) - 3 * size
    # Point, momentum and gradient follow each other; the momentum is of no use.
    points, gradient = np.empty((2, count, size))
    log_density = np.empty(count)
    for i, fields in enumerate(rows):
        log_density[i] = float(fields[0])
        points[i] = [float(field) for field in fields[first : first + size]]
        gradient[i] = [float(field) for field in fields[-size:]]
    # The files hold the gradient of the potential, minus the log density.
    return points, -gradient, log_density, header[first : first + size]


def _first_row(path: str, program: _Program) -> tuple[bytes, bytes]:
    """Return the names of the columns, less the first, and the first row of a file."""
    try:
        with open(path, "rb", buffering=0) as file:
            names, row, *_ = file.read().partition(b"\nlp__")[2].split(b"\n", 2)
    except (FileNotFoundError, ValueError) as error:
        raise ExecutableError(
            f"{program.executable} ended without a complaint and wrote nothing: it is no model "
            "compiled by CmdStan 2.28 or later."
        ) from error
    return names, row


def _run_sampler(program: _Program, folder: Path, num_chains: int, start: Sequence[str]) -> None:
    method = [
        *("sample", "num_samples=1", "num_warmup=0", f"num_chains={num_chains}"),
        *("adapt", "engaged=0", "algorithm=hmc", "engine=nuts", "max_depth=1", f"stepsize={STEP}"),
    ]
    output = ["output", "file=draw.csv", "diagnostic_file=point.csv", "sig_figs=18", "refresh=0"]
    _run(program, folder, method, [*start, *output])


def _run(program: _Program, folder: Path, method: Sequence[str], rest: Sequence[str]) -> None:
    data = [] if program.data_file is None else ["data", f"file={program.data_file}"]
    seed = ["random", f"seed={program.seed}"]
    command = [str(program.executable), *method, *data, *seed, *rest]
    # CmdStan writes line by line, and a pipe would wake this process for every one of them.
    log = folder / "log.txt"
    try:
        with log.open("wb") as file:
            result = subprocess.run(
                command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, check=False
            )
    except OSError as error:
        raise ExecutableError(f"{program.executable} does not run: {error}.") from error
    if result.returncode:
        text = log.read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.splitlines() if line.strip()]
        # CmdStan repeats its settings, `name = value`, before it complains.
        complaints = [line.strip() for line in lines if not re.fullmatch(r"\s*\w+( = .*)?", line)]
        raise ExecutableError(" ".join(complaints[-6:])[-600:] or f"status {result.returncode}.")
