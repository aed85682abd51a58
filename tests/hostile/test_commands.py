"""Bad and odd commands and files, by name, with what must happen to every file in the folder."""

import gzip
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.cli import main

NAMES = {"lambda": "tau", "µ": "mu", "b.1": "mu", "pair:1": "theta", "max": "tau"}


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Make a folder with traces, damaged traces, and things that are none."""
    folder = tmp_path_factory.mktemp("template")
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))

    def write(tree, name):
        tree.to_netcdf(folder / name, engine="h5netcdf")

    def variant(posterior, scores=None):
        groups = {"posterior": posterior, "cv_scores": scores or data["cv_scores"].to_dataset()}
        return xr.DataTree.from_dict(groups)

    posterior = data["posterior"].to_dataset()
    write(data, "trace.nc")
    for name in ("trace.zarr", "chunk.zarr", "json.zarr"):
        data.to_zarr(folder / name, zarr_format=2)
    write(data.drop_nodes("cv_scores"), "bare.nc")
    write(xr.DataTree.from_dict({"prior": posterior}), "prior.nc")
    write(variant(posterior.assign(y=posterior["mu"].where(posterior["mu"] > 4))), "nan.nc")
    later = az_cv.load_eight_schools().isel(draw=slice(500, 560))["posterior"].to_dataset()
    write(variant(later.assign_coords(draw=posterior["draw"])), "stale.nc")
    write(variant(posterior.assign({new: posterior[old] for new, old in NAMES.items()})), "odd.nc")
    other = az_cv.load_eight_schools().isel(draw=slice(100, 160))
    write(other, "other.nc")
    more = data.copy()
    more["log_likelihood"] = xr.DataTree(posterior[["theta"]])
    write(more, "more.nc")
    whole = (folder / "trace.nc").read_bytes()
    (folder / "UPPER.NC").write_bytes(whole)
    (folder / "cut.nc").write_bytes(whole[: len(whole) // 2])
    (folder / "flipped.nc").write_bytes(whole[:2000] + bytes(500) + whole[2500:])
    (folder / "empty.nc").write_bytes(b"")
    (folder / "text.nc").write_text("no trace")
    (folder / "object.nc").write_text(json.dumps({"posterior": {}}))
    (folder / "packed.nc").write_bytes(gzip.compress(whole))
    with zipfile.ZipFile(folder / "archive.nc", "w") as archive:
        archive.writestr("a", "b")
    xr.Dataset({"mu": (("chain", "draw"), np.zeros((2, 3)))}).to_netcdf(
        folder / "classic.nc", engine="scipy"
    )
    chunk = next(path for path in (folder / "chunk.zarr/posterior/theta").rglob("0*.0*.0*"))
    chunk.write_bytes(chunk.read_bytes()[:40])
    (folder / "json.zarr/.zmetadata").write_text("{")
    shutil.copytree(folder / "trace.zarr", folder / "gone.zarr")
    shutil.rmtree(folder / "gone.zarr/posterior")
    (folder / "gone.zarr/.zmetadata").unlink()
    (folder / "precious.zarr").mkdir()
    (folder / "precious.zarr/thesis.txt").write_text("years of work")
    (folder / "void.zarr").mkdir()
    (folder / "folder.csv").mkdir()
    (folder / "notes.txt").write_text("az_cv and its vrf_mean\nare useful")
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n photo")
    (folder / "draws.csv").write_text("lp__,mu\n1,2\n")
    (folder / "numbers.csv").write_text("a,b\n1,2\n")
    (folder / "binary.csv").write_bytes(bytes(range(256)))
    (folder / "void.csv").write_text("")
    return folder


@pytest.fixture
def folder(template, tmp_path, monkeypatch):
    path = tmp_path / "folder"
    shutil.copytree(template, path)
    os.mkfifo(path / "pipe.nc")
    os.mkfifo(path / "pipe.csv")
    (path / "link.nc").symlink_to("trace.nc")
    (path / "circle.nc").symlink_to("circle.nc")
    _store_pickled(path / "pickled.zarr", path / "executed")
    monkeypatch.chdir(path)
    return path


def _store_pickled(store, target):
    """Write a Zarr array of format 2 whose only chunk is a pickle that makes `target`."""
    for group in (store, store / "posterior"):
        group.mkdir()
        (group / ".zgroup").write_text('{"zarr_format": 2}')
    array = store / "posterior/mu"
    array.mkdir()
    (array / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["chain"]}')
    metadata = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": [{"id": "pickle", "protocol": 4}],
    }
    (array / ".zarray").write_text(json.dumps(metadata))
    (array / "0").write_bytes(pickle.dumps(Payload(target), protocol=4))


def contents(folder):
    """Return the digest of every file, and the kind of everything else."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[path] = os.readlink(path)
        elif path.is_file():
            found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[path] = "folder" if path.is_dir() else "pipe"
    return found


MU = ["--family", "polynomial", "--var-names", "mu"]
SUMMARY = ["summary", "trace.nc", *MU]
FN = ["--family", "polynomial", "--json", "--fn"]

# name: command, exit status, a part of what is printed on standard error, what may change
COMMANDS = {
    # files to read
    "no such file": (["summary", "no.nc"], 1, "There is no file no.nc", ()),
    "an address": (["summary", "https://example.org/a.nc"], 1, "There is no file https:/", ()),
    "a pipe": (["summary", "pipe.nc"], 1, "pipe.nc is no regular file", ()),
    "a pipe of draws": (["summary", "pipe.csv"], 1, "pipe.csv is no regular file", ()),
    "a folder of draws": (["summary", "folder.csv"], 1, "folder.csv is no regular file", ()),
    "a link in a circle": (["summary", "circle.nc"], 1, "circle.nc", ()),
    "a link to a trace": (["summary", "link.nc", *MU], 0, "", ()),
    "a suffix in capitals": (["summary", "UPPER.NC", *MU], 0, "", ()),
    "an empty file": (["summary", "empty.nc"], 1, "empty.nc is empty", ()),
    "text": (["summary", "text.nc"], 1, "begins with b'no trace', not as an HDF5 file", ()),
    "JSON": (["summary", "object.nc"], 1, "object.nc is JSON", ()),
    "gzip": (["summary", "packed.nc"], 1, "compressed by gzip. Unpack it first", ()),
    "zip": (["summary", "archive.nc"], 1, "a zip archive. Unpack it first", ()),
    "classic netCDF": (["summary", "classic.nc"], 1, "the classic format, which has no groups", ()),
    "half a file": (["summary", "cut.nc"], 1, "cut.nc is damaged, or no trace", ()),
    "a file with a hole": (["summary", "flipped.nc", *MU], 1, "az-cv: error: ", ()),
    "a store with half a chunk": (["summary", "chunk.zarr"], 1, "chunk.zarr is damaged", ()),
    "a store with broken metadata": (["summary", "json.zarr"], 1, ".zmetadata is no JSON", ()),
    "a store without posterior": (["summary", "gone.zarr"], 1, "There is no group 'posterior'", ()),
    "a folder that is no store": (["summary", "precious.zarr"], 1, "no Zarr store", ()),
    "an empty folder": (["summary", "void.zarr"], 1, "no Zarr store", ()),
    "a store that holds a program": (["summary", "pickled.zarr"], 1, "runs what they say", ()),
    "a trace without gradients": (["summary", "bare.nc"], 1, "bare.nc holds no gradients", ()),
    "a trace without posterior": (["summary", "prior.nc"], 1, "Available: ['prior']", ()),
    "two traces": (["summary", "trace.nc", "other.nc"], 1, "2 files are given", ()),
    "a trace and draws": (["summary", "trace.nc", "draws.csv"], 1, "2 files are given", ()),
    "a trace and a program": (
        ["summary", "trace.nc", "--exe", "./model"], 1, "go with CmdStan's CSV files", ()),
    "draws that CmdStan did not write": (["summary", "numbers.csv"], 1, "az-cv: error: ", ()),
    "draws that are bytes": (["summary", "binary.csv"], 1, "az-cv: error: ", ()),
    "draws without a line": (["summary", "void.csv"], 1, "az-cv: error: ", ()),
    "rows of nan": (
        ["summary", "nan.nc", "--family", "polynomial"], 1, "1 of 11 quantities are not", ()),
    "a posterior that was replaced": (
        ["summary", "stale.nc", *MU], 0, "nothing to do with the draws", ()),
    "check of a pipe": (["check", "pipe.nc"], 1, "no regular file", ()),
    "check of half a file": (["check", "cut.nc"], 1, "damaged", ()),
    "plot of a store with half a chunk": (["plot", "chunk.zarr"], 1, "damaged", ()),
    # places to write to
    "onto the input": ([*SUMMARY, "--output", "trace.nc"], 0, "", ("trace.nc",)),
    "onto the input through a link": ([*SUMMARY, "--output", "link.nc"], 0, "", ("trace.nc",)),
    "onto the input, a store": (
        ["summary", "trace.zarr", *MU, "--output", "trace.zarr"], 0, "", ("trace.zarr",)),
    "a store from a file": ([*SUMMARY, "--output", "new.zarr"], 0, "", ("new.zarr",)),
    "a file from a store": (
        ["summary", "trace.zarr", *MU, "--output", "new.nc"], 0, "", ("new.nc",)),
    "a name in capitals": ([*SUMMARY, "--output", "new.CSV"], 0, "", ("new.CSV",)),
    "onto a folder that is no store": (
        [*SUMMARY, "--output", "precious.zarr"], 1, "exists and is no trace", ()),
    "onto such a folder, by force": (
        [*SUMMARY, "--output", "precious.zarr", "--force"], 0, "", ("precious.zarr",)),
    "onto an empty folder": ([*SUMMARY, "--output", "void.zarr"], 0, "", ("void.zarr",)),
    "onto another trace": (
        [*SUMMARY, "--output", "other.nc"], 1, "is a trace whose posterior would be lost", ()),
    "onto a trace with more": (
        [*SUMMARY, "--output", "more.nc"], 1, "whose log_likelihood would be lost", ()),
    "onto a trace with less": ([*SUMMARY, "--output", "bare.nc"], 0, "", ("bare.nc",)),
    "onto a file that is no trace": (
        [*SUMMARY, "--output", "text.nc"], 1, "exists and is no trace", ()),
    "onto half a file": ([*SUMMARY, "--output", "cut.nc"], 1, "exists and is no trace", ()),
    "onto a pipe": ([*SUMMARY, "--output", "pipe.csv"], 1, "neither a file nor a folder", ()),
    "onto a link in a circle": ([*SUMMARY, "--output", "circle.nc"], 1, "circle.nc", ()),
    "onto a folder of that name": ([*SUMMARY, "--output", "folder.csv"], 1, "is a folder", ()),
    "onto notes": ([*SUMMARY, "--output", "notes.txt"], 1, "az-cv did not write it", ()),
    "onto notes, by force": (
        [*SUMMARY, "--output", "notes.txt", "--force"], 0, "", ("notes.txt",)),
    "onto draws": ([*SUMMARY, "--output", "draws.csv"], 1, "az-cv did not write it", ()),
    "a table onto the draws it is of": (
        ["summary", "draws.csv", "--output", "draws.csv", "--force"], 1, "is an input", ()),
    "a plot onto a photo": (
        ["plot", "trace.nc", *MU, "--output", "photo.png"], 1, "az-cv did not write it", ()),
    "a plot onto its trace": (
        ["plot", "trace.nc", *MU, "--output", "trace.nc"], 1, "has the suffix '.nc'", ()),
    "a table into the store it is of": (
        ["summary", "trace.zarr", *MU, "--output", "trace.zarr/a.csv"], 1, "lie in each other", ()),
    "a folder that is not there": (
        [*SUMMARY, "--output", "no/table.csv"], 1, "Make it first", ()),
    "a suffix nobody knows": ([*SUMMARY, "--output", "a.xls"], 1, "has the suffix '.xls'", ()),
    "no suffix": ([*SUMMARY, "--output", "table"], 1, "has the suffix ''", ()),
    "a plot of an unknown kind of file": (
        ["plot", "trace.nc", *MU, "--output", "a.gif"], 1, "has the suffix '.gif'", ()),
    "a name longer than names may be": (
        [*SUMMARY, "--output", "a" * 300 + ".csv"], 1, "az-cv: error: ", ()),
    # functions
    "an expression that is none": ([*SUMMARY, "--fn", "mu +"], 1, "is not an expression", ()),
    "an expression without a variable": ([*SUMMARY, "--fn", "1 + 1"], 1, "uses no variable", ()),
    "an unknown name": ([*SUMMARY, "--fn", "nu"], 1, "there is no such variable", ()),
    "a keyword as a name": (
        ["summary", "odd.nc", *FN, "lambda > 1"], 1, 'quoted, such as "lambda"', ()),
    "an unknown label": ([*SUMMARY, "--fn", "theta[Eton]"], 1, "has no label 'Eton'", ()),
    "a call of Python": ([*SUMMARY, "--fn", "__import__('os')"], 1, "the functions are", ()),
    "an attribute": ([*SUMMARY, "--fn", "mu.values"], 1, "not part of the grammar", ()),
    "a tower of powers": (
        [*SUMMARY[:2], "--family", "polynomial", "--fn", "9**9**9**9*mu"], 1, "not finite", ()),
    "a null byte": ([*SUMMARY, "--fn", "mu\0"], 1, "is not an expression", ()),
    "ten thousand brackets": ([*SUMMARY, "--fn", "(" * 10_000], 1, "at most 1000 are read", ()),
    "a function that is selected away": (
        [*SUMMARY, "--fn", "tau"], 1, "'mu' is not among the variables: ['tau']", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_command(name, folder, capsys):
    arguments, status, message, changed = COMMANDS[name]
    before = contents(folder)
    assert main(arguments) == status
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    if status == 1 and "warning" not in printed.err:
        assert printed.err.count("\n") == 1
    after = contents(folder)
    touched = {
        path.relative_to(folder).parts[0]
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }
    assert touched == set(changed)
    for target in changed:
        if Path(target).suffix in (".nc", ".zarr"):
            assert main(["summary", target, *MU]) == 0  # readable


# name: file, expression, the mean that must come out
VALUES = {
    "a division": ("trace.nc", "mu/tau", lambda post: post["mu"] / post["tau"]),
    "a minus in front": ("trace.nc", "-mu", lambda post: -post["mu"]),
    "two minuses in front": ("trace.nc", "--mu", lambda post: post["mu"]),
    "a sum of comparisons": (
        "trace.nc", "(mu>0)+(tau>1)",
        lambda post: (post["mu"] > 0) * 1.0 + (post["tau"] > 1) * 1.0),
    "a difference of comparisons": (
        "trace.nc", "(mu>0)-(tau>1)",
        lambda post: (post["mu"] > 0) * 1.0 - (post["tau"] > 1) * 1.0),
    "minus a comparison": ("trace.nc", "-(mu>0)", lambda post: -1.0 * (post["mu"] > 0)),
    "a power of a comparison": ("trace.nc", "(mu>4)**2", lambda post: 1.0 * (post["mu"] > 4)),
    "a comparison of comparisons": (
        "trace.nc", "(mu>4)==(tau>3)", lambda post: (post["mu"] > 4) == (post["tau"] > 3)),
    "a count": ("trace.nc", "sum(theta>5)", lambda post: (post["theta"] > 5).sum("school")),
    "the exponential of a comparison": (
        "trace.nc", "exp(mu>4)", lambda post: np.exp(1.0 * (post["mu"] > 4))),
    "a keyword, quoted": ("odd.nc", '"lambda" + 1', lambda post: post["tau"] + 1),
    "a letter that Python changes": ("odd.nc", "µ * 2", lambda post: post["mu"] * 2),
    "the same, quoted": ("odd.nc", '"µ" * 2', lambda post: post["mu"] * 2),
    "a dot, quoted": ("odd.nc", "'b.1' * 2", lambda post: post["mu"] * 2),
    "a member of a tuple": (
        "odd.nc", '"pair:1"[Choate]', lambda post: post["theta"].sel(school="Choate")),
    "a variable called max": ("odd.nc", "max(max)", lambda post: post["tau"]),
    "a label with a quote": (
        "trace.nc", 'theta["St. Paul\'s"]', lambda post: post["theta"].sel(school="St. Paul's")),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_value(name, folder, capsys):
    file, expression, function = VALUES[name]
    assert main(["summary", file, *FN, expression]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    data = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    expected = az_cv.summary(data, {"f": function}, family="polynomial", round_to="none")
    assert row["name"] == expression.strip()
    assert row["mean"] == pytest.approx(expected.loc["f", "mean"], rel=1e-9, abs=1e-12)
    assert row["mcse_mean"] == pytest.approx(expected.loc["f", "mcse_mean"], rel=1e-6)


def test_a_name_with_a_slash_survives_the_file(folder, capsys):
    command = ["summary", "trace.nc", "--family", "polynomial", "--fn", "mu/tau"]
    for output in ("a.nc", "a.zarr"):
        assert main([*command, "--output", output]) == 0
        assert "mu/tau" in capsys.readouterr().out
        stored = xr.open_datatree(output, engine=None if output == "a.nc" else "zarr")
        assert [v.attrs["az_cv_label"] for v in stored["cv_summary"].data_vars.values()] == [
            "mu/tau"
        ]
        assert az_cv.plots.plot_forest(stored).get_yticklabels()[0].get_text() == "mu/tau"
        stored.close()


def test_the_content_of_a_trace_survives(folder):
    assert main([*SUMMARY, "--output", "trace.nc"]) == 0
    assert main([*SUMMARY, "--output", "trace.zarr"]) == 0
    expected = az_cv.load_eight_schools().isel(draw=slice(None, 60))
    for name, engine in (("trace.nc", "h5netcdf"), ("trace.zarr", "zarr")):
        with xr.open_datatree(name, engine=engine) as tree:
            for group in ("posterior", "cv_scores"):
                xr.testing.assert_equal(tree[group].to_dataset(), expected[group].to_dataset())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_that_does_not_know_a_letter(folder, encoding):
    command = [sys.executable, "-c", "import sys; from az_cv.cli import main; sys.exit(main())"]
    done = subprocess.run(
        [*command, "summary", "odd.nc", "--family", "polynomial", "--var-names", "µ"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    shown = "\\xb5" if encoding == "ascii" else "µ"
    assert shown.encode(encoding) in done.stdout


def test_permissions_of_a_file_stay(folder):
    (folder / "trace.nc").chmod(0o640)
    assert main([*SUMMARY, "--output", "trace.nc"]) == 0
    assert (folder / "trace.nc").stat().st_mode & 0o777 == 0o640


def test_the_table_is_not_lost_with_the_file(folder, capsys, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(xr.DataTree, "to_netcdf", full)
    assert main([*SUMMARY, "--output", "new.nc"]) == 1
    printed = capsys.readouterr()
    assert "vrf_mean" in printed.out
    assert "new.nc cannot be written: No space left on device. Nothing was written." in printed.err
