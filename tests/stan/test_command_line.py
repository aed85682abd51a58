"""The command line on the files of a real CmdStan run."""

import json
import shutil

import numpy as np
import pytest

from az_cv.cli import main

cmdstanpy = pytest.importorskip("cmdstanpy")
pytestmark = pytest.mark.stan


@pytest.fixture(scope="module")
def run_folder(prophet_folder, tmp_path_factory):
    """CSV files and data of a linear trend with two regressors, sampled by prophet's model."""
    folder = tmp_path_factory.mktemp("cmdstan_run")
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 60)
    data = {
        "T": 60,
        "K": 2,
        "S": 2,
        "t": t,
        "cap": np.zeros(60),
        "y": 1 + t + 0.1 * rng.normal(size=60),
        "t_change": np.array([0.3, 0.6]),
        "X": np.stack([np.sin(6 * t), np.cos(6 * t)], axis=1),
        "sigmas": np.ones(2),
        "tau": 0.5,
        "trend_indicator": 0,
        "s_a": np.ones(2),
        "s_m": np.zeros(2),
    }
    cmdstanpy.write_stan_json(folder / "data.json", data)
    model = cmdstanpy.CmdStanModel(exe_file=prophet_folder / "prophet_model.bin")
    fit = model.sample(
        data=str(folder / "data.json"),
        output_dir=folder,
        chains=2,
        iter_warmup=300,
        iter_sampling=150,
        max_treedepth=6,
        sig_figs=18,
        seed=2,
        show_progress=False,
    )
    for number, file in enumerate(fit.runset.csv_files, start=1):
        shutil.copy(file, folder / f"output-{number}.csv")
    return folder


def test_stan_files_are_summarised(run_folder, prophet_folder, capsys):
    files = sorted(str(file) for file in run_folder.glob("output-*.csv"))
    status = main(
        [
            "summary",
            *files,
            "--exe",
            str(prophet_folder / "prophet_model.bin"),
            "--data",
            str(run_folder / "data.json"),
            "--family",
            "polynomial",
            "--var-names",
            "k",
            "beta",
            "--json",
        ]
    )
    captured = capsys.readouterr()
    assert status == 0, captured.err
    rows = json.loads(captured.out)["rows"]
    assert [row["name"] for row in rows] == ["k", "beta[0]", "beta[1]"]
    assert all(row["vrf_mean"] > 2 for row in rows)


def test_missing_executable_is_one_line(run_folder, capsys):
    files = sorted(str(file) for file in run_folder.glob("output-*.csv"))
    assert main(["summary", *files, "--exe", "absent", "--data", "absent.json"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "absent is no executable file" in error
