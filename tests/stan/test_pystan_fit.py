import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.pystan_fit import pystan_scores
from az_cv.sources.stan_model import stan_scores

pytestmark = pytest.mark.stan

PROGRAM = Path(__file__).with_name("programs") / "rejects.stan"


class Extension:
    """Answers as the extension module of httpstan does, which has no wheels for ARM."""

    def __init__(self, stan_model):
        self.stan_model = stan_model

    def transform_inits(self, data, constrained):
        return self.stan_model("rejects", data).param_unconstrain_json(constrained).tolist()

    def log_prob_grad(self, data, unconstrained, adjust_transform):
        model = self.stan_model("rejects", data)
        point = np.array(unconstrained)
        return model.log_density_gradient(point, jacobian=adjust_transform)[1].tolist()


@pytest.fixture
def httpstan(stan_model, monkeypatch):
    def import_services_extension_module(model_name):
        if model_name != "models/rejects":
            raise KeyError(model_name)
        return Extension(stan_model)

    package, models = ModuleType("httpstan"), ModuleType("httpstan.models")
    models.import_services_extension_module = import_services_extension_module
    package.models = models
    monkeypatch.setitem(sys.modules, "httpstan", package)
    monkeypatch.setitem(sys.modules, "httpstan.models", models)


def pystan_model(**changes):
    fields = {
        "model_name": "models/rejects",
        "program_code": PROGRAM.read_text(),
        "data": {"limit": 1.5},
        "param_names": ("x", "y"),
    }
    return SimpleNamespace(**(fields | changes))


def draws():
    rng = np.random.default_rng(0)
    x = np.minimum(rng.normal(size=(2, 20)), 1.0)
    y = rng.normal(size=(2, 20, 2))
    coords = {"chain": [0, 1], "draw": np.arange(20)}
    return xr.Dataset({"x": (["chain", "draw"], x), "y": (["chain", "draw", "i"], y)}, coords)


def test_scores_equal_those_of_bridgestan(httpstan, stan_model):
    data = draws().assign(total=lambda posterior: posterior["x"] + posterior["y"].sum("i"))
    scores = pystan_scores(data, model=pystan_model())
    expected = stan_scores(data, model=stan_model("rejects", {"limit": 1.5}))
    for name in scores:
        np.testing.assert_array_equal(scores[name], expected[name])


def test_failed_points_are_dropped(httpstan):
    data = draws()
    data["x"][1, 4] = 2.0
    with pytest.warns(NonFiniteScoresWarning, match=r"(?s)1 of 40.*chain 1, draw 4.*limit"):
        scores = pystan_scores(data, model=pystan_model())
    assert scores.sizes["draw"] == 19


def test_draws_of_another_model_are_refused(httpstan):
    with pytest.raises(ValueError, match=r"40 of 40 draws(?s:.*)Check that model and data"):
        pystan_scores(draws().drop_vars("x"), model=pystan_model())


def test_unit_vectors_and_lost_builds_are_explained(httpstan):
    code = "parameters { unit_vector[3] u; } // unit_vector"
    with pytest.raises(ValueError, match=r"unit_vector.*bridgestan\.StanModel"):
        pystan_scores(draws(), model=pystan_model(program_code=code))
    with pytest.raises(ValueError, match=r"models/other.*stan\.build"):
        pystan_scores(draws(), model=pystan_model(model_name="models/other"))


@pytest.mark.parametrize("kind", ["complex", "complex_vector[2]", "tuple(real, vector[2])"])
def test_types_that_pystan_does_not_take_back_are_refused(kind, httpstan):
    code = f"parameters {{ real x; {kind} z; }}"
    with pytest.raises(ValueError, match=r"of type (complex|tuple).*bridgestan\.StanModel"):
        pystan_scores(draws(), model=pystan_model(program_code=code))
    elsewhere = f"parameters {{ real x; }} transformed parameters {{ {kind} z; }}"
    assert pystan_scores(draws(), model=pystan_model(program_code=elsewhere)).sizes["draw"] == 20


@pytest.mark.parametrize(
    ("library", "hint"),
    [
        ("pystan", r"what stan\.build returned"),
        ("stan", r"what stan\.build returned"),
        ("cmdstanpy", "the fit itself"),
        ("numpyro", "its MCMC itself"),
    ],
)
def test_draws_without_a_model_say_what_to_pass(library, hint):
    data = draws().assign_attrs(inference_library=library)
    with pytest.raises(ValueError, match=f"holds no gradients.*{hint}"):
        az_cv.summary(data, progressbar=False)


def test_missing_pystan_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpstan.models", None)
    with pytest.raises(ImportError, match="pip install pystan"):
        pystan_scores(draws(), model=pystan_model())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    importlib.util.find_spec("httpstan") is None,
    reason="PyStan is not installed; httpstan has wheels for x86_64 only",
)
def test_fit_of_a_real_build(stan_model):
    import stan

    code, data = PROGRAM.read_text(), {"limit": 1.5}
    model = stan.build(code, data=data, random_seed=1)
    fit = model.sample(num_chains=2, num_samples=50)
    scores = pystan_scores(fit, model=model)
    assert scores.sizes == {"chain": 2, "draw": 50, "unconstrained_parameter": 3}
    np.testing.assert_allclose(scores["gradient"], -scores["unconstrained_draw"])
    # x varies along draws and chains as PyStan's table has it: draw by draw, chains within a draw.
    table = fit.to_frame()["x"].to_numpy().reshape(50, 2).T
    np.testing.assert_allclose(scores["unconstrained_draw"][..., 0], table)
