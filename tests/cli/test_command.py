import json
import subprocess
import sys

import pandas as pd
import pytest
import xarray as xr

import az_cv
from az_cv.cli import main


@pytest.fixture(scope="module")
def tree():
    return az_cv.load_eight_schools().isel(draw=slice(None, 60))


@pytest.fixture(scope="module")
def folder(tree, tmp_path_factory):
    path = tmp_path_factory.mktemp("traces")
    tree.to_netcdf(path / "trace.nc", engine="h5netcdf")
    tree.to_zarr(path / "trace.zarr", zarr_format=2)
    tree.drop_nodes("cv_scores").to_netcdf(path / "bare.nc", engine="h5netcdf")
    xr.DataTree.from_dict({"prior": tree["posterior"].to_dataset()}).to_netcdf(
        path / "prior.nc", engine="h5netcdf"
    )
    (path / "text.nc").write_text("no trace")
    return path


def run(*arguments):
    return main([*(str(a) for a in arguments)])


def fails(capsys, *arguments):
    """Run a command that must fail, and return its one line."""
    assert run(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("az-cv: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("name", ["trace.nc", "trace.zarr"])
def test_summary_of_a_file_is_that_of_its_data(folder, tree, capsys, name):
    assert run("summary", folder / name, "--family", "polynomial", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    table = az_cv.summary(tree, family="polynomial", round_to="none", attach=False)
    assert [row["name"] for row in answer["rows"]] == list(table.index)
    assert [row["mean"] for row in answer["rows"]] == pytest.approx(list(table["mean"]))
    assert "polynomial" in answer["settings"]["family"]


def test_functions_and_selection(folder, capsys):
    command = ["summary", folder / "trace.nc", "--family", "polynomial"]
    assert run(*command, "--fn", "max(theta)", "--fn", "tau > 2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["max(theta)", "tau > 2"]
    assert 0 < rows[1]["mean"] < 1
    assert run(*command, "--var-names", "mu", "tau") == 0
    printed = capsys.readouterr().out
    assert "vrf_mean" in printed
    assert "theta" not in printed


@pytest.mark.parametrize("suffix", ["csv", "json", "html", "txt"])
def test_table_is_written(folder, tmp_path, capsys, suffix):
    output = tmp_path / f"table.{suffix}"
    command = ["summary", folder / "trace.nc", "--family", "polynomial", "--var-names", "mu", "tau"]
    assert run(*command, "--output", output) == 0
    assert capsys.readouterr().out == ""
    assert "vrf_mean" in output.read_text()
    if suffix == "csv":
        assert list(pd.read_csv(output, index_col=0).index) == ["mu", "tau"]


def test_html_is_a_page_of_its_own_and_may_be_replaced(folder, tmp_path, capsys):
    output = tmp_path / "table.html"
    command = ["summary", folder / "trace.nc", "--family", "polynomial", "--var-names", "mu"]
    assert run(*command, "--output", output) == 0
    page = output.read_text()
    assert page.startswith("<!doctype html><html")
    assert page.rstrip().endswith("</html>")
    assert run(*command, "--output", output) == 0  # az-cv knows its own
    output.write_text("<!doctype html><html><p>mine</p></html>")
    assert "az-cv did not write it" in fails(capsys, *command, "--output", output)


def test_the_table_is_short_unless_asked(folder, capsys):
    command = ["summary", folder / "trace.nc", "--family", "polynomial", "--var-names", "mu"]
    assert run(*command) == 0
    short = capsys.readouterr().out
    assert run(*command, "--full") == 0
    full = capsys.readouterr().out
    assert "ess_bulk" in full
    assert "ess_bulk" not in short
    assert max(map(len, short.splitlines())) <= 100


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_trace_is_written_with_the_results(folder, tmp_path, capsys, suffix):
    output = tmp_path / f"result.{suffix}"
    command = ["summary", folder / "trace.nc", "--family", "polynomial", "--var-names", "mu"]
    assert run(*command, "--output", output) == 0
    assert "mu" in capsys.readouterr().out
    # The written file can be summarised in turn.
    assert run("summary", output, "--family", "polynomial", "--var-names", "mu") == 0


@pytest.mark.parametrize("kind", ["forest", "vrf", "running", "residuals"])
def test_figures_are_written(folder, tmp_path, capsys, kind):
    output = tmp_path / "figure.png"
    command = ["plot", folder / "trace.nc", "--kind", kind, "--family", "polynomial"]
    assert run(*command, "--var-names", "mu", "--output", output) == 0
    assert output.read_bytes()[:4] == b"\x89PNG"
    assert capsys.readouterr().out.strip() == str(output)


def test_figure_is_named_after_the_trace(folder):
    assert run("plot", folder / "trace.nc", "--family", "polynomial", "--var-names", "mu") == 0
    assert (folder / "trace.forest.png").exists()


def test_check_prints_the_report(folder, capsys):
    assert run("check", folder / "trace.nc") == 0
    assert "Stein identities: pass" in capsys.readouterr().out
    output = folder / "check.png"
    assert run("plot", folder / "trace.nc", "--kind", "check", "--output", output) == 0
    assert output.exists()


def test_check_of_wrong_gradients_exits_with_one(tmp_path, capsys):
    data = az_cv.load_eight_schools().isel(draw=slice(250))
    scores = az_cv.scores(data)
    data["cv_scores"] = xr.DataTree(scores.assign(gradient=-scores["gradient"]))
    data.to_netcdf(tmp_path / "flipped.nc", engine="h5netcdf")
    assert run("check", tmp_path / "flipped.nc") == 1
    assert "sign is flipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summary", "absent.nc"], "There is no file absent.nc"),
        (["summary", "trace.nc", "trace.zarr"], "2 files are given"),
        (["summary", "bare.nc"], "bare.nc holds no gradients. Save it after"),
        (["summary", "prior.nc"], "prior.nc: There is no group 'posterior'"),
        (["summary", "text.nc"], "text.nc cannot be read as netCDF"),
        (["summary", "trace.nc", "--exe", "model"], "go with CmdStan's CSV files"),
        (["summary", "trace.nc", "--fn", "nu"], "'nu': there is no such variable"),
        (["summary", "trace.nc", "--fn", "mu +"], "is not an expression"),
        (["summary", "trace.nc", "--var-names", "nu"], "--var-names 'nu' is not among"),
        (["summary", "trace.nc", "--output", "table.xls"], "has the suffix '.xls'"),
    ],
)
def test_errors_are_one_line(folder, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    assert message in fails(capsys, *arguments)


def test_files_may_follow_the_names(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    given = ["summary", "--family", "polynomial", "--json", "--var-names", "mu", "tau", "trace.nc"]
    assert run(*given) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["mu", "tau"]


@pytest.mark.parametrize(
    "given",
    [
        ["summary", "--json", "trace.nc", "--family", "polynomial"],
        ["summary", "--var-names", "mu", "--json", "trace.nc", "--family", "polynomial"],
    ],
)
def test_files_may_stand_between_options(folder, capsys, monkeypatch, given):
    monkeypatch.chdir(folder)
    assert run(*given) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["name"] == "mu"


def test_files_on_both_sides_of_an_option_belong_together(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    # Both are found; that they are not CSV files of one run is said later.
    message = fails(capsys, "summary", "trace.nc", "--json", "absent.nc")
    assert message == fails(capsys, "summary", "trace.nc", "absent.nc", "--json")


@pytest.mark.parametrize("given", [["summary", "trace.nc", "--jsn"], ["demo", "trace.nc"]])
def test_options_that_are_not_known_are_named(folder, capsys, monkeypatch, given):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        run(*given)
    assert stop.value.code == 2
    assert f"unrecognized arguments: {given[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("names", [["mu", "absent.nc"], ["trace.nc"]])
def test_a_file_that_is_missing_among_the_names_is_asked_for(folder, capsys, monkeypatch, names):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        run("summary", "--var-names", *names)
    assert stop.value.code == 2
    text = capsys.readouterr().err
    assert f"summary needs a FILE. No file is among the --var-names {names}" in text
    assert "write FILE before --var-names" in text


def test_debug_shows_the_traceback(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(Exception, match="holds no gradients"):
        run("summary", "bare.nc", "--debug")


@pytest.mark.parametrize(
    "arguments", [[], ["sumary"], ["summary"], ["plot", "trace.nc", "--kind", "pie"]]
)
def test_misspelt_commands_exit_with_two(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        run(*arguments)
    assert stop.value.code == 2
    assert "usage: az-cv" in capsys.readouterr().err


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "az-cv summary output-*.csv --exe ./model --data data.json" in text
    assert "exit status: 0 done" in text


@pytest.mark.parametrize(
    "given",
    [["-c", "import sys; from az_cv.cli import main; sys.exit(main())"], ["-m", "az_cv"]],
    ids=["az-cv", "python -m az_cv"],
)
def test_the_installed_command_runs(folder, given):
    command = [sys.executable, *given]
    done = subprocess.run(
        [*command, "summary", "trace.nc", "--family", "polynomial", "--var-names", "mu"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "mu" in done.stdout
    failed = subprocess.run(
        [*command, "summary", "absent.nc"], capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert failed.stderr == "az-cv: error: There is no file absent.nc.\n"
    misspelt = subprocess.run([*command, "sumary"], capture_output=True, text=True, check=False)
    assert misspelt.returncode == 2
    assert misspelt.stderr.startswith("usage: az-cv ")
