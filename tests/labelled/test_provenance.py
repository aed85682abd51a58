"""Whose answer it is: stored log densities confirm the model, or refuse it."""

import copy
import html
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.containers.idata import as_idata
from az_cv.engine.density_check import compare_densities
from az_cv.sources.schema import scores_dataset

EXAMPLES = Path(__file__).parents[2] / "examples" / "trust"
SD = np.array([1.0, 2.0, 0.5])


def load_models():
    specification = importlib.util.spec_from_file_location("trust_models", EXAMPLES / "models.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules["trust_models"] = module
    specification.loader.exec_module(module)
    return module


MODELS = load_models()
DATA = MODELS.regression_data(rows=40)
KINDS = MODELS.wrong_kinds(DATA)
# The others take as long again, and the script examples/trust/check_models.py runs them all.
QUICK = ("prior sd off by 1%", "one observation dropped", "a missing Jacobian")
PARAMETERS = [pytest.param(kind, marks=() if kind in QUICK else pytest.mark.long) for kind in KINDS]


@pytest.fixture
def normal():
    """Draws of a normal distribution, with the log density a sampler would store."""
    x = np.random.default_rng(1).normal(size=(4, 250, 3)) * SD
    density = -0.5 * ((x / SD) ** 2).sum(axis=2)
    data = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"x": (("chain", "draw", "k"), x)}),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), density + 7.5)}),
        }
    )
    for group in ("posterior", "sample_stats"):
        numbers = {dim: np.arange(data[group].sizes[dim]) for dim in ("chain", "draw")}
        data[group] = xr.DataTree(data[group].to_dataset().assign_coords(numbers))
    return data, x, density


def answer(data, x, density, sd=SD, **settings):
    scores = scores_dataset(x, -x / sd**2, log_density=density, attrs={"source": "a test"})
    settings = {"family": "polynomial", "attach": False} | settings
    return az_cv.summary(data, scores=scores, **settings)


def density_of(x, sd):
    return -0.5 * ((x / sd) ** 2).sum(axis=2)


def test_a_constant_difference_confirms_the_model_and_the_footer_says_so(normal):
    table = answer(*normal)
    assert "The model's log density is the sampler's at every draw, to " in repr(table)
    assert html.escape(table.attrs["provenance"][1:]) in table._repr_html_()


def test_attached_log_densities_confirm_the_next_answer_too(normal):
    data, x, density = normal
    answer(data, x, density, attach=True)
    assert "log_density" in data["cv_scores"]
    again = az_cv.summary(data, family="polynomial")
    assert "is the sampler's at every draw" in again.attrs["provenance"]


def test_another_model_is_refused_with_what_differs_and_check_false_goes_on(normal):
    data, x, _ = normal
    sd = SD * [1.0, 1.01, 1.0]
    with pytest.raises(
        ValueError, match=r"varies by 0\.01\d \(sd\).*depends most on x_1.*check=False"
    ):
        answer(data, x, density_of(x, sd), sd)
    with pytest.warns(UserWarning, match="not the one that was sampled"):
        table = answer(data, x, density_of(x, sd), sd, check=False)
    assert "which is not the one that was sampled" in table.attrs["provenance"]


def test_without_stored_log_densities_the_footer_says_whose_answer_it_is(normal):
    data, x, density = normal
    alone = xr.DataTree.from_dict({"posterior": data["posterior"].to_dataset()})
    assert "those of the model passed" in answer(alone, x, density).attrs["provenance"]
    scores = scores_dataset(x, -x / SD**2)
    table = az_cv.summary(alone, scores=scores, family="polynomial", attach=False)
    assert "the gradients are those that were given" in table.attrs["provenance"]
    scores.attrs["gradients"] = "sampler"
    table = az_cv.summary(alone, scores=scores, family="polynomial", attach=False)
    assert table.attrs["provenance"] == "the gradients are the sampler's own"


def test_a_potential_energy_and_thinned_or_renumbered_draws_are_recognised(normal):
    data, x, density = normal
    stats = data["sample_stats"].to_dataset()
    data["sample_stats"] = xr.DataTree(-stats)
    assert "is the sampler's" in answer(data, x, density).attrs["provenance"]
    for rows in (slice(None, None, 5), slice(50, None)):
        kept = data["posterior"].to_dataset().isel(draw=rows)
        kept = kept.assign_coords(draw=np.arange(kept.sizes["draw"]))
        thinned = xr.DataTree.from_dict({"posterior": kept, "sample_stats": stats})
        table = answer(thinned, x[:, rows], density[:, rows])
        assert "is the sampler's" in table.attrs["provenance"]


CAUSES = {
    "other draws": (lambda x, density: density[:, ::-1], "those of other draws"),
    "a temperature": (lambda x, density: 0.5 * density, "another temperature"),
    "a Jacobian": (lambda x, density: density + x[..., 2], r"sum of x_2: the log Jacobian"),
    "one chain": (
        lambda x, density: np.r_[density[:1] - 0.1 * x[:1, :, 0], density[1:]],
        "Another prior, other data",
    ),
}


@pytest.mark.parametrize(("change", "cause"), CAUSES.values(), ids=CAUSES)
def test_the_likeliest_cause_is_named(change, cause, normal):
    data, x, density = normal
    with pytest.raises(ValueError, match=cause):
        answer(data, x, change(x, density))


@pytest.mark.parametrize("digits", ["float32", 6, 8])
def test_digits_that_were_not_stored_are_not_missed_and_wrong_models_still_are(digits, normal):
    """Draws and log densities are rounded as they were stored; the model sees rounded draws."""
    _, x, density = normal

    def rounded(values):
        if digits == "float32":
            return values.astype(np.float32).astype(float)
        return np.array([float(f"{v:.{digits}g}") for v in values.flat]).reshape(values.shape)

    places, stored = rounded(np.exp(x)), rounded(density - 250.0)
    seen = np.log(places)
    precision = 6e-8 if digits == "float32" else 5.0 * 10.0**-digits
    names = ["a", "b", "c"]
    for sd, agree in ((SD, True), (SD * [1.0, 1.02, 1.0], False)):
        report = compare_densities(
            stored, density_of(seen, sd), seen, -seen / sd**2, names, precision=precision
        )
        assert report.agree is agree


@pytest.fixture(scope="module")
def pymc_trace():
    pm = pytest.importorskip("pymc")
    with MODELS.pymc_model(DATA):
        return pm.sample(
            draws=150,
            tune=300,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            nuts_sampler="pymc",
        )


@pytest.mark.pymc
@pytest.mark.parametrize("kind", [*PARAMETERS, "none"])
def test_wrong_pymc_models_are_refused(kind, pymc_trace):
    data, knobs = KINDS.get(kind, (DATA, {}))
    model = MODELS.pymc_model(data, **knobs)
    settings = {"family": "polynomial", "attach": False, "progressbar": False}
    if kind == "none":
        table = az_cv.summary(pymc_trace, model=model, **settings)
        assert "is the sampler's at every draw" in table.attrs["provenance"]
        return
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.summary(pymc_trace, model=model, **settings)


@pytest.fixture(scope="module")
def numpyro_run():
    """Sample in single precision, as NumPyro does unless told otherwise."""
    jax = pytest.importorskip("jax")
    infer = pytest.importorskip("numpyro.infer")
    kernel = infer.NUTS(MODELS.numpyro_model)
    mcmc = infer.MCMC(kernel, num_warmup=200, num_samples=400, num_chains=1, progress_bar=False)
    arguments = (DATA["X"], DATA["y"], MODELS.RIGHT)
    mcmc.run(jax.random.key(1), *arguments, extra_fields=("potential_energy",))
    return mcmc


@pytest.mark.parametrize("kind", [*PARAMETERS, "none"])
def test_wrong_numpyro_models_are_refused(kind, numpyro_run):
    data, knobs = KINDS.get(kind, (DATA, {}))
    # A run knows its model through the arguments it had.
    model = copy.copy(numpyro_run)
    model._args = (data["X"], data["y"], MODELS.RIGHT | knobs)
    trace = as_idata(numpyro_run)
    settings = {"family": "polynomial", "attach": False, "progressbar": False}
    if kind == "none":
        table = az_cv.summary(trace, model=model, **settings)
        assert "is the sampler's at every draw" in table.attrs["provenance"]
        return
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.summary(trace, model=model, **settings)


def test_a_gradient_alone_is_integrated_and_compared(normal):
    data, _, _ = normal
    settings = {"family": "polynomial", "attach": False, "progressbar": False}
    table = az_cv.summary(data, model=lambda x: -x / SD**2, **settings)
    assert "is the sampler's at every draw" in table.attrs["provenance"]
    off = SD * [1.0, 1.0, 1.05]  # a column of gradients off by 10% passes statistical checks
    with pytest.raises(ValueError, match=r"not the one that was sampled.*depends most on x_2"):
        az_cv.summary(data, model=lambda x: -x / off**2, **settings)
