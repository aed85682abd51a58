"""Scores written piece by piece: what is interrupted goes on where it stopped."""

import errno

import numpy as np
import pytest
import xarray as xr

from az_cv.sources import write_scores

pytest.importorskip("dask")
pytest.importorskip("zarr")


@pytest.fixture
def posterior(rng):
    x = rng.normal(size=(2, 100, 3))
    return xr.Dataset({"x": (("chain", "draw", "k"), x)}).chunk(draw=25)


class Gradient:
    """A gradient that counts the draws it is asked for, and stops when told."""

    def __init__(self, stop=None, error=KeyboardInterrupt):
        self.draws, self.stop, self.error = 0, stop, error

    def __call__(self, x):
        if np.ndim(x) == 2 and len(x) > 3:
            if self.stop is not None and self.draws >= self.stop:
                raise self.error
            self.draws += len(x)
        return -x


def test_scores_are_written_with_the_labels_of_the_posterior(posterior, tmp_path):
    posterior = posterior.assign_coords(chain=[3, 5], draw=range(10, 110))
    found = write_scores(posterior, tmp_path / "s.zarr", model=lambda x: -x, rows=40)
    assert found["gradient"].chunks is not None
    np.testing.assert_array_equal(found["unconstrained_draw"], posterior["x"])
    np.testing.assert_array_equal(found["gradient"], -posterior["x"].values)
    assert found["chain"].values.tolist() == [3, 5]
    assert found["draw"].values.tolist() == list(range(10, 110))
    assert found["unconstrained_parameter"].values.tolist() == ["x_0", "x_1", "x_2"]


def test_an_interrupted_call_goes_on_where_it_stopped(posterior, tmp_path):
    before = posterior.copy(deep=True)
    store = tmp_path / "s.zarr"
    with pytest.raises(KeyboardInterrupt):
        write_scores(posterior, store, model=Gradient(stop=100), rows=25)
    again = Gradient()
    found = write_scores(posterior, store, model=again, rows=25)
    np.testing.assert_array_equal(found["gradient"], -posterior["x"].values)
    # Of eight pieces three were there; the first is made each time, to compare.
    assert again.draws == 6 * 25
    assert posterior.identical(before)
    finished = Gradient()
    write_scores(posterior, store, model=finished, rows=25)
    assert finished.draws == 25


def test_a_full_disk_says_so_and_the_next_call_goes_on(posterior, tmp_path, monkeypatch):
    store = tmp_path / "s.zarr"
    write, written = xr.Dataset.to_zarr, []

    def full(self, *args, **kwargs):
        if "region" in kwargs:
            written.append(kwargs["region"])
            if len(written) > 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(xr.Dataset, "to_zarr", full)
        with pytest.raises(OSError, match="No space left on device after 2 of 8 pieces") as error:
            write_scores(posterior, store, model=lambda x: -x, rows=25)
    assert error.value.errno == errno.ENOSPC
    again = Gradient()
    found = write_scores(posterior, store, model=again, rows=25)
    assert again.draws == 7 * 25
    np.testing.assert_array_equal(found["gradient"], -posterior["x"].values)


def test_the_scores_of_other_draws_are_not_mixed_in(posterior, tmp_path):
    write_scores(posterior, tmp_path / "s.zarr", model=lambda x: -x, rows=50)
    with pytest.raises(ValueError, match="something else than scores of these draws"):
        write_scores(posterior + 1, tmp_path / "s.zarr", model=lambda x: -x, rows=50)
    with pytest.raises(ValueError, match="in pieces of 20"):
        write_scores(posterior, tmp_path / "s.zarr", model=lambda x: -x, rows=20)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("important")
    with pytest.raises(ValueError, match="something else"):
        write_scores(posterior, tmp_path / "mine", model=lambda x: -x)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "important"


def test_draws_without_a_score_are_named(posterior, tmp_path):
    def gradient(x):
        return np.where(x > 2, np.nan, -x)

    with pytest.raises(ValueError, match="have no finite score"):
        write_scores(posterior * 3, tmp_path / "s.zarr", model=gradient, rows=100)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_workers_compute_and_write(posterior, tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"dashboard_address": None, "threads_per_worker": 1, "silence_logs": 50}
    with distributed.LocalCluster(2, **options) as cluster, distributed.Client(cluster):
        found = write_scores(posterior, tmp_path / "s.zarr", model=lambda x: -x, rows=25)
    np.testing.assert_array_equal(found["gradient"], -posterior["x"].values)
