"""`az_cv.scores`: which source is asked, and what is said to those that are none."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.containers.idata import as_idata, get_group

DRAWS = np.random.default_rng(2).normal(size=(2, 30, 3))
POSTERIOR = xr.Dataset(
    {"x": (("chain", "draw", "i"), DRAWS)}, coords={"chain": [0, 1], "draw": np.arange(30)}
)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            3,
            r"type builtins\.int, which has no gradients to offer\. Accepted: a pymc\.Model",
        ),
        ("model.stan", r"builtins\.str.*az_cv\.sources\.load_stan_model\(path, data\)\. Accepted"),
        (Path("model.stan"), r"az_cv\.sources\.load_stan_model\(path, data\)"),
    ],
)
def test_what_is_no_model_is_told_what_is(model, message):
    with pytest.raises(TypeError, match=message):
        az_cv.scores(POSTERIOR, model=model)


def test_neither_gradients_nor_model_is_explained():
    with pytest.raises(
        ValueError, match=r"with model:`, pass model= \(a pymc\.Model.*pass scores="
    ):
        az_cv.scores(POSTERIOR)


def test_a_compiled_stan_model_is_told_from_its_fit(tmp_path):
    cmdstanpy = pytest.importorskip("cmdstanpy")
    executable = tmp_path / "model"
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    model = cmdstanpy.CmdStanModel(exe_file=executable)
    with pytest.raises(TypeError, match=r"Pass the fit that its method `sample` returned"):
        az_cv.scores(POSTERIOR, model=model)


def test_a_model_goes_before_stored_scores():
    tree = xr.DataTree.from_dict(
        {"posterior": POSTERIOR, "cv_scores": az_cv.scores_dataset(DRAWS, -DRAWS)}
    )
    np.testing.assert_array_equal(az_cv.scores(tree)["gradient"], -DRAWS)
    given = az_cv.scores(tree, model=lambda x: -2 * x, progressbar=False)
    np.testing.assert_allclose(given["gradient"], -2 * DRAWS)


def test_numpyro_mcmc_is_data_and_model_at_once():
    numpyro = pytest.importorskip("numpyro")
    import jax

    def model():
        numpyro.sample("x", numpyro.distributions.Normal(1.0, 2.0))

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.BarkerMH(model), num_warmup=10, num_samples=30, progress_bar=False
    )
    mcmc.run(jax.random.key(0))
    scores = az_cv.scores(mcmc, progressbar=False)
    x = np.asarray(mcmc.get_samples()["x"], float)
    np.testing.assert_allclose(scores["gradient"].values[0, :, 0], (1 - x) / 4, rtol=1e-6)
    assert get_group(as_idata(mcmc), "posterior").sizes == {"chain": 1, "draw": 30}


def test_pystan_fits_are_data(monkeypatch):
    class Fit:
        """Lays draws out as PyStan 3 does, which has no wheels for ARM."""

        param_names, dims, num_chains = ("mu", "x"), ((), (3,)), 2

        def __getitem__(self, name):
            by_draw = np.moveaxis(DRAWS, 0, 1).reshape(60, 3)
            return by_draw.T if name == "x" else by_draw[:, :1].T

    package, module = ModuleType("stan"), ModuleType("stan.fit")
    module.Fit, package.fit = Fit, module
    monkeypatch.setitem(sys.modules, "stan", package)
    monkeypatch.setitem(sys.modules, "stan.fit", module)
    posterior = get_group(as_idata(Fit()), "posterior")
    np.testing.assert_array_equal(posterior["x"], DRAWS)
    np.testing.assert_array_equal(posterior["mu"], DRAWS[..., 0])
