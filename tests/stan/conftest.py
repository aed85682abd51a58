"""Real Stan models for the tests; see ``bridgestan_library.py`` for where they come from."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np
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
        pytest.skip("needs prophet")
    return Path(specification.origin).parent / "stan_model"


@pytest.fixture(
    scope="session",
    params=["headers", *(["bridgestan"] if os.environ.get("BRIDGESTAN") else [])],
)
def stan_libraries(request, tmp_path_factory, prophet_folder):
    """Path of the compiled library of each program, by name."""
    if importlib.util.find_spec("bridgestan") is None:
        pytest.skip("needs bridgestan")
    programs = [*sorted(PROGRAMS.rglob("*.stan")), prophet_folder / "prophet.stan"]
    if request.param == "headers":
        library = _import_neighbour("bridgestan_library")
        if sys.platform != "linux" or shutil.which(library.COMPILER) is None:
            pytest.skip("needs Linux and a C++ compiler")
        return library.compile_programs(programs)
    import bridgestan

    folder = tmp_path_factory.mktemp("bridgestan")
    return _compiled(programs, folder, lambda program: Path(bridgestan.compile_model(program)))


class Compiled(dict):
    """What was compiled, by the name of the program; a test of another one is skipped."""

    def __missing__(self, name):
        pytest.skip(f"the compiler of this Stan does not know what {name}.stan uses")


def _compiled(programs, folder, compile_program):
    """Compile copies of programs; an older compiler may lack what those in `newer` use."""
    products = Compiled()
    for program in programs:
        copy = Path(shutil.copy(program, folder))
        try:
            products[copy.stem] = compile_program(copy)
        except (RuntimeError, ValueError):
            if program.parent.name != "newer":
                raise
    return products


@pytest.fixture(scope="session")
def stan_model(stan_libraries):
    """Build a model from the name of a program and its data."""
    import bridgestan

    return lambda name, data=None: bridgestan.StanModel(stan_libraries[name], data, warn=False)


@pytest.fixture(
    scope="session", params=["services", *(["cmdstan"] if "CMDSTAN" in os.environ else [])]
)
def stan_executables(request, tmp_path_factory, prophet_folder):
    """Path of the executable of each program: over Stan's services, or made by a CmdStan."""
    cmdstanpy = pytest.importorskip("cmdstanpy")
    programs = [*sorted(PROGRAMS.rglob("*.stan")), prophet_folder / "prophet.stan"]
    if request.param == "services":
        library = _import_neighbour("bridgestan_library")
        if sys.platform != "linux" or shutil.which(library.COMPILER) is None:
            pytest.skip("needs Linux and a C++ compiler")
        return {
            name: library.executable_of(path)
            for name, path in library.compile_programs(programs).items()
        }
    folder = tmp_path_factory.mktemp("cmdstan")
    return _compiled(
        programs,
        folder,
        lambda program: Path(cmdstanpy.CmdStanModel(stan_file=program).exe_file),
    )


@pytest.fixture(scope="session")
def stan_fit(stan_executables, tmp_path_factory):
    """Sample a program by its name; the data may be a dict, a path or nothing."""
    import cmdstanpy

    def sample(name, data=None, **settings):
        folder = tmp_path_factory.mktemp(name)
        if isinstance(data, dict) and not settings.pop("as_dict", False):
            cmdstanpy.write_stan_json(folder / "data.json", data)
            data = str(folder / "data.json")
        defaults = {"iter_sampling": 200, "iter_warmup": 200, "chains": 2, "seed": 3}
        return cmdstanpy.CmdStanModel(exe_file=stan_executables[name]).sample(
            data=data,
            output_dir=folder,
            show_progress=False,
            **({"sig_figs": 18} | defaults | settings),
        )

    return sample


def prophet_data():
    """Return data for a linear trend with five changes and two regressors: ten parameters."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 100)
    return {
        "T": 100,
        "K": 2,
        "S": 5,
        "t": t,
        "cap": np.zeros(100),
        "y": 1 + t + 0.1 * rng.normal(size=100),
        "t_change": np.linspace(0.1, 0.9, 5),
        "X": np.stack([np.sin(6 * t), np.cos(6 * t)], axis=1),
        "sigmas": np.ones(2),
        "tau": 0.5,
        "trend_indicator": 0,
        "s_a": np.ones(2),
        "s_m": np.zeros(2),
    }


@pytest.fixture(
    scope="session", params=["wheel", *(["cmdstan"] if "CMDSTAN" in os.environ else [])]
)
def executable(request, tmp_path_factory, prophet_folder):
    """Prophet's model: the executable in its wheel, and one made by a CmdStan installation."""
    if request.param == "wheel":
        return prophet_folder / "prophet_model.bin"
    program = shutil.copy(prophet_folder / "prophet.stan", tmp_path_factory.mktemp("cmdstan"))
    import cmdstanpy

    return Path(cmdstanpy.CmdStanModel(stan_file=program).exe_file)


@pytest.fixture(scope="session")
def data_file(tmp_path_factory):
    cmdstanpy = pytest.importorskip("cmdstanpy")
    path = tmp_path_factory.mktemp("data") / "data.json"
    cmdstanpy.write_stan_json(path, prophet_data())
    return path


def _sample(executable, data, folder, **settings):
    import cmdstanpy

    model = cmdstanpy.CmdStanModel(exe_file=executable)
    defaults = {"iter_sampling": 200, "chains": 4, "seed": 3, "sig_figs": 18}
    # Short trajectories: the tests need draws, not good ones.
    return model.sample(
        data=data,
        output_dir=folder,
        iter_warmup=300,
        max_treedepth=6,
        show_progress=False,
        **(defaults | settings),
    )


@pytest.fixture(scope="session")
def sample():
    """Sample an executable of prophet's model."""
    return _sample


@pytest.fixture(scope="session")
def latent_fit(executable, data_file, tmp_path_factory):
    """Sampled with every digit and the latent dynamics."""
    folder = tmp_path_factory.mktemp("latent")
    return _sample(executable, str(data_file), folder, save_latent_dynamics=True)


@pytest.fixture(scope="session")
def plain_fit(executable, data_file, tmp_path_factory):
    """Sampled with CmdStan's default settings."""
    folder = tmp_path_factory.mktemp("plain")
    return _sample(executable, str(data_file), folder, sig_figs=None, seed=4)
