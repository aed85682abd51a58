"""What a CmdStan run leaves on disk: CSV files, diagnostic files, executable and data."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
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
    paths = [os.fspath(file) for file in files]
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise ValueError(f"There are no files {missing}.")
    draws = [path for path in paths if not _is_diagnostic(path)]
    if not draws:
        raise ValueError(f"There are no draws in {paths}. Pass the CSV files CmdStan wrote.")
    with tempfile.TemporaryDirectory(prefix="az_cv-") as folder:
        # CmdStanPy takes `.csv` for the only spelling; a link has it.
        links = [os.path.join(folder, f"draws_{i + 1}.csv") for i in range(len(draws))]
        is_odd = not all(path.endswith(".csv") for path in draws)
        for link, path in zip(links, draws if is_odd else []):
            os.symlink(os.path.abspath(path), link)
        fit = cmdstanpy.from_csv(links if is_odd else draws)
    if is_odd and fit is not None:
        fit.runset._csv_files = draws
    if not isinstance(fit, cmdstanpy.CmdStanMCMC):
        raise ValueError(
            f"{draws[0]} was written by CmdStan's method {_header(draws[0], 'method')!r}. Pass the "
            "CSV files of its method 'sample'."
        )
    return fit


def _is_diagnostic(path: str) -> bool:
    with open(path, encoding="utf-8") as file:
        names = next((line.strip().split(",") for line in file if line[0] not in "#\n"), [])
    # Each unconstrained parameter has a momentum and a gradient.
    gradients = [name for name in names if name.startswith("g_")]
    return bool(gradients) and all("p_" + name[2:] in names for name in gradients)


def find_diagnostic_files(fit: cmdstanpy.CmdStanMCMC) -> list[Path]:
    """Return the diagnostic file of each chain."""
    files = []
    for csv_file, known in zip(fit.runset.csv_files, fit.runset.diagnostic_files):
        # Fits read from CSV files know their diagnostic files from the header alone.
        named = known or _header(csv_file, "diagnostic_file")
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
        files.append(found[0])
    return files


def find_executable(fit: cmdstanpy.CmdStanMCMC, exe_file: str | PathLike[str] | None) -> Path:
    """Return the compiled model: as given, or the one that `fit` was sampled with just now.

    Files are never asked for a program to run. The header of a CSV file names one, but whoever
    wrote the file chose it.
    """
    if exe_file is not None:
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


def find_data_file(
    fit: cmdstanpy.CmdStanMCMC, data_file: str | PathLike[str] | None
) -> Path | None:
    """Return the JSON file of the data, ``None`` for a program without data."""
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
        f"the data are gone: the CSV header names {named}. Pass data_file=, a JSON file."
    )


def _header(csv_file: str | PathLike[str], key: str) -> str:
    """Return an entry of the comments that open a CSV file, empty if there is none."""
    with open(csv_file, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                break
            match = re.fullmatch(rf"#\s*{key} = (.*?)(\s*\(Default\))?\s*", line)
            if match:
                return match.group(1).strip()
    return ""
