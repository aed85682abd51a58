"""Calls that end early leave the data as it was; calls side by side keep their words apart."""

import threading
import warnings

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv import notices
from az_cv.containers.idata import add_groups

GROUPS = {"cv_scores", "cv_draws", "cv_summary"}


def normal(seed=0, d=2):
    x = np.random.default_rng(seed).normal(size=(4, 60, d))
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    return posterior, az_cv.scores_dataset(x, -x)


def containers():
    """Return data as both generations of ArviZ have it, where installed."""
    posterior, scores = normal()
    found = [xr.DataTree.from_dict({"posterior": posterior})]
    try:
        import arviz

        if arviz.__version__.startswith("0."):
            found.append(arviz.InferenceData(posterior=posterior))
    except ImportError:
        pass
    return found, scores


def groups(data):
    return set(data.children) if isinstance(data, xr.DataTree) else set(data.groups())


def interrupt(post):
    raise KeyboardInterrupt


def run_out(post):
    raise MemoryError("too large")


def fail(post):
    raise RuntimeError("my own error")


@pytest.mark.parametrize(
    ("fn", "error"), [(interrupt, KeyboardInterrupt), (run_out, MemoryError), (fail, RuntimeError)]
)
def test_a_function_that_ends_the_call(fn, error):
    found, scores = containers()
    for data in found:
        with pytest.raises(error):
            az_cv.summary(data, fn, scores=scores, family="polynomial")
        assert groups(data) == {"posterior"}
        assert len(az_cv.summary(data, scores=scores, family="polynomial")) == 2
        assert groups(data) == {"posterior"} | GROUPS


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_interrupt_while_results_are_attached(number, monkeypatch):
    """All groups are there, or none; groups of an earlier call come back."""
    found, scores = containers()
    result = az_cv.fit(found[0], scores=scores, family="polynomial")
    for data in found:
        kind = type(data)
        for earlier in (False, True):
            if earlier:
                result.attach(data)
                data["cv_summary"].attrs["mine"] = "yes"
            original, count = kind.__setitem__, [0]

            def interrupted(self, key, value, original=original, count=count):
                count[0] += 1
                if count[0] == number + 1:
                    raise KeyboardInterrupt
                original(self, key, value)

            with monkeypatch.context() as patch:
                patch.setattr(kind, "__setitem__", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    result.attach(data)
            assert groups(data) == {"posterior"} | (GROUPS if earlier else set())
            if earlier:
                assert data["cv_summary"].attrs["mine"] == "yes"


def test_a_warning_made_an_error_attaches_nothing():
    posterior, scores = normal()
    posterior["y"] = posterior["x"].where(posterior["x"] > 0)
    data = xr.DataTree.from_dict({"posterior": posterior})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="not finite"):
            az_cv.summary(data, scores=scores, family="polynomial")
    assert groups(data) == {"posterior"}


def test_results_share_no_memory_with_the_data():
    posterior, scores = normal()
    data = xr.DataTree.from_dict({"posterior": posterior, "cv_scores": scores})
    result = az_cv.fit(data, family="polynomial")
    result.attach(data)
    ours = [result.estimates, result.draws, result.integrands, result.scores]
    theirs = [node.to_dataset() for node in data.subtree if node.data_vars] + [posterior, scores]
    for a in (v.values for dataset in ours for v in dataset.data_vars.values()):
        for b in (v.values for dataset in theirs for v in dataset.data_vars.values()):
            assert not np.shares_memory(a, b)
    result.scores["gradient"][:] = 0
    result.draws["x"][:] = 0
    assert np.abs(data["cv_scores/gradient"]).min() > 0
    assert np.abs(data["cv_draws/x"]).max() > 0


def test_a_function_that_writes_into_its_argument_does_not_reach_the_data():
    posterior, scores = normal()
    before = posterior.copy(deep=True)

    def careless(post):
        post["x"][:] = 0.0
        post["new"] = post["x"]
        return post["x"] + 1.0

    for data in containers()[0]:
        az_cv.summary(data, careless, scores=scores, family="polynomial", attach=False)
        stored = data["posterior"]
        stored = stored.to_dataset() if isinstance(stored, xr.DataTree) else stored
        xr.testing.assert_identical(stored.drop_attrs(), before)


def test_groups_are_added_to_what_is_there():
    data = xr.DataTree.from_dict({"posterior": normal()[0], "prior": normal(1)[0]})
    add_groups(data, {"cv_scores": normal()[1]})
    assert groups(data) == {"posterior", "prior", "cv_scores"}


def test_warnings_of_threads_stay_with_their_calls(monkeypatch):
    """Half of the calls have NaN in a variable of their own name, the others nothing to say.

    What reaches the screen is counted where it leaves the package: filters hold for the whole
    process, and those that other packages set for a moment in one thread hide warnings of others.
    """
    tables, said, barrier = {}, [], threading.Barrier(8)
    monkeypatch.setattr(notices.warnings, "warn", lambda message, *_, **__: said.append(message))

    def call(number):
        posterior, scores = normal(number)
        if number % 2:
            posterior[f"gone{number}"] = posterior["x"].where(posterior["x"] > 0)
        barrier.wait()
        for _ in range(3):
            tables[number] = az_cv.summary(
                posterior, scores=scores, family="polynomial", progressbar=False
            )

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tables) == 8
    for number, table in tables.items():
        found = table.attrs["warnings"]
        assert len(found) == number % 2
        assert all(f"gone{number}[" in text for text in found)
        own = [text for text in said if f"gone{number}[" in str(text)]
        assert len(own) == 3 * (number % 2)
