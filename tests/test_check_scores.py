"""Each kind of wrong gradient is caught and named; right ones pass."""

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.labelled.validation import examine_scores as examine
from az_cv.sources.schema import scores_dataset
from az_cv.testing import Banana, Funnel, Gaussian, GaussianMixture, LogisticRegression, StudentT

TARGET = LogisticRegression()
FACTOR = np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.3, 0.2, 2.0]])


@pytest.fixture(scope="module")
def arrays():
    """Draws and scores of a regression, coordinates stretched so that columns differ."""
    x = TARGET.sample(np.random.default_rng(0), 1000)
    s = TARGET.score(x)
    return (x @ FACTOR.T).reshape(4, 250, 3), np.linalg.solve(FACTOR.T, s.T).T.reshape(4, 250, 3)


def other_data(x, s):
    other = LogisticRegression(seed=5)
    back = np.linalg.solve(FACTOR, x.reshape(-1, 3).T).T
    return x, np.linalg.solve(FACTOR.T, other.score(back).T).T.reshape(x.shape)


def missing_jacobian(x, s):
    shifted = s.copy()
    shifted[..., 1] -= 1.0
    return x, shifted


def unconverged(x, s):
    moved = x.copy()
    moved[3] += 4 * x.std(axis=(0, 1))
    back = np.linalg.solve(FACTOR, moved.reshape(-1, 3).T).T
    return moved, np.linalg.solve(FACTOR.T, TARGET.score(back).T).T.reshape(x.shape)


WRONG = {
    "other data": (other_data, "another model or other data"),
    "other model": (lambda x, s: (x, s - x), "another model or other data"),
    "flipped sign": (lambda x, s: (x, -s), "sign is flipped"),
    "permuted columns": (lambda x, s: (x, s[..., [1, 2, 0]]), "columns are in another order"),
    "missing Jacobian": (missing_jacobian, "log Jacobian of a log"),
    "other chains": (lambda x, s: (x, s[[1, 2, 3, 0]]), "Chains are in another order"),
    "other draws": (lambda x, s: (x, s[:, ::-1]), "unrelated to the draws"),
}


@pytest.mark.parametrize(("change", "cause"), WRONG.values(), ids=WRONG)
def test_wrong_gradients_are_refused_and_the_cause_named(change, cause, arrays):
    x, s = change(*arrays)
    scores = scores_dataset(x, s)
    data = xr.Dataset({"b": (("chain", "draw", "k"), x)})
    report = az_cv.check_scores(data, scores)
    assert report.verdict == "fail"
    with pytest.raises(ValueError, match=cause):
        az_cv.summary(data, scores=scores)


def test_an_unconverged_chain_is_warned_about(arrays):
    x, s = unconverged(*arrays)
    data = xr.Dataset({"b": (("chain", "draw", "k"), x)})
    with pytest.warns(az_cv.ScoreWarning, match="have not converged: r_hat"):
        table = az_cv.summary(data, scores=scores_dataset(x, s))
    assert "have not converged" in table.attrs["warnings"][0]
    assert "have not converged" in repr(table)


def test_the_check_can_be_skipped(arrays):
    x, s = arrays
    data = xr.Dataset({"b": (("chain", "draw", "k"), x)})
    with pytest.warns(UserWarning, match="plain errors from the plain averages"):
        table = az_cv.summary(data, scores=scores_dataset(x, -s), check=False, round_to="none")
    np.testing.assert_allclose(table["mean"], x.mean(axis=(0, 1)), atol=0.2)


def test_a_chain_in_another_mode_is_warned_about(rng):
    x = rng.normal(size=(4, 250, 1))
    x[0] += 8.0
    s = -(x - np.where(x > 4, 8.0, 0.0))
    with pytest.warns(az_cv.ScoreWarning, match="have not converged: r_hat"):
        az_cv.fit(xr.Dataset({"x": (("chain", "draw"), x[..., 0])}), scores=scores_dataset(x, s))


@pytest.mark.parametrize("draws", [20, 250])
def test_two_hundred_correct_data_sets_pass(draws):
    targets = [
        Gaussian(np.eye(1)),
        Gaussian(np.diag([1.0, 4.0, 1e-6]) + 0.9e-6),
        GaussianMixture(d=3),
        Banana(),
        Funnel(),
        StudentT(d=3, freedom=5),
        LogisticRegression(),
        Gaussian(np.eye(30)),
    ]
    verdicts = []
    for target in targets:
        for seed in range(25):
            x = target.sample(np.random.default_rng(seed), 4 * draws)
            s = target.score(x)
            shape = (4, draws, x.shape[1])
            verdicts.append(examine(scores_dataset(x.reshape(shape), s.reshape(shape))).verdict)
    assert len(verdicts) == 200
    assert set(verdicts) == {"pass"}


def test_the_report_reads_well(arrays):
    x, s = arrays
    data = xr.Dataset({"b": (("chain", "draw", "k"), x)})
    report = az_cv.check_scores(data, scores_dataset(x, s, parameter_names=["a", "b", "c"]))
    assert report.verdict == "pass"
    assert list(report.table.index) == ["a", "b", "c"]
    np.testing.assert_allclose(report.table["slope"], -1, atol=0.2)
    assert "Stein identities: pass" in repr(report)


def test_discrepancy_tells_slow_chains_from_good_ones(rng):
    good = rng.normal(size=(2, 500, 2))
    slow = good.copy()
    for t in range(1, 500):
        slow[1, t] = 0.98 * slow[1, t - 1] + np.sqrt(1 - 0.98**2) * good[1, t]
    data = xr.Dataset({"x": (("chain", "draw", "k"), slow)})
    table = az_cv.diagnostics.stein_diagnostics(data, scores_dataset(slow, -slow))
    assert list(table.index) == ["0", "1", "all"]
    assert table.loc["0", "ksd_ratio"] < 1.5
    assert table.loc["1", "ksd_ratio"] > 3


def test_draws_of_an_approximation_are_told_the_way():
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    scores = az_cv.scores_dataset(x, -(x - 0.4) / 0.8**2)
    report = az_cv.check_scores({"x": x}, scores)
    assert report.verdict == "fail"
    assert any("draws='approximate'" in problem for problem in report.problems)
    with pytest.raises(ValueError, match="draws='approximate'"):
        az_cv.fit({"x": x}, scores=scores)
    result = az_cv.fit({"x": x}, scores=scores, draws="approximate")
    assert np.allclose(result.estimates["x"].sel(summary="mean"), 0.4, atol=1e-6)


def test_flipped_signs_are_not_taken_for_an_approximation():
    x = np.random.default_rng(0).normal(size=(4, 500, 2))
    report = az_cv.check_scores({"x": x}, az_cv.scores_dataset(x, x))
    assert not any("draws='approximate'" in problem for problem in report.problems)
