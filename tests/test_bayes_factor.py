"""Bayes factors and tables of models, errors by hand and by simulation."""

import numpy as np
import pytest
import scipy.special
import xarray as xr

import az_cv
from az_cv import Evidence


def evidence(value, error):
    return Evidence(value, error, value, 10 * error)


def test_a_factor_is_the_difference_of_logarithms():
    found = az_cv.bayes_factor(evidence(-10.0, 0.3), evidence(-12.5, 0.4))
    assert found.log_bayes_factor == 2.5
    assert found.mcse == pytest.approx(0.5)
    assert found.bayes_factor == pytest.approx(np.exp(2.5))
    assert found.probability == pytest.approx(1 / (1 + np.exp(-2.5)))
    assert "Bayes factor: 12" in repr(found)
    assert "log_<wbr/>bayes_<wbr/>factor" in found._repr_html_()
    back = az_cv.bayes_factor(evidence(-12.5, 0.4), evidence(-10.0, 0.3))
    assert back.log_bayes_factor == -found.log_bayes_factor


def test_factors_beyond_numbers_have_logarithms():
    found = az_cv.bayes_factor(evidence(0.0, 0.1), evidence(-2000.0, 0.1))
    assert found.log_bayes_factor == 2000
    assert found.bayes_factor == np.inf
    assert found.probability == 1
    assert "2000.00" in repr(found)


def test_attached_evidences_are_read():
    trees = []
    for value in (-3.0, -4.0):
        tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), [[0.0]])})})
        evidence(value, 0.01).attach(tree)
        trees.append(tree)
    assert az_cv.bayes_factor(*trees).log_bayes_factor == 1
    table = az_cv.compare_evidence({"a": trees[1], "b": trees[0]})
    assert list(table.index) == ["b", "a"]


def test_errors_of_probabilities_are_those_of_a_simulation():
    values, errors = np.array([-10.0, -11.0, -12.0]), np.array([0.02, 0.03, 0.05])
    models = {name: evidence(v, e) for name, v, e in zip("abc", values, errors)}
    table = az_cv.compare_evidence(models, prior={"a": 1, "b": 2, "c": 1})
    rng = np.random.default_rng(0)
    logs = values + errors * rng.normal(size=(100_000, 3)) + np.log([1, 2, 1])
    simulated = scipy.special.softmax(logs, axis=1)
    chosen = table.loc[list("abc")]
    np.testing.assert_allclose(chosen["probability"], simulated.mean(axis=0), rtol=1e-2)
    np.testing.assert_allclose(chosen["mcse_probability"], simulated.std(axis=0), rtol=2e-2)
    assert chosen["probability"].sum() == pytest.approx(1)
    assert chosen["log_bayes_factor"].tolist() == [0, -1, -2]
    assert chosen["mcse_log_bayes_factor"].tolist() == pytest.approx(
        [0, np.hypot(0.02, 0.03), np.hypot(0.02, 0.05)]
    )


def test_warnings_of_either_model_are_shown():
    doubtful = Evidence(-1.0, 0.1, -1.0, 0.1, warnings=("both halves disagree",))
    assert "warning: both halves disagree" in repr(az_cv.bayes_factor(doubtful, doubtful))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: az_cv.bayes_factor(-1.0, evidence(0, 1)), TypeError, "-1.0 is a number"),
        (
            lambda: az_cv.bayes_factor(az_cv.load_eight_schools(), evidence(0, 1)),
            KeyError,
            "no group 'cv_evidence'",
        ),
        (lambda: az_cv.compare_evidence({"a": evidence(0, 1)}), ValueError, "two models or more"),
        (
            lambda: az_cv.compare_evidence(
                {"a": evidence(0, 1), "b": evidence(0, 1)}, prior={"a": 1}
            ),
            ValueError,
            "prior must name the models",
        ),
        (
            lambda: az_cv.compare_evidence(
                {"a": evidence(0, 1), "b": evidence(0, 1)}, prior={"a": 1, "b": 0}
            ),
            ValueError,
            "positive prior",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
