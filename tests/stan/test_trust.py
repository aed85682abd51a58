"""What Stan's own files tell of a model: its log densities, and where they end."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import az_cv
from az_cv.containers.idata import as_idata
from az_cv.sources import cmdstan_scores, load_stan_model

cmdstanpy = pytest.importorskip("cmdstanpy")
pytest.importorskip("prophet")
pytestmark = [
    pytest.mark.stan,
    pytest.mark.filterwarnings("ignore:The chains have not converged"),
]

SETTINGS = {"family": "polynomial", "attach": False}


def load_models():
    path = Path(__file__).parents[2] / "examples" / "trust" / "models.py"
    specification = importlib.util.spec_from_file_location("trust_models_of_stan", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


MODELS = load_models()
DATA = MODELS.regression_data(rows=40)
KINDS = MODELS.wrong_kinds(DATA)


def stan_data(data, knobs):
    rows, columns = data["X"].shape
    return {"N": rows, "K": columns, **data, **MODELS.RIGHT, **knobs}


@pytest.fixture(scope="module", params=[18, 6])
def regression(request, stan_fit):
    return stan_fit("regression", stan_data(DATA, {}), sig_figs=request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_stan_models_are_refused(kind, regression):
    scores = cmdstan_scores(regression, data_file=stan_data(*KINDS[kind]), route="executable")
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.summary(regression, scores=scores, **SETTINGS)
    report = az_cv.check_scores(as_idata(regression), scores)
    assert report.verdict == "fail"
    assert "not the one that was sampled" in report.problems[0]


def test_the_right_model_is_confirmed_by_executable_and_bridgestan(regression, stan_libraries):
    by_route = [
        cmdstan_scores(regression, route="executable"),
        cmdstan_scores(regression, route="bridgestan", stan_file=stan_libraries["regression"]),
    ]
    for scores in by_route:
        table = az_cv.summary(regression, scores=scores, **SETTINGS)
        assert "is the sampler's at every draw, to" in table.attrs["provenance"]


def test_an_observation_off_by_a_thousandth_is_refused(stan_fit):
    fit = stan_fit("regression", stan_data(DATA, {}))
    off = DATA["y"].copy()
    off[0] += 0.001
    scores = cmdstan_scores(fit, data_file=stan_data(DATA | {"y": off}, {}), route="executable")
    with pytest.raises(ValueError, match=r"varies by 0\.000\d+ \(sd\)"):
        az_cv.summary(fit, scores=scores, **SETTINGS)


def test_stored_gradients_are_said_to_be_the_samplers(latent_fit):
    table = az_cv.summary(latent_fit, **SETTINGS)
    assert table.attrs["provenance"] == "the gradients are the sampler's own"


def test_other_data_of_a_genuine_cmdstan_run_are_refused(plain_fit, data_file, tmp_path):
    data = json.loads(data_file.read_text())
    data["tau"] *= 1.01
    (tmp_path / "other.json").write_text(json.dumps(data))
    scores = cmdstan_scores(plain_fit, data_file=tmp_path / "other.json", route="executable")
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.summary(plain_fit, scores=scores, **SETTINGS)
    table = az_cv.summary(plain_fit, **SETTINGS)
    assert "is the sampler's at every draw" in table.attrs["provenance"]


EDGES = {
    "uniform without bounds": ({"rejects": 0, "limit": 0.4}, r"x ends at -1; x ends at 0\.4\."),
    "reject": ({"rejects": 1, "limit": 0.5}, r"x ends at 0\.5\."),
}


@pytest.mark.filterwarnings("ignore:The corrected means of x lie")
@pytest.mark.parametrize(("data", "edges"), EDGES.values(), ids=EDGES)
def test_densities_that_end_without_a_bound_are_refused(data, edges, stan_fit, stan_libraries):
    fit = stan_fit("jump", data, inits=0.1)
    with pytest.raises(ValueError, match=f"hard edges.*{edges}.*check=False"):
        az_cv.summary(fit, **SETTINGS)
    model = load_stan_model(stan_libraries["jump"], data)
    with pytest.raises(ValueError, match=edges):
        az_cv.summary(as_idata(fit), model=model, **SETTINGS)
    with pytest.warns(UserWarning, match="hard edges"):
        az_cv.summary(fit, check=False, **SETTINGS)


def test_edges_that_diagnostic_files_do_not_show_move_the_answer_away(stan_fit):
    """Half a normal distribution has the gradients of a whole one, whose mean is zero."""
    fit = stan_fit("jump", EDGES["reject"][0], inits=0.1, save_latent_dynamics=True)
    with pytest.warns(UserWarning, match=r"means of x lie up to .* plain errors.*an edge or"):
        az_cv.summary(fit, check=False, **SETTINGS)


def test_declared_bounds_are_no_edges(stan_model):
    model = stan_model("bounds")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(2, 100, model.param_unc_num())) * 2
    flat = np.array([[model.param_constrain(u) for u in chain] for chain in points])
    names = model.param_names()
    from az_cv.sources.stan_model import scores_of_draws

    coords = {"chain": np.arange(2), "draw": np.arange(100)}
    scores = scores_of_draws(flat, model=model, coords=coords, source="BridgeStan")
    assert flat.shape[-1] == len(names)
    assert "hard_edges" not in scores.attrs


def test_random_transformed_data_need_the_seed_of_the_run(stan_fit, stan_libraries):
    fit = stan_fit("random_data", seed=11)
    right = load_stan_model(stan_libraries["random_data"], seed=11)
    table = az_cv.summary(as_idata(fit), model=right, **SETTINGS)
    assert "is the sampler's at every draw" in table.attrs["provenance"]
    with pytest.raises(ValueError, match=r"random transformed data.*seed="):
        az_cv.summary(
            as_idata(fit), model=load_stan_model(stan_libraries["random_data"]), **SETTINGS
        )
