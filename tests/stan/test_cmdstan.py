import json
import logging
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from az_cv.sources.cmdstan import cmdstan_scores
from az_cv.sources.cmdstan_files import read_cmdstan_csv
from az_cv.sources.finite import NonFiniteScoresWarning

cmdstanpy = pytest.importorskip("cmdstanpy")
pytest.importorskip("prophet")
pytestmark = pytest.mark.stan


def csv_files(fit, folder):
    return [shutil.copy(file, folder) for file in fit.runset.csv_files]


def test_three_routes_agree(latent_fit, stan_libraries, caplog):
    caplog.set_level(logging.INFO)
    diagnostic = cmdstan_scores(latent_fit)
    assert "diagnostic files" in caplog.text
    executable = cmdstan_scores(latent_fit, route="executable")
    assert "save_latent_dynamics=True" in caplog.text
    bridgestan = cmdstan_scores(latent_fit, route="bridgestan", stan_file=stan_libraries["prophet"])
    for scores in (executable, bridgestan):
        assert scores.sizes == diagnostic.sizes
        assert scores.coords.equals(diagnostic.coords)
        for name in diagnostic:
            scale = np.abs(diagnostic[name]).max()
            np.testing.assert_allclose(
                scores[name], diagnostic[name], rtol=1e-8, atol=1e-11 * scale
            )


def test_draws_printed_with_default_precision_agree_to_that_precision(plain_fit, stan_libraries):
    executable = cmdstan_scores(plain_fit)
    assert executable.attrs["source"].startswith("the executable")
    bridgestan = cmdstan_scores(plain_fit, route="bridgestan", stan_file=stan_libraries["prophet"])
    np.testing.assert_allclose(
        executable["unconstrained_draw"], bridgestan["unconstrained_draw"], rtol=1e-12, atol=1e-14
    )
    scale = np.abs(bridgestan["gradient"]).max()
    np.testing.assert_allclose(
        executable["gradient"], bridgestan["gradient"], rtol=1e-8, atol=1e-10 * scale
    )


def test_executable_gives_what_its_log_prob_gives(latent_fit, executable, data_file, tmp_path):
    scores = cmdstan_scores(latent_fit, route="executable")
    points = scores["unconstrained_draw"].values[0, :20]
    # CmdStan reads a list of rows column-major.
    scrambled = points.ravel().reshape(points.shape, order="F")
    (tmp_path / "points.json").write_text(json.dumps({"params_r": scrambled.tolist()}))
    command = f"log_prob unconstrained_params={tmp_path}/points.json data file={data_file}"
    command += f" output file={tmp_path}/out.csv sig_figs=18"
    subprocess.run([executable, *command.split()], check=True, capture_output=True)
    gradient = pd.read_csv(tmp_path / "out.csv", comment="#").filter(regex="^g_")
    np.testing.assert_allclose(scores["gradient"].values[0, :20], gradient, rtol=1e-9, atol=1e-9)


def test_executable_evaluates_hundreds_of_draws_per_process(
    sample, executable, data_file, tmp_path, monkeypatch
):
    """One process for the names, one for the first five draws, then 500 draws each.

    And a few that look for the ends of the density.
    """
    fit = sample(executable, str(data_file), tmp_path, iter_sampling=1000)
    commands, run = [], subprocess.run

    def counted(command, **settings):
        commands.append(command)
        return run(command, **settings)

    monkeypatch.setattr(subprocess, "run", counted)
    scores = cmdstan_scores(fit, route="executable")
    assert scores.sizes == {"chain": 4, "draw": 1000, "unconstrained_parameter": 10}
    assert sum("sample" in command for command in commands) == 1 + 1 + 8
    assert sum("log_prob" in command for command in commands) <= 10


def test_gradients_average_to_zero(latent_fit):
    gradient = cmdstan_scores(latent_fit)["gradient"]
    scatter = gradient.std(["chain", "draw"]) / np.sqrt(gradient.chain.size * gradient.draw.size)
    assert (np.abs(gradient.mean(["chain", "draw"])) < 10 * scatter).all()


def test_warmup_rows_and_thinning_are_handled(sample, executable, data_file, tmp_path):
    settings = {"save_latent_dynamics": True, "save_warmup": True, "thin": 3, "chains": 2}
    fit = sample(executable, str(data_file), tmp_path, iter_sampling=99, **settings)
    diagnostic = cmdstan_scores(fit, route="diagnostic")
    assert diagnostic.sizes["draw"] == 33
    other = cmdstan_scores(fit, route="executable")
    np.testing.assert_allclose(
        diagnostic["unconstrained_draw"], other["unconstrained_draw"], rtol=1e-10, atol=1e-12
    )


def test_fit_from_csv_files_finds_diagnostic_files_and_data_in_the_header(latent_fit):
    fit = cmdstanpy.from_csv(latent_fit.runset.csv_files)
    expected = cmdstan_scores(latent_fit)
    np.testing.assert_array_equal(cmdstan_scores(fit)["gradient"], expected["gradient"])
    executable = latent_fit.runset._args.model_exe
    scores = cmdstan_scores(fit, route="executable", exe_file=executable)
    np.testing.assert_allclose(scores["gradient"], expected["gradient"], rtol=1e-7, atol=1e-8)


def test_files_that_moved_together_are_found(latent_fit, executable, tmp_path):
    files = csv_files(latent_fit, tmp_path)
    for file in latent_fit.runset.diagnostic_files:
        shutil.copy(file, tmp_path)
    fit = cmdstanpy.from_csv(files)
    assert cmdstan_scores(fit).attrs["source"] == "CmdStan's diagnostic files"
    (tmp_path / "prophet").symlink_to(executable)
    with pytest.raises(ValueError, match="runs no program that a file names"):
        cmdstan_scores(fit, route="executable")
    scores = cmdstan_scores(fit, route="executable", exe_file=tmp_path / "prophet")
    assert scores.attrs["source"].endswith(str(tmp_path / "prophet"))


@pytest.fixture
def shell_run(executable, data_file, tmp_path):
    """Files of a run without Python, two chains in one process and relative paths."""
    shutil.copy(data_file, tmp_path)
    command = "sample num_chains=2 num_samples=50 num_warmup=100 random seed=1 data file=data.json"
    command += " output file=output.csv diagnostic_file=output_diagnostic.csv sig_figs=18"
    subprocess.run([executable, *command.split()], check=True, capture_output=True, cwd=tmp_path)
    return tmp_path


def test_csv_files_of_a_run_without_python(shell_run, executable):
    fit = read_cmdstan_csv(sorted(shell_run.glob("output*.csv")))
    assert fit.chains == 2
    diagnostic = cmdstan_scores(fit)
    assert diagnostic.attrs["source"] == "CmdStan's diagnostic files"
    for file in shell_run.glob("output_diagnostic*.csv"):
        file.unlink()
    scores = cmdstan_scores(fit, exe_file=executable)
    np.testing.assert_allclose(
        scores["unconstrained_draw"], diagnostic["unconstrained_draw"], rtol=1e-10, atol=1e-12
    )


def test_csv_files_without_draws_are_explained(shell_run, executable):
    with pytest.raises(ValueError, match="There are no draws in"):
        read_cmdstan_csv(sorted(shell_run.glob("output_diagnostic*.csv")))
    with pytest.raises(ValueError, match=r"There are no files \['missing.csv'\]"):
        read_cmdstan_csv(["missing.csv"])
    command = "optimize data file=data.json output file=mode.csv"
    subprocess.run([executable, *command.split()], check=True, capture_output=True, cwd=shell_run)
    with pytest.raises(ValueError, match="method 'optimize'"):
        read_cmdstan_csv([shell_run / "mode.csv"])


def test_diagnostic_files_of_another_run_are_not_used(latent_fit, plain_fit, tmp_path):
    for file, other in zip(plain_fit.runset.csv_files, latent_fit.runset.diagnostic_files):
        text = Path(file).read_text()
        header = f"diagnostic_file = {other}"
        (tmp_path / Path(file).name).write_text(
            text.replace("diagnostic_file =  (Default)", header)
        )
    fit = cmdstanpy.from_csv([str(file) for file in sorted(tmp_path.glob("*.csv"))])
    with pytest.raises(ValueError, match="belongs to another run"):
        cmdstan_scores(fit, route="diagnostic")


def test_missing_data_executable_and_program_are_explained(plain_fit, tmp_path):
    files = []
    for file in plain_fit.runset.csv_files:
        path = tmp_path / Path(file).name
        path.write_text(Path(file).read_text().replace("data.json", "gone.json"))
        files.append(str(path))
    fit = cmdstanpy.from_csv(files)
    with pytest.raises(ValueError, match=r"(?s)latent_dynamics.*exe_file=.*stan_file="):
        cmdstan_scores(fit)
    executable = plain_fit.runset._args.model_exe
    with pytest.raises(ValueError, match=r"gone\.json\..*Pass data_file="):
        cmdstan_scores(fit, exe_file=executable)
    with pytest.raises(ValueError, match=r"no executable file"):
        cmdstan_scores(fit, exe_file=tmp_path / "missing")
    with pytest.raises(ValueError, match=r"data_file .*missing\.json does not exist"):
        cmdstan_scores(fit, exe_file=executable, data_file=tmp_path / "missing.json")
    with pytest.raises(ValueError, match=r"route is 'csv'. Choose from \['diagnostic'"):
        cmdstan_scores(fit, route="csv")


def test_draws_of_another_model_are_refused(plain_fit, stan_libraries):
    with pytest.raises(ValueError, match=r"\['x', 'y.1', 'y.2'\].*not among the columns"):
        data = Path(plain_fit.runset.csv_files[0]).with_name("limit.json")
        data.write_text('{"limit": 1.0}')
        cmdstan_scores(
            plain_fit, route="bridgestan", stan_file=stan_libraries["rejects"], data_file=data
        )


def test_executable_with_the_wrong_data_is_explained(plain_fit, tmp_path):
    (tmp_path / "other.json").write_text('{"T": 3}')
    with pytest.raises(ValueError, match=r"fails.*variable name=K.*data are those"):
        cmdstan_scores(plain_fit, route="executable", data_file=tmp_path / "other.json")


def test_a_bad_row_is_bisected_and_dropped(plain_fit, tmp_path):
    files = csv_files(plain_fit, tmp_path)
    lines = Path(files[1]).read_text().splitlines()
    rows = [i for i, line in enumerate(lines) if line and line[0] != "#"]  # the header is the first
    column = lines[rows[0]].split(",").index("sigma_obs")
    values = lines[rows[51]].split(",")
    values[column] = "-0.1"
    lines[rows[51]] = ",".join(values)
    Path(files[1]).write_text("\n".join(lines) + "\n")
    fit = cmdstanpy.from_csv(files)
    with pytest.warns(
        NonFiniteScoresWarning, match=r"(?s)1 of 800 draws.*chain 1, draw 50.*\[50\]"
    ):
        scores = cmdstan_scores(fit, route="executable", exe_file=plain_fit.runset._args.model_exe)
    expected = cmdstan_scores(plain_fit).drop_sel(draw=50)
    np.testing.assert_array_equal(scores["draw"], expected["draw"])
    np.testing.assert_allclose(scores["gradient"], expected["gradient"])
