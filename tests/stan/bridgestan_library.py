"""Compile Stan programs into libraries and executables, from package registries alone.

``bridgestan`` loads the libraries; the executables understand what CmdStanPy and az_cv ask of those
that CmdStan makes.

The compiler ``stanc`` and the TBB library come from prophet's wheel, which holds a pruned CmdStan;
Stan's headers come from httpstan's wheel, which pip downloads for any platform since headers do not
depend on it. Everything is kept in the user's cache folder, shared by all Python versions.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INTERFACE = Path(__file__).with_name("bridgestan_interface.cpp")
COMMAND_LINE = Path(__file__).with_name("cmdstan_main.cpp")
HEADERS = "httpstan==4.17.0"  # Stan 2.39; compiles what stanc 2.37 writes
# -O1 takes a fifth longer to compile, and the models are tiny.
FLAGS = (
    "-std=c++17 -O0 -fPIC -w -Wno-psabi -DSTAN_THREADS -D_REENTRANT -DBOOST_DISABLE_ASSERTS "
    "-DBOOST_PHOENIX_NO_VARIADIC_EXPRESSION"
).split()
COMPILER = os.environ.get("CXX", "g++")


def compile_programs(programs: Sequence[Path]) -> dict[str, Path]:
    """Compile programs, in one go, and return the library of each by the program's name.

    The executable lies beside it, see :func:`executable_of`.

    All programs, the C interface and the command line form one translation unit, because nearly all
    of the time goes into Stan's headers. Each product links it with a ``new_model`` that picks one
    program.
    """
    version = importlib.metadata.version("bridgestan").replace(".", ",")
    flags = [*FLAGS, f"-DINTERFACE_VERSION={version}"]
    compiler = subprocess.run([COMPILER, "--version"], capture_output=True, check=True).stdout
    key = hashlib.sha256(compiler)
    for text in (*flags, HEADERS, platform.machine(), importlib.metadata.version("prophet")):
        key.update(text.encode())
    for source in (Path(__file__), INTERFACE, COMMAND_LINE, *programs):
        key.update(source.read_bytes())
    folder = cache_folder() / key.hexdigest()[:16]
    with locked(cache_folder()):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as build:
                _build(Path(build), programs, flags)
                (Path(build) / "libraries").rename(folder)
    return {program.stem: folder / f"{program.stem}_model.so" for program in programs}


def executable_of(library: Path) -> Path:
    """Return the executable that was made with a library."""
    return library.with_name(library.stem)


def cache_folder() -> Path:
    """Return the folder that keeps headers and libraries between runs."""
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(parent) / "az_cv-stan-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time build; the others wait and find the result."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cmdstan_folder() -> Path:
    """Return the pruned CmdStan in prophet's wheel."""
    specification = importlib.util.find_spec("prophet")
    if specification is None or specification.origin is None:
        raise RuntimeError("The Stan tests need prophet: pip install prophet")
    return next((Path(specification.origin).parent / "stan_model").glob("cmdstan-*"))


def _build(folder: Path, programs: Sequence[Path], flags: Sequence[str]) -> None:
    libraries = folder / "libraries"
    libraries.mkdir()
    tbb = cmdstan_folder() / "stan" / "lib" / "stan_math" / "lib" / "tbb" / "libtbb.so.2"
    shutil.copy(tbb, libraries)
    lines = []
    for program in programs:
        name = program.stem
        _run(
            cmdstan_folder() / "bin" / "stanc",
            f"--name={name}_model",
            f"--filename-in-msg={name}",
            f"--o={folder / name}.hpp",
            program,
        )
        names = [
            ("new_model", f"new_{name}"),
            ("stan_model", f"{name}_type"),
            ("get_stan_profile_data", f"{name}_profile"),
        ]
        lines += [f"#define {old} {new}" for old, new in names]
        lines += [f'#include "{name}.hpp"']
        lines += [f"#undef {old}" for old, _ in names]
    lines += [f'#include "{INTERFACE}"', f'#include "{COMMAND_LINE}"']
    (folder / "programs.cpp").write_text("\n".join(lines) + "\n")
    headers = _headers()
    _run(
        COMPILER,
        *flags,
        "-isystem",
        headers,
        "-c",
        folder / "programs.cpp",
        "-o",
        folder / "programs.o",
    )
    for program in programs:
        selector = folder / f"{program.stem}.cpp"
        selector.write_text(_SELECTOR.format(name=program.stem))
        for kind, product in (
            (["-shared"], f"{program.stem}_model.so"),
            ([], f"{program.stem}_model"),
        ):
            _run(
                COMPILER,
                *flags,
                *kind,
                "-s",
                selector,
                folder / "programs.o",
                libraries / "libtbb.so.2",
                "-Wl,-rpath,$ORIGIN",
                "-o",
                libraries / product,
            )


_SELECTOR = """#include <iosfwd>
namespace stan {{ namespace io {{ class var_context; }} namespace model {{ class model_base; }} }}
using Model = stan::model::model_base;
Model& new_{name}(stan::io::var_context&, unsigned int, std::ostream*);
Model& new_model(stan::io::var_context& data, unsigned int seed, std::ostream* messages) {{
  return new_{name}(data, seed, messages);
}}
"""


def _headers() -> Path:
    """Return the folder of Stan's headers, downloading and unpacking httpstan's wheel once."""
    folder = cache_folder() / HEADERS.replace("==", "-")
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=cache_folder()) as download:
            _run(
                sys.executable,
                "-m",
                "pip",
                "download",
                HEADERS,
                "--no-deps",
                "--only-binary=:all:",
                "--platform=manylinux2014_x86_64",
                "--python-version=3.13",
                "--quiet",
                f"--dest={download}",
            )
            (wheel,) = Path(download).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                headers = [
                    name for name in archive.namelist() if name.startswith("httpstan/include/")
                ]
                archive.extractall(download, headers)
            (Path(download) / "httpstan").rename(folder)
    return folder / "include"


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{result.stdout}\n{result.stderr[-5000:]}")
