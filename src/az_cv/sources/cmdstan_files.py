"""What a CmdStan run leaves on disk: CSV files, diagnostic files, executable and data."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    import cmdstanpy


class RouteUnavailableError(Exception):
    """Says what a route lacks; the next one is tried."""


def read_cmdstan_csv(files: Sequence[str | PathLike[str]]) -> cmdstanpy.CmdStanMCMC:
    """Read the draws CmdStan wrote to CSV files.

    Parameters
    ----------
    files : sequence of paths
        One per chain. Diagnostic files among them are skipped, so that a pattern like
        ``output*.csv`` may match both.

    Returns
    -------
    cmdstanpy.CmdStanMCMC

    Raises
    ------
    ValueError
        If there are no draws of a sampler in `files`, or CmdStanPy cannot read them.
    """
    try:
        import cmdstanpy
    except ImportError as error:
        raise ImportError("CmdStan files need CmdStanPy: pip install 'az-cv[stan]'") from error
    draws = draw_files(files)
    with tempfile.TemporaryDirectory(prefix="az_cv-") as folder:
        # CmdStanPy takes `.csv` for the only spelling; a link has it.
        links = [os.path.join(folder, f"draws_{i + 1}.csv") for i in range(len(draws))]
        is_odd = not all(path.endswith(".csv") for path in draws)
        for link, path in zip(links, draws if is_odd else []):
            os.symlink(os.path.abspath(path), link)
        try:
            fit = cmdstanpy.from_csv(links if is_odd else draws)
        except (ValueError, IndexError, TypeError, KeyError) as error:
            raise ValueError(_damage(draws, error)) from error
    if is_odd and fit is not None:
        fit.runset._csv_files = draws
    if not isinstance(fit, cmdstanpy.CmdStanMCMC):
        method = header_entry(draws[0], "method")
        raise ValueError(
            f"{draws[0]} was written by CmdStan's method {method!r}. Pass the CSV files of its "
            "method 'sample'."
        )
    return fit


def draw_files(files: Sequence[str | PathLike[str]]) -> list[str]:
    """Return the files that hold draws of a sampler, each chain once.

    Raises
    ------
    ValueError
        If there are none, or a file cannot be one.
    """
    paths = [os.fspath(file) for file in files]
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise ValueError(f"There are no files {missing}.")
    kinds = {path: _kind(path) for path in paths}
    draws = [path for path in paths if kinds[path] == "draws"]
    if not draws:
        found = ", ".join(f"{path} ({kind})" for path, kind in kinds.items())
        raise ValueError(f"There are no draws in {found}. Pass the CSV files CmdStan wrote.")
    _refuse_twice(draws)
    for path in draws:
        _refuse_fixed(path)
    return draws


def _kind(path: str) -> str:
    """Tell what CmdStan wrote to a file: draws, diagnostics, or times."""
    with open(path, encoding="utf-8", errors="replace") as file:
        names = next((line.strip().split(",") for line in file if line[0] not in "#\n"), [])
    if not names:
        raise ValueError(
            f"{path} has no column names and no draws: the run was interrupted, or the copy of "
            "the file. Leave it out, or sample that chain again."
        )
    if names[:2] == ["name", "thread_id"]:
        return "times of a profile"
    size = num_unconstrained(names)
    first = len(names) - 3 * size
    points = names[first : first + size]
    # Each unconstrained parameter has a momentum and a gradient, in this order.
    expected = [*(f"p_{name}" for name in points), *(f"g_{name}" for name in points)]
    return "diagnostics" if size and names[first + size :] == expected else "draws"


def num_unconstrained(names: Sequence[str]) -> int:
    """Return the number of unconstrained parameters in a diagnostic file.

    Points, momenta and gradients follow the columns of the sampler; names do not tell them apart,
    since a parameter may be called ``g_rate``.

    Examples
    --------
    >>> num_unconstrained(["lp__", "energy__", "g_rate", "p_g_rate", "g_g_rate"])
    1
    """
    return (len(names) - 1 - names.index("energy__")) // 3 if "energy__" in names else 0


def _refuse_twice(paths: Sequence[str]) -> None:
    """Refuse a chain that is given twice: copies are no new draws."""
    seen: dict[bytes, str] = {}
    for path in paths:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        if content in seen:
            same = "the same file" if os.path.samefile(path, seen[content]) else "copies"
            raise ValueError(
                f"{seen[content]} and {path} are {same}. Pass each chain once: copies of draws "
                "would be taken for new ones."
            )
        seen[content] = path


def _refuse_fixed(path: str) -> None:
    """Refuse a run in which no parameter moved."""
    if header_entry(path, "algorithm") == "fixed_param":
        raise ValueError(
            f"{path} was sampled with algorithm=fixed_param, which moves no parameter: there is no "
            "posterior, and no gradient belongs to its draws. Use ArviZ's summary for its "
            "generated quantities."
        )


def _damage(paths: Sequence[str], error: Exception) -> str:
    """Say which file cannot be read, and why."""
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n") for line in file if line[0] not in "#\n"]
        width = len(lines[0].split(","))
        short = [i for i, line in enumerate(lines) if len(line.split(",")) != width]
        if len(lines) == 1:
            return f"{path} has column names and no draws: the run was interrupted. Leave it out."
        if short:
            return (
                f"{path} is damaged: draw {short[0]} of {len(lines) - 1} has "
                f"{len(lines[short[0]].split(','))} of {width} columns. The run was interrupted, "
                "or the copy of the file. Leave it out, or cut its last line off."
            )
        rows, wanted = len(lines) - 1, _rows_expected(path)
        if wanted and rows < wanted:
            return (
                f"{path} ends after {rows} of {wanted} draws: the run was interrupted, or the copy "
                "of the file. Leave it out, or sample that chain again."
            )
    return f"CmdStanPy cannot read {list(paths)}: {error}"


def _rows_expected(path: str) -> int:
    """Return how many draws the header announces, 0 if it does not say."""
    return sum(announced_rows(path))


def announced_rows(path: str) -> tuple[int, int]:
    """Return how many rows of warm-up, and then of draws, the header of a file announces.

    Both are 0 if it does not say.
    """
    try:
        samples, thin = int(header_entry(path, "num_samples")), header_entry(path, "thin")
        warmup = int(header_entry(path, "num_warmup") or 0)
    except ValueError:
        return 0, 0
    is_saved = header_entry(path, "save_warmup") in ("true", "1")  # 1 in older versions
    every = int(thin or 1)
    return -(-warmup // every) if is_saved else 0, -(-samples // every)


def find_diagnostic_files(fit: cmdstanpy.CmdStanMCMC) -> list[Path]:
    """Return the diagnostic file of each chain."""
    return [
        diagnostic_file(csv_file, known)
        for csv_file, known in zip(fit.runset.csv_files, fit.runset.diagnostic_files)
    ]


def diagnostic_file(csv_file: str, known: str = "") -> Path:
    """Return the diagnostic file that belongs to a file of draws."""
    # Fits read from CSV files know their diagnostic files from the header alone.
    named = known or header_entry(csv_file, "diagnostic_file")
    if not named:
        raise RouteUnavailableError("sample with save_latent_dynamics=True.")
    # The files may have been moved together.
    places = [Path(named), Path(csv_file).with_name(Path(named).name)]
    number = re.search(r"_\d+$", Path(csv_file).stem)
    if number:  # CmdStan itself numbers the files of several chains, but not in the header
        places = [p.with_stem(p.stem + number.group()) for p in places] + places
    found = [place for place in places if place.is_file()]
    if not found:
        raise RouteUnavailableError(
            f"{named} is gone. Keep it beside the CSV files, or sample with output_dir=."
        )
    if header_entry(csv_file, "algorithm") == "fixed_param":
        raise RouteUnavailableError("nothing moved: the run had algorithm=fixed_param.")
    with found[0].open(encoding="utf-8", errors="replace") as file:
        if not any(line[0] not in "#\n" for line in file):
            raise RouteUnavailableError(f"{found[0]} is empty.")
    return found[0]


def find_executable(fit: cmdstanpy.CmdStanMCMC, exe_file: str | PathLike[str] | None) -> Path:
    """Return the compiled model: as given, or the one that `fit` was sampled with just now.

    Files are never asked for a program to run. The header of a CSV file names one, but whoever
    wrote the file chose it.
    """
    if exe_file is not None:
        if Path(exe_file).is_file() and not os.access(exe_file, os.X_OK):
            raise RouteUnavailableError(
                f"exe_file {os.fspath(exe_file)} may not be executed: it lacks the permission, "
                "which `chmod +x` gives."
            )
        if not os.access(exe_file, os.X_OK) or Path(exe_file).is_dir():
            raise RouteUnavailableError(f"exe_file {os.fspath(exe_file)} is no executable file.")
        return Path(exe_file).absolute()
    arguments = fit.runset._args
    # CmdStanPy takes both from the header where it reads files; a run has a path and a bare name.
    is_run = bool(arguments.model_exe) and str(arguments.model_exe) != str(arguments.model_name)
    if not is_run:
        raise RouteUnavailableError(
            "the draws were read from files, and az_cv runs no program that a file names. Pass "
            "exe_file= (on the command line --exe), the path of the compiled model."
        )
    executable = Path(str(arguments.model_exe))
    if not executable.is_file() or not os.access(executable, os.X_OK):
        raise RouteUnavailableError(
            f"the compiled model {executable} is gone. Pass exe_file=, its path."
        )
    return executable.absolute()


@contextmanager
def stan_data_file(
    fit: cmdstanpy.CmdStanMCMC, data_file: str | PathLike[str] | Mapping[str, Any] | None
) -> Iterator[Path | None]:
    """Give the JSON file of the data, ``None`` for a program without data.

    Data in a dict are written to a file that is gone at the end of the block.
    """
    if not isinstance(data_file, Mapping):
        yield _find_data_file(fit, data_file)
        return
    import cmdstanpy

    with tempfile.TemporaryDirectory(prefix="az_cv-") as folder:
        path = Path(folder) / "data.json"
        cmdstanpy.write_stan_json(path, dict(data_file))
        yield path


def _find_data_file(
    fit: cmdstanpy.CmdStanMCMC, data_file: str | PathLike[str] | None
) -> Path | None:
    if data_file is not None:
        if not Path(data_file).is_file():
            raise RouteUnavailableError(f"data_file {os.fspath(data_file)} does not exist.")
        return Path(data_file).resolve()
    named = str(fit.metadata.cmdstan_config.get("data_file") or "")
    if not named:  # a program without data
        return None
    places = [Path(named), Path(fit.runset.csv_files[0]).with_name(Path(named).name)]
    for place in places:
        if place.is_file():
            return place.resolve()
    raise RouteUnavailableError(
        f"the data are gone: the CSV header names {named}. CmdStanPy deletes the file that it "
        "makes of a dict as soon as `sample` returns. Pass data_file=, the dict or a JSON file."
    )


def header_entry(csv_file: str | PathLike[str], key: str) -> str:
    """Return an entry of the comments that open a CSV file, empty if there is none."""
    with open(csv_file, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                break
            match = re.fullmatch(rf"#\s*{key} = (.*?)(\s*\(Default\))?\s*", line)
            if match:
                return match.group(1).strip()
    return ""
