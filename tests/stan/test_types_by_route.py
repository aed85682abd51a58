"""The table of the documentation: what each route does with each type of parameter."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from az_cv.cli import main
from az_cv.sources import cmdstan_scores

cmdstanpy = pytest.importorskip("cmdstanpy")
pytest.importorskip("prophet")
pytestmark = [
    pytest.mark.stan,
    pytest.mark.filterwarnings("ignore:The chains have not converged"),
]

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"
# Every program of which all parameters work by every route.
PROGRAMS = ["bounds", "layout", "matrices", "numbers", "prefixes", "sum_to_zero"]
NO_UNIT_VECTORS = "is a unit vector, whose draws do not tell the unconstrained ones"


@pytest.fixture(scope="module")
def fits(stan_fit):
    """Sample each program once."""
    found = {}

    def fit(name, **settings):
        if name not in found:
            found[name] = stan_fit(
                name, save_latent_dynamics=True, iter_sampling=50, iter_warmup=150, **settings
            )
        return found[name]

    return fit


def by_command_line(fit, *options):
    return main(["summary", *fit.runset.csv_files, "--family", "polynomial", *map(str, options)])


@contextmanager
def without_diagnostic_files(fit):
    """Hide them, so that the options of a command decide."""
    hidden = [Path(file) for file in fit.runset.diagnostic_files]
    for file in hidden:
        file.rename(file.with_suffix(".hidden"))
    try:
        yield
    finally:
        for file in hidden:
            file.with_suffix(".hidden").rename(file)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_route_gives_the_same_scores(program, fits, stan_libraries):
    fit = fits(program)
    expected = cmdstan_scores(fit, route="diagnostic")
    for found in (
        cmdstan_scores(fit, route="executable"),
        cmdstan_scores(fit, route="bridgestan", stan_file=stan_libraries[program]),
    ):
        for name in ("unconstrained_draw", "gradient"):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-9)
        assert found.coords.equals(expected.coords)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_command_line_takes_every_route(
    program, fits, stan_libraries, stan_executables, capsys
):
    fit = fits(program)
    assert by_command_line(fit) == 0
    tables = [capsys.readouterr().out.splitlines()]
    with without_diagnostic_files(fit):
        for option in (
            ("--exe", stan_executables[program]),
            ("--stan-file", stan_libraries[program]),
        ):
            assert by_command_line(fit, *option) == 0
            tables.append(capsys.readouterr().out.splitlines())
    rows = [[line for line in table if line[:1].isalpha()] for table in tables]
    assert len(rows[0]) > 1
    for other in rows[1:]:
        assert [line.split()[0] for line in other[:5]] == [line.split()[0] for line in rows[0][:5]]


def test_unit_vectors_work_where_the_table_says(fits, stan_libraries, stan_executables, capsys):
    fit = fits("structured")
    exact = cmdstan_scores(fit, route="diagnostic")
    with pytest.raises(ValueError, match=NO_UNIT_VECTORS):
        cmdstan_scores(fit, route="executable")
    drawn = cmdstan_scores(fit, route="bridgestan", stan_file=stan_libraries["structured"])
    assert drawn.sizes == exact.sizes
    # Lengths drawn anew: the directions are those of the sampler, the log density is not.
    assert "log_density" not in drawn
    assert NO_UNIT_VECTORS in PAGE.read_text(encoding="utf-8")
    assert by_command_line(fit) == 0
    with without_diagnostic_files(fit):
        assert by_command_line(fit, "--stan-file", stan_libraries["structured"]) == 0
        assert "direction" in capsys.readouterr().out
        assert by_command_line(fit, "--exe", stan_executables["structured"]) == 1
    assert NO_UNIT_VECTORS in capsys.readouterr().err


def test_rounded_draws_are_moved_back_by_every_route(
    stan_fit, stan_libraries, stan_executables, capsys
):
    fit = stan_fit(
        "matrices", sig_figs=6, save_latent_dynamics=True, iter_sampling=50, iter_warmup=150
    )
    printed = cmdstan_scores(fit, route="diagnostic")  # unconstrained draws, to six digits
    for settings in (
        {"route": "executable"},
        {"route": "bridgestan", "stan_file": stan_libraries["matrices"]},
    ):
        with pytest.warns(UserWarning, match=r"share \(by up to .*sig_figs=18"):
            found = cmdstan_scores(fit, **settings)
        assert found.sizes == printed.sizes
        for name in ("unconstrained_draw", "gradient"):
            error = np.abs(found[name] - printed[name]) / printed[name].std(("chain", "draw"))
            assert error.quantile(0.9) < 1e-4
    with without_diagnostic_files(fit):
        for option in (
            ("--exe", stan_executables["matrices"]),
            ("--stan-file", stan_libraries["matrices"]),
        ):
            assert by_command_line(fit, *option) == 0
            captured = capsys.readouterr()
            assert "share" in captured.out
            assert "sig_figs=18" in captured.err


def test_a_program_without_parameters_is_refused_by_every_route(stan_fit, stan_libraries, capsys):
    fit = stan_fit("nothing", fixed_param=True, iter_sampling=20)
    for route in ("diagnostic", "executable", "bridgestan"):
        with pytest.raises(ValueError, match="moves no parameter"):
            cmdstan_scores(fit, route=route, stan_file=stan_libraries["nothing"])
    assert by_command_line(fit) == 1
    assert "moves no parameter" in capsys.readouterr().err
    assert "*moves no parameter*" in PAGE.read_text(encoding="utf-8")
