"""Real Stan models for the tests; see ``bridgestan_library.py`` for where they come from."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs")


def _import_neighbour(name):
    # `--import-mode=importlib` leaves this folder out of sys.path.
    specification = importlib.util.spec_from_file_location(
        name, Path(__file__).with_name(f"{name}.py")
    )
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def prophet_folder():
    """Folder of prophet's Stan program and its compiled executable."""
    specification = importlib.util.find_spec("prophet")
    if specification is None:
        _unavailable("needs prophet")
    return Path(specification.origin).parent / "stan_model"


def _unavailable(reason):
    if os.environ.get("AZ_CV_REQUIRE_ALL_DEPS"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(
    scope="session",
    params=["headers", *(["bridgestan"] if os.environ.get("BRIDGESTAN") else [])],
)
def stan_libraries(request, tmp_path_factory, prophet_folder):
    """Path of the compiled library of each program, by name."""
    if importlib.util.find_spec("bridgestan") is None:
        _unavailable("needs bridgestan")
    programs = [*sorted(PROGRAMS.glob("*.stan")), prophet_folder / "prophet.stan"]
    if request.param == "headers":
        library = _import_neighbour("bridgestan_library")
        if sys.platform != "linux" or shutil.which(library.COMPILER) is None:
            _unavailable("needs Linux and a C++ compiler")
        return library.compile_programs(programs)
    import bridgestan

    folder = tmp_path_factory.mktemp("bridgestan")
    copies = [Path(shutil.copy(program, folder)) for program in programs]
    return {copy.stem: Path(bridgestan.compile_model(copy)) for copy in copies}


@pytest.fixture(scope="session")
def stan_model(stan_libraries):
    """Build a model from the name of a program and its data."""
    import bridgestan

    return lambda name, data=None: bridgestan.StanModel(stan_libraries[name], data, warn=False)
