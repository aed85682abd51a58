"""What the top of the package promises, and where the rest is."""

import importlib
import pkgutil

import pytest

import az_cv


def test_names_at_the_top_are_those_that_summary_needs():
    modules = {"diagnostics", "families", "plots", "solvers", "sources"}
    calls = {
        "summary",
        "fit",
        "covariance",
        "draws_needed",
        "log_mean_exp",
        "log_evidence",
        "bayes_factor",
        "compare_evidence",
        "temperature_ladder",
        "thermodynamic_evidence",
        "smc_evidence",
        "check_scores",
        "clear_cache",
        "structure",
        "quick",
        "stein_weights",
    }
    data = {"ladder_dataset", "scores", "scores_dataset", "load_eight_schools"}
    choices = {"Polynomial", "Kernel", "HierarchicalKernel", "NeuralNetwork", "Ensemble"}
    choices |= {"Exact", "SGD"}
    answers = {"ControlVariateResult", "Evidence", "BayesFactor", "ScoreWarning", "__version__"}
    assert set(az_cv.__all__) == modules | calls | data | choices | answers
    for name in az_cv.__all__:
        assert getattr(az_cv, name) is not None


def test_no_function_hides_a_package():
    packages = {name for _, name, is_package in pkgutil.iter_modules(az_cv.__path__) if is_package}
    for name in packages:
        module = importlib.import_module(f"az_cv.{name}")
        assert getattr(az_cv, name) is module


@pytest.mark.parametrize("name", sorted(az_cv._MOVED))
def test_names_that_moved_say_where_they_are(name):
    with pytest.warns(DeprecationWarning, match=rf"az_cv.{name} is now az_cv\.\w+\.{name}"):
        found = getattr(az_cv, name)
    assert found is getattr(importlib.import_module(az_cv._MOVED[name]), name)
    assert name not in az_cv.__all__


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sumary'"):
        az_cv.sumary  # noqa: B018
