"""Posteriors beyond memory: lazy arrays, real Zarr stores, real processes that die."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.engine.streaming.graph import map_reduce
from az_cv.engine.streaming.pieces import Segment

pytest.importorskip("dask")

LIMIT = "2MB"
DIMS = ("chain", "draw", "unconstrained_parameter")


def bent_tree(draws=2000, d=3, seed=0):
    """Return a tree with scores, in memory. The means are 0, the sds known."""
    z = np.random.default_rng(seed).normal(size=(4, draws, d))
    x, s = z.copy(), -z
    x[..., 1:] += 0.3 * (z[..., :1] ** 2 - 1)
    s[..., 0] += 0.6 * z[..., 0] * z[..., 1:].sum(axis=-1)
    labels = {"chain": range(4), "draw": range(draws)}
    posterior = xr.Dataset(
        {"theta": (("chain", "draw", "k"), x), "e": (("chain", "draw"), np.exp(0.3 * x[..., 1]))},
        coords=labels,
    )
    return xr.DataTree.from_dict(
        {"posterior": posterior, "cv_scores": az_cv.scores_dataset(x, s, coords=labels)}
    )


def chunked(tree, **sizes):
    groups = {name: node.to_dataset().chunk(sizes) for name, node in tree.children.items()}
    return xr.DataTree.from_dict(groups)


def estimates(result):
    return np.concatenate([np.ravel(v.values) for v in result.estimates.data_vars.values()])


def test_a_zarr_store_is_summarised_in_pieces(tmp_path):
    pytest.importorskip("zarr")
    tree = bent_tree()
    tree.to_zarr(tmp_path / "trace.zarr", zarr_format=2)
    with xr.open_datatree(tmp_path / "trace.zarr", engine="zarr", chunks={}) as stored:
        table = az_cv.summary(stored, memory_limit=LIMIT, round_to="none", progressbar=False)
        assert {"cv_draws", "cv_summary"} <= set(stored.children)
    inner = az_cv.summary(tree, family="polynomial", round_to="none", attach=False)
    assert list(table.columns) == list(inner.columns)
    assert set(table.index) == set(inner.index)
    assert "Read in pieces" in str(table) and "draw, uncorrected" in str(table)
    truth = np.array([1.0, np.sqrt(1.18), np.sqrt(1.18)])
    rows = table.loc[["theta[0]", "theta[1]", "theta[2]"]]
    assert (np.abs(rows["mean"] / rows["mcse_mean"]) < 4).all()
    assert (np.abs((rows["sd"] - truth) / rows["mcse_sd"]) < 4).all()
    assert (rows["vrf_mean"] > 100).all()
    interval = table.iloc[:, 2:4].to_numpy()
    assert (interval[:, 0] < table["mean"]).all() and (interval[:, 1] > table["mean"]).all()


def test_logarithms_of_gamma_variables_have_their_known_means_and_sds(rng):
    from scipy.special import digamma, polygamma

    g = rng.gamma(3, size=(4, 2000, 3))
    posterior = xr.Dataset({"theta": (("chain", "draw", "k"), np.log(g))}).chunk(draw=700)
    scores = az_cv.scores_dataset(np.log(g), 3 - g)
    inner = az_cv.fit(posterior, scores=scores, family="polynomial", progressbar=False)
    outer = az_cv.fit(
        posterior, scores=scores, family="polynomial", memory_limit=LIMIT, progressbar=False
    )
    assert "stream" in outer.settings and "stream" not in inner.settings
    for what, truth in (("mean", digamma(3)), ("sd", np.sqrt(polygamma(1, 3)))):
        found, error = (outer.estimates["theta"].sel(summary=s) for s in (what, f"mcse_{what}"))
        assert (np.abs(found - truth) < 4 * error).all()
    np.testing.assert_allclose(
        outer.estimates["theta"].sel(summary="plain_mean"),
        inner.estimates["theta"].sel(summary="plain_mean"),
        atol=1e-12,
    )
    assert (outer.estimates["theta"].sel(summary="vrf_mean") > 50).all()


def test_lazy_arrays_and_arrays_in_memory_give_the_same():
    tree = bent_tree()
    inner = az_cv.fit(tree, memory_limit=LIMIT, progressbar=False)
    outer = az_cv.fit(chunked(tree, draw=2000, chain=1), memory_limit=LIMIT, progressbar=False)
    assert "stream" in inner.settings
    np.testing.assert_allclose(estimates(outer), estimates(inner), rtol=1e-7, atol=1e-12)


def test_what_fits_is_loaded_as_before():
    lazy = chunked(bent_tree(draws=100), draw=50)
    result = az_cv.fit(lazy, family="polynomial", memory_limit="100MB", progressbar=False)
    assert "stream" not in result.settings


def test_functions_are_evaluated_piece_by_piece():
    lazy = chunked(bent_tree(), draw=500)
    largest = []

    def seen(block):
        largest.append(block.shape[1])
        return np.sin(block)

    def fn(posterior):
        return posterior["theta"].copy(data=posterior["theta"].data.map_blocks(seen, dtype=float))

    result = az_cv.fit(lazy, fn, memory_limit=LIMIT, progressbar=False)
    assert result.estimates["fn"].sizes["k"] == 3
    assert max(largest) <= 500


def test_the_data_are_not_touched():
    lazy = chunked(bent_tree(), draw=500)
    before = lazy.copy(deep=True)
    az_cv.fit(lazy, memory_limit=LIMIT, progressbar=False)
    assert lazy.identical(before)
    assert lazy["posterior"]["theta"].chunks is not None


@pytest.mark.parametrize("family", ["polynomial", "auto"])
def test_averages_over_batches_have_the_mean_and_the_error_of_the_estimate(family):
    from arviz_stats.base import array_stats

    lazy = chunked(bent_tree(), draw=500)
    result = az_cv.fit(lazy, family=family, memory_limit=LIMIT, progressbar=False)
    values = result.draws["e"].values
    assert values.shape[1] < 2000
    found = result.estimates["e"]
    assert values.mean() == pytest.approx(float(found.sel(summary="mean")), abs=1e-9)
    error = float(array_stats.mcse(values, chain_axis=0, draw_axis=1, method="mean"))
    claimed = float(found.sel(summary="mcse_mean"))
    if family == "polynomial":
        assert error == pytest.approx(claimed, rel=0.3)
    else:  # a kernel's error has a part that no residual shows
        assert 0.1 * claimed < error < claimed


def test_many_quantities_are_answered_in_blocks(monkeypatch):
    monkeypatch.setattr("az_cv.labelled.plain_columns.MAX_QUANTITIES", 500)
    monkeypatch.setattr("az_cv.labelled.streaming.MAX_QUANTITIES", 500)
    tree = bent_tree(draws=100)
    factor = xr.DataArray(np.linspace(1, 2, 1500), dims="t").chunk(t=100)
    fn = {"f": lambda post: post["theta"].isel(k=1) * factor}
    many = {"f": lambda post: post["theta"].isel(k=1) * xr.DataArray(np.ones(21_000), dims="t")}
    with pytest.raises(ValueError, match="memory_limit="):
        az_cv.fit(tree, many, family="polynomial")
    table = az_cv.summary(
        chunked(tree, draw=100, chain=4),
        fn,
        family="polynomial",
        memory_limit="15MB",
        progressbar=False,
        round_to="none",
        attach=False,
    )
    assert len(table) == 1500
    assert "left out" in table.attrs["uncorrected"]
    np.testing.assert_allclose(table["mean"] / factor.values, table["mean"].iloc[0], rtol=1e-6)


def trained(lazy):
    return az_cv.fit(
        lazy,
        var_names=["theta"],
        family=az_cv.NeuralNetwork(widths=(32,)),
        solver=az_cv.SGD(strength=1.0, batch_size=64, num_epochs=10),
        random_seed=0,
        memory_limit="2.2MB",
        progressbar=False,
    )


def test_networks_are_trained_on_lazy_arrays():
    lazy = chunked(bent_tree(), draw=500, chain=1)
    result = trained(lazy)
    assert result.settings["solver"] == "SGD, in pieces"
    assert "training on minibatches" in result.settings["stream"]
    assert set(result.history["fold"]) == {0, 1}
    found = result.estimates["theta"]
    assert (found.sel(summary="vrf_mean") > 20).all()
    assert (np.abs(found.sel(summary="mean") / found.sel(summary="mcse_mean")) < 4).all()
    assert lazy["posterior"]["theta"].chunks is not None


PEAK = """
import resource, sys
import dask.array as da
import xarray as xr
import az_cv

z = da.random.default_rng(0).normal(size=(4, int(sys.argv[1]) // 4, 10), chunks=(1, 5000, 10))
posterior = xr.Dataset({"theta": (("chain", "draw", "k"), z[..., :3])})
names = ("chain", "draw", "unconstrained_parameter")
scores = xr.Dataset({"unconstrained_draw": (names, z), "gradient": (names, -z)})
az_cv.fit(
    posterior, scores=scores, family=az_cv.NeuralNetwork(widths=(16,)),
    solver=az_cv.SGD(strength=1.0, num_epochs=2), random_seed=0, memory_limit="8MB",
    progressbar=False,
)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="Peak memory has other units elsewhere.")
def test_the_memory_of_training_does_not_grow_with_the_draws():
    def peak(draws):
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(draws)], capture_output=True, text=True, check=True
        )
        return int(done.stdout.splitlines()[-1])

    # What libraries set aside grows with the first passes, by tens of megabytes.
    few, many = 240_000, 2_400_000
    more = (many - few) * 8 * 23  # bytes of draws, scores and quantities
    assert peak(many) - peak(few) < 0.3 * more


def test_scores_that_are_not_there_are_asked_for():
    lazy = chunked(bent_tree(), draw=500)
    del lazy["cv_scores"]
    with pytest.raises(ValueError, match="write_scores"):
        az_cv.summary(lazy, model=lambda x: -x, memory_limit="1MiB")


def test_weights_are_refused():
    lazy = chunked(bent_tree(), draw=500)
    weights = xr.DataArray(np.zeros((4, 2000)), dims=("chain", "draw"))
    with pytest.raises(ValueError, match="not read in pieces"):
        az_cv.fit(lazy, log_weights=weights, memory_limit=LIMIT)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=4,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        memory_limit=None,
        silence_logs=50,
    ) as started:
        yield started


def slowly(block):
    time.sleep(0.1)
    return block


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_four_processes_give_what_one_gives(cluster):
    from distributed import Client

    lazy = chunked(bent_tree(), draw=500, chain=1)
    inner = az_cv.fit(lazy, memory_limit=LIMIT, progressbar=False)
    with Client(cluster):
        outer = az_cv.fit(lazy, memory_limit=LIMIT, progressbar=False)
    np.testing.assert_allclose(estimates(outer), estimates(inner), rtol=1e-10, atol=1e-13)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_costs_time_and_nothing_else(cluster):
    from distributed import Client

    lazy = chunked(bent_tree(), draw=500, chain=1)
    expected = az_cv.fit(lazy, memory_limit=LIMIT, progressbar=False)
    slow = lazy.copy()
    scores = slow["cv_scores"].to_dataset()
    data = scores["gradient"].data.map_blocks(slowly, dtype=float)
    scores["gradient"] = (DIMS, data)
    slow["cv_scores"] = xr.DataTree(scores)
    killed = []
    with Client(cluster) as client:
        pids = client.run(os.getpid)
        client.wait_for_workers(4)

        def kill():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

        pid = next(iter(pids.values()))
        timer = threading.Timer(3.0, kill)
        timer.start()
        result = az_cv.fit(slow, memory_limit=LIMIT, progressbar=False)
        timer.join()
        after = set(client.run(os.getpid).values())
    assert killed and killed[0] not in after
    np.testing.assert_allclose(estimates(result), estimates(expected), rtol=1e-10, atol=1e-13)


def dies_once(path, segment):
    """Kill the process at the first call; ``path`` remembers that it was done."""
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return segment.fold


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_what_is_shared_outlives_every_worker_that_held_it(tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as lonely,
        distributed.Client(lonely),
    ):
        segments = [Segment(fold, []) for fold in (0, 1, 0, 1, 1)]
        shared = dict.fromkeys((0, 1), tmp_path / "died")
        assert map_reduce(dies_once, shared, segments, sum, workers=1) == {0: 0, 1: 3}
    assert (tmp_path / "died").exists()
