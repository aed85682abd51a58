"""Names, types and files as users of Stan have them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import arviz_base
import numpy as np
import pytest

import az_cv
from az_cv.cli import main
from az_cv.containers.idata import as_idata
from az_cv.sources import cmdstan_scores, load_stan_model, read_cmdstan_scores
from az_cv.sources.cmdstan_files import read_cmdstan_csv

cmdstanpy = pytest.importorskip("cmdstanpy")
pytest.importorskip("prophet")
pytestmark = [
    pytest.mark.stan,
    pytest.mark.filterwarnings("ignore:The chains have not converged"),
]

SETTINGS = {"family": "polynomial", "attach": False}


def test_complex_numbers_and_tuples_have_their_means(stan_fit, stan_libraries, capsys):
    """Each entry is normal with a mean of its own, so that a polynomial of order 1 is exact."""
    fit = stan_fit("numbers", save_latent_dynamics=True)
    expected = {"x": 1, "z.real": 2, "z.imag": 3, "w.real[1]": 5, "w.imag[0]": 6, "pair:2[1]": 14}
    model = load_stan_model(stan_libraries["numbers"])
    for table in (
        az_cv.summary(fit, **SETTINGS),
        az_cv.summary(as_idata(fit), model=model, **SETTINGS),
    ):
        np.testing.assert_allclose(table["mean"][list(expected)], list(expected.values()))
    files = fit.runset.csv_files
    assert main(["summary", *files, "--family", "polynomial"]) == 0
    assert "a.imag[1]" in capsys.readouterr().out


def test_parts_that_arviz_drops_are_missed(stan_fit, stan_libraries):
    fit = stan_fit("numbers", save_latent_dynamics=True)
    posterior = as_idata(fit)["posterior"].to_dataset()
    dropped = posterior.assign(z=posterior["z"].real)  # what ArviZ's converter makes of it
    with pytest.raises(ValueError, match="'z' is complex in the Stan model and real"):
        az_cv.summary(dropped, model=load_stan_model(stan_libraries["numbers"]), **SETTINGS)
    with pytest.raises(ValueError, match="'z' is complex in the Stan model and real"):
        az_cv.summary(dropped, model=fit, **SETTINGS)


def test_data_in_a_dict_are_asked_for_and_taken(stan_fit):
    data = {"J": 8, "y": np.arange(8.0), "sigma": np.full(8, 10.0)}
    fit = stan_fit("eight_schools", data, as_dict=True)
    with pytest.raises(ValueError, match=r"deletes the file that it makes of a dict.*the dict or"):
        cmdstan_scores(fit, route="executable")
    for scores in (cmdstan_scores(fit, data_file=data), cmdstan_scores(fit, data)):
        table = az_cv.summary(fit, scores=scores, var_names=["mu"], **SETTINGS)
        assert "is the sampler's at every draw" in table.attrs["provenance"]


def test_a_run_that_moves_nothing_is_named(stan_fit):
    fit = stan_fit("eight_schools", {"J": 0, "y": [], "sigma": []}, fixed_param=True)
    with pytest.raises(ValueError, match="fixed_param=True, which moves no parameter"):
        cmdstan_scores(fit)
    with pytest.raises(ValueError, match=r"_1\.csv was sampled with algorithm=fixed_param"):
        read_cmdstan_csv(fit.runset.csv_files)


def test_a_model_without_parameters_is_named(stan_fit):
    fit = stan_fit("nothing", save_latent_dynamics=True, fixed_param=True)
    with pytest.raises(ValueError, match="moves no parameter"):
        az_cv.summary(fit, **SETTINGS)


@pytest.fixture
def files(stan_fit, tmp_path):
    fit = stan_fit("prefixes", save_latent_dynamics=True)
    for file in (*fit.runset.csv_files, *fit.runset.diagnostic_files):
        shutil.copy(file, tmp_path)
    return sorted(tmp_path.glob("prefixes*[0-9]_[12].csv"))


def test_files_of_other_kinds_in_a_glob_are_told_apart(files):
    (files[0].parent / "prefixes_profile.csv").write_text("name,thread_id,total_time\nmodel,1,2\n")
    every = sorted(files[0].parent.glob("*.csv"))
    assert len(every) == 5
    fit = read_cmdstan_csv(every)
    assert fit.chains == 2
    assert fit.runset.csv_files == [str(file) for file in files]
    with pytest.raises(ValueError, match=r"profile\.csv \(times of a profile\)"):
        read_cmdstan_csv([every[-1]])


def test_one_chain_given_twice_is_refused(files):
    with pytest.raises(ValueError, match=r"are the same file\. Pass each chain once"):
        read_cmdstan_csv([files[0], files[0]])
    copy = shutil.copy(files[0], files[0].with_name("copy.csv"))
    with pytest.raises(ValueError, match=r"copy\.csv are copies"):
        read_cmdstan_csv([files[0], files[1], copy])


def test_damaged_files_are_named(files):
    text = files[1].read_text()
    files[1].write_text("")
    with pytest.raises(ValueError, match=rf"{files[1].name} has no column names"):
        read_cmdstan_csv(files)
    files[1].write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=rf"{files[1].name} (is damaged: draw|ends after)"):
        read_cmdstan_csv(files)


def test_an_empty_diagnostic_file_leaves_the_other_routes(files, stan_executables):
    for file in files[0].parent.glob("*diagnostic*"):
        file.write_text("")
    fit = cmdstanpy.from_csv([str(file) for file in files])
    # The header names the folder where the files were written first.
    for file in fit.runset.csv_files:
        text = Path(file).read_text()
        folder = text.partition("diagnostic_file = ")[2].splitlines()[0].rpartition("/")[0]
        Path(file).write_text(text.replace(folder, str(files[0].parent)))
    fit = cmdstanpy.from_csv([str(file) for file in files])
    with pytest.raises(ValueError, match=r"diagnostic_\d\.csv is empty"):
        cmdstan_scores(fit, route="diagnostic")
    scores = cmdstan_scores(fit, exe_file=stan_executables["prefixes"])
    assert scores.attrs["source"].startswith("the executable")


def test_executables_that_do_not_run_are_named(files, stan_executables, tmp_path):
    fit = cmdstanpy.from_csv([str(file) for file in files])
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    os.chmod(silent, 0o644)
    if os.geteuid() != 0 or not os.access(silent, os.X_OK):
        with pytest.raises(ValueError, match=r"may not be executed.*chmod \+x"):
            cmdstan_scores(fit, route="executable", exe_file=silent)
    os.chmod(silent, 0o755)
    with pytest.raises(ValueError, match="wrote nothing: it is no model"):
        cmdstan_scores(fit, route="executable", exe_file=silent)


def test_the_command_line_speaks_of_its_own_options(files, capsys):
    for file in files[0].parent.glob("*diagnostic*"):
        file.unlink()
    texts = {file: file.read_text() for file in files}
    for file, text in texts.items():
        named = text.partition("diagnostic_file = ")[2].splitlines()[0]
        file.write_text(text.replace(named, "gone.csv"))
    assert main(["summary", *map(str, files)]) == 1
    message = capsys.readouterr().err
    assert "--exe" in message
    assert "--stan-file" in message
    for argument in ("exe_file=", "stan_file=", "data_file=", "az_cv.sources"):
        assert argument not in message


@pytest.mark.filterwarnings("ignore:Draws are rounded")
def test_draws_rounded_onto_a_bound_are_restored(stan_fit, stan_libraries, monkeypatch):
    """The probability is Beta(2, 0.2): its mean is 1/1.1, and 8% of the draws are 1 in print."""
    fit = stan_fit("near_bound", sig_figs=6, iter_sampling=1000, adapt_delta=0.99)
    processes, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: processes.append(a) or run(*a, **k))
    tables = []
    for settings in ({}, {"route": "bridgestan", "stan_file": stan_libraries["near_bound"]}):
        with pytest.warns(UserWarning, match=r"rounded onto a bound") as said:
            scores = cmdstan_scores(fit, **settings)
        (text,) = {str(warning.message) for warning in said if "bound" in str(warning.message)}
        assert re.fullmatch(
            r"Draws were rounded onto a bound of their parameter: p onto 1 \(\d+ draws\)\. They "
            r"were drawn anew from the part of the tail that the digits do not show\. Sample with "
            r"sig_figs=18 to keep it\.",
            text,
        )
        assert scores.sizes["draw"] == 1000
        assert scores.attrs["restored_share"] > 0.02
        tables.append(az_cv.summary(fit, scores=scores, round_to="none", **SETTINGS))
    # A process for each 500 draws and a few that look beyond them: no search for bad draws.
    assert len(processes) < 20
    for table in tables:
        error = abs(table["mean"]["p"] - 1 / 1.1)
        assert error < 3 * table["mcse_mean"]["p"]
        assert table["mcse_mean"]["p"] < 1e-4


def test_files_with_the_dict_of_data(stan_fit, stan_executables):
    data = {"J": 8, "y": np.arange(8.0), "sigma": np.full(8, 10.0)}
    fit = stan_fit("eight_schools", data, as_dict=True)
    idata, scores = read_cmdstan_scores(
        fit.runset.csv_files, exe_file=stan_executables["eight_schools"], data_file=data
    )
    assert scores.sizes["unconstrained_parameter"] == 10
    assert isinstance(arviz_base.extract(idata).sizes["sample"], int)
