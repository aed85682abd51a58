"""CSV files of CmdStan, written here in its format, become a store piece by piece."""

import re
import tracemalloc

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.containers.idata import as_idata
from az_cv.sources import cmdstan_to_zarr, read_cmdstan_scores

pytest.importorskip("dask")
pytest.importorskip("zarr")

SAMPLER = ["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__"]
SAMPLER = [*SAMPLER, "energy__"]
HEADER = """\
# stan_version_major = 2
# stan_version_minor = 37
# stan_version_patch = 0
# model = {model}
# method = sample (Default)
#   sample
#     num_samples = {draws}
#     num_warmup = {warmup}
#     save_warmup = {saved}
#     thin = {thin}
#     adapt
#       engaged = true (Default)
#     algorithm = hmc (Default)
#       hmc
#         engine = nuts (Default)
#           nuts
#             max_depth = 10 (Default)
#         metric = diag_e (Default)
#         metric_file =  (Default)
#     num_chains = 1 (Default)
# id = {chain}
# data
#   file =  (Default)
# init = 2 (Default)
# random
#   seed = 1234
# output
#   file = output_{chain}.csv
#   diagnostic_file = {diagnostics}
#   sig_figs = 18
"""
ADAPTED = """\
# Adaptation terminated
# Step size = 0.9
# Diagonal elements of inverse mass matrix:
# 1, 1, 1
"""
END = """\
#
#  Elapsed Time: 0.1 seconds (Warm-up)
#                0.2 seconds (Sampling)
#                0.3 seconds (Total)
#
"""


def write_csv(path, names, rows, *, warmup=0, chain=1, thin=1, diagnostics="", draws=None):
    """Write a file as CmdStan does; `rows` begin with the warm-up."""
    kept = len(rows) - warmup
    with path.open("w") as file:
        file.write(
            HEADER.format(
                model="normal_model",
                draws=draws or kept * thin,
                warmup=warmup * thin or 1000,
                saved="true" if warmup else "false (Default)",
                thin=thin,
                chain=chain,
                diagnostics=diagnostics,
            )
        )
        file.write(",".join(names) + "\n")
        np.savetxt(file, rows[:warmup], delimiter=",", fmt="%.17g")
        file.write(ADAPTED)
        np.savetxt(file, rows[warmup:], delimiter=",", fmt="%.17g")
        file.write(END)


def sampler_columns(rng, x):
    """Return the columns of the sampler for draws of standard normal variables."""
    n = len(x)
    columns = np.empty((n, 7))
    columns[:, 0] = -(x**2).sum(axis=1) / 2
    columns[:, 1:3] = [0.9, 0.8]
    columns[:, 3:5] = rng.integers(1, 8, size=(n, 2))
    columns[:, 5] = rng.random(n) < 0.1
    columns[:, 6] = columns[:, 0] - 2
    return columns


@pytest.fixture
def run(tmp_path):
    """Write two chains of five normal variables, warm-up included, with diagnostic files."""
    names = ["mu", "B.1.1", "B.2.1", "B.1.2", "B.2.2"]
    derived = ["z.real", "z.imag", "pair:1", "pair:2.1", "pair:2.2"]
    momenta = [f"p_{name}" for name in names] + [f"g_{name}" for name in names]
    rng = np.random.default_rng(0)
    draws = []
    for chain in (1, 2):
        x = rng.normal(size=(3200, 5))
        x[:200] += 50  # warm-up, far away
        stats = sampler_columns(rng, x)
        told = f"diagnostics_{chain}.csv"
        write_csv(
            tmp_path / f"output_{chain}.csv",
            [*SAMPLER, *names, *derived],
            np.hstack([stats, x, x * 2]),
            warmup=200,
            chain=chain,
            diagnostics=told,
        )
        write_csv(
            tmp_path / told,
            [*SAMPLER, *names, *momenta],
            np.hstack([stats, x, rng.normal(size=x.shape), x]),
            warmup=200,
            chain=chain,
        )
        draws.append(x[200:])
    return tmp_path, np.stack(draws)


def files_of(folder):
    return sorted(folder.glob("*_[12].csv"))


def test_draws_keep_every_digit_and_their_places(run):
    folder, x = run
    data = cmdstan_to_zarr(files_of(folder), folder / "run.zarr", rows=270)
    posterior = data["posterior"]
    assert posterior["mu"].chunks is not None and posterior["mu"].shape == (2, 3000)
    np.testing.assert_array_equal(posterior["mu"], x[..., 0])
    # Stan lists matrices column by column.
    np.testing.assert_array_equal(posterior["B"][..., 1, 0], x[..., 2])
    np.testing.assert_array_equal(posterior["B"][..., 0, 1], x[..., 3])
    np.testing.assert_array_equal(posterior["z"], 2 * x[..., 0] + 2j * x[..., 1])
    np.testing.assert_array_equal(posterior["pair:2"][..., 1], 2 * x[..., 4])
    scores = data["cv_scores"]
    np.testing.assert_array_equal(scores["unconstrained_draw"], x)
    np.testing.assert_array_equal(scores["gradient"], -x)
    assert scores.attrs["gradients"] == "sampler"


def test_names_types_and_values_are_those_of_cmdstanpy_and_arviz(run):
    pytest.importorskip("cmdstanpy")
    folder, _ = run
    data = cmdstan_to_zarr(files_of(folder), folder / "run.zarr")
    other, scores = read_cmdstan_scores(files_of(folder))
    for group in ("posterior", "sample_stats"):
        # With a warm-up that was saved, ArviZ leaves it in the statistics of the sampler.
        expected = other[group].to_dataset().isel(draw=slice(-3000, None))
        found = data[group].to_dataset()
        assert set(found.data_vars) == set(expected.data_vars)
        for name, values in expected.data_vars.items():
            assert found[name].dims == values.dims and found[name].dtype == values.dtype, name
            np.testing.assert_allclose(found[name], values, rtol=1e-12)
    found = data["cv_scores"].to_dataset()
    xr.testing.assert_allclose(found.drop_attrs(), scores.drop_attrs())
    assert found.attrs.items() >= {"source": scores.attrs["source"]}.items()


def test_means_of_a_gaussian_are_exact_beyond_memory(run):
    folder, _ = run
    data = cmdstan_to_zarr(files_of(folder), folder / "run.zarr", rows=500)
    pieces = {}
    for limit in ("1GB", "1MiB"):
        table = az_cv.summary(
            data, var_names=["mu", "B"], memory_limit=limit, round_to="none", progressbar=False
        )
        pieces[limit] = "stream" in table.attrs
        np.testing.assert_allclose(table["mean"], 0, atol=1e-8)
        np.testing.assert_allclose(table["sd"], 1, atol=1e-6)
    assert pieces == {"1GB": False, "1MiB": True}


def test_memory_does_not_grow_with_the_files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40_000, 30))
    names = [*SAMPLER, *(f"theta.{k + 1}" for k in range(30))]
    write_csv(tmp_path / "output_1.csv", names, np.hstack([sampler_columns(rng, x), x]))
    size = (tmp_path / "output_1.csv").stat().st_size
    assert size > 25e6
    cmdstan_to_zarr([tmp_path / "output_1.csv"], tmp_path / "first.zarr", rows=20_000)  # imports
    tracemalloc.start()
    data = cmdstan_to_zarr([tmp_path / "output_1.csv"], tmp_path / "run.zarr", rows=1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 8
    np.testing.assert_array_equal(data["posterior/theta"][0], x)
    assert "cv_scores" not in data.children


def test_thinned_runs_have_fewer_rows_than_samples(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(34, 2))
    rows = np.hstack([sampler_columns(rng, x), x])
    write_csv(tmp_path / "a.csv", [*SAMPLER, "a", "b"], rows, thin=3, draws=100)
    assert cmdstan_to_zarr([tmp_path / "a.csv"], tmp_path / "a.zarr")["posterior"].sizes == {
        "chain": 1,
        "draw": 34,
    }


def shorten(path, lines):
    text = path.read_text().splitlines(keepends=True)
    path.write_text("".join(text[:-lines]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: shorten(path, 200), "has 2805 draws where 3000 are announced"),
        (lambda path: path.write_text(re.sub(r"(?m),[^,\n]*\n#\n#  El", "\n#\n#  El",
                                             path.read_text())), "is damaged after draw 2970"),
        (lambda path: path.write_text(path.read_text().replace("num_samples = 3000", "")),
         "do not say how many draws"),
        (lambda path: path.write_text(path.read_text().replace("num_samples = 3000",
                                                               "num_samples = 2900")),
         "or others. Pass the chains of one run"),
    ],
)  # fmt: skip
def test_files_that_are_not_whole_are_named_and_nothing_is_left(run, damage, message):
    folder, _ = run
    damage(folder / "output_2.csv")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=message):
        cmdstan_to_zarr(files_of(folder), folder / "run.zarr", rows=270)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_diagnostics_of_another_run_are_refused(run):
    folder, _ = run
    (folder / "diagnostics_1.csv").write_text((folder / "diagnostics_2.csv").read_text())
    with pytest.raises(ValueError, match="belongs to another run"):
        cmdstan_to_zarr(files_of(folder), folder / "run.zarr")
    assert not (folder / "run.zarr").exists()


def test_an_interrupt_leaves_nothing_and_the_next_call_is_whole(run, monkeypatch):
    folder, x = run
    read, count = np.loadtxt, []

    def interrupted(*arguments, **settings):
        count.append(1)
        if len(count) == 4:
            raise KeyboardInterrupt
        return read(*arguments, **settings)

    before = {path.name for path in folder.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(np, "loadtxt", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cmdstan_to_zarr(files_of(folder), folder / "run.zarr", rows=270)
    assert {path.name for path in folder.iterdir()} == before
    data = cmdstan_to_zarr(files_of(folder), folder / "run.zarr", rows=270)
    np.testing.assert_array_equal(data["posterior/mu"], x[..., 0])
    with pytest.raises(FileExistsError, match="Choose another place"):
        cmdstan_to_zarr(files_of(folder), folder / "run.zarr")
    with pytest.raises(ValueError, match="rows must be"):
        cmdstan_to_zarr(files_of(folder), folder / "other.zarr", rows=0)
    assert as_idata(data) is data
