"""The command line on the files of a real CmdStan run."""

import json
import shutil

import numpy as np
import pytest

import az_cv
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


@pytest.fixture
def hostile_folder(run_folder, tmp_path):
    """CSV files whose header names a program that lies beside them, and leaves a sign when run."""
    sign = tmp_path / "executed"
    shutil.copy(run_folder / "data.json", tmp_path)
    for file in run_folder.glob("output-*.csv"):
        shutil.copy(file, tmp_path)
    header = (tmp_path / "output-1.csv").read_text().splitlines()
    named = next(line.split("=")[1].strip() for line in header if line.startswith("# model ="))
    for name in {named, named.removesuffix("_model"), "evil"}:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ntouch {sign}\n")
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("named", ["as it was", "with its folder"])
def test_a_program_that_a_header_names_is_not_run(hostile_folder, capsys, named):
    files = sorted(hostile_folder.glob("output-*.csv"))
    if named == "with its folder":
        for file in files:
            lines = file.read_text().splitlines()
            changed = [
                f"# model = {hostile_folder}/evil" if line.startswith("# model =") else line
                for line in lines
            ]
            file.write_text("\n".join(changed) + "\n")
    names = [str(file) for file in files]
    assert main(["summary", *names]) == 1
    assert (
        "az_cv runs no program that a file names. Pass --exe, the path of the compiled model"
        in (capsys.readouterr().err)
    )
    with pytest.raises(ValueError, match="runs no program that a file names"):
        az_cv.sources.read_cmdstan_scores(names)
    with pytest.raises(ValueError, match="runs no program that a file names"):
        az_cv.summary(cmdstanpy.from_csv(names))
    assert not (hostile_folder / "executed").exists()


def test_a_suffix_in_capitals_is_a_csv_file(run_folder, prophet_folder, tmp_path, capsys):
    files = []
    for file in sorted(run_folder.glob("output-*.csv")):
        files.append(str(tmp_path / f"{file.stem}.CSV"))
        shutil.copy(file, files[-1])
    model = ["--exe", str(prophet_folder / "prophet_model.bin")]
    data = ["--data", str(run_folder / "data.json")]
    assert main(["summary", *files, *model, *data, "--family", "polynomial"]) == 0
    assert "sigma_obs" in capsys.readouterr().out
