"""Copies of draws are found, and copies of chains count once."""

import numpy as np
import pytest

import az_cv
from az_cv.sources.schema import scores_dataset

SETTINGS = {"family": "polynomial", "attach": False}


def summarise(x):
    fn = {"event": lambda post: post["x"][..., 0] > 1.0, "mean": lambda post: post["x"][..., 0]}
    return az_cv.summary({"x": x}, fn, scores=scores_dataset(x, -x), **SETTINGS)


@pytest.fixture
def draws():
    return np.random.default_rng(2).normal(size=(2, 300, 2))


def test_chains_that_are_copies_count_once(draws):
    expected = summarise(draws)
    with pytest.warns(UserWarning, match=r"count once: chain 2 of chain 0, chain 3 of chain 1\."):
        table = summarise(np.concatenate([draws, draws]))
    assert table.attrs["draws"] == "2 x 300"
    np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-12)


def test_resampled_draws_are_counted_and_rejections_are_not(draws):
    rng = np.random.default_rng(3)
    resampled = draws[:, rng.integers(300, size=300)]
    with pytest.warns(UserWarning, match=r"3\d% of the draws are copies of draws elsewhere"):
        summarise(resampled)
    stuck = np.repeat(draws[:, :150], 2, axis=1)  # every other proposal was rejected
    assert not summarise(stuck).attrs["warnings"]


def test_errors_of_events_from_resampled_draws_are_honest():
    rng = np.random.default_rng(5)
    z = []
    for _ in range(60):
        draws = rng.normal(size=(1, 60, 2))
        resampled = draws[:, rng.integers(60, size=240)].reshape(2, 120, 2)
        fn = {"event": lambda post: post["x"][..., 0] > 1.0}
        scores = scores_dataset(resampled, -resampled)
        with pytest.warns(UserWarning, match="counts once"):
            result = az_cv.fit({"x": resampled}, fn, scores=scores, family="polynomial")
        mean, mcse = (
            float(result.estimates["event"].sel(summary=k)) for k in ("mean", "mcse_mean")
        )
        z.append((mean - 0.158655) / mcse)
    # Copies taken for draws of their own gave twice this.
    assert 0.5 < np.sqrt(np.mean(np.square(z))) < 1.25


def test_scores_of_resampled_draws_keep_every_draw(draws):
    resampled = draws[:, np.random.default_rng(3).integers(300, size=300)]
    with pytest.warns(UserWarning, match="counts once"):
        result = az_cv.fit({"x": resampled}, scores=scores_dataset(resampled, -resampled))
    assert result.scores.sizes["draw"] == 300
    assert result.draws.sizes["draw"] == len(np.unique(resampled.reshape(-1, 2), axis=0))
    assert "copies" in result.settings["weights"]
