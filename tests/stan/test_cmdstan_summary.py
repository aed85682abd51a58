"""CmdStanPy fits as data: one call, whatever route the scores take."""

import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.containers.idata import as_idata
from az_cv.sources import cmdstan_scores, read_cmdstan_scores

cmdstanpy = pytest.importorskip("cmdstanpy")
pytestmark = [
    pytest.mark.stan,
    # The runs here are too short to converge, and az_cv says so.
    pytest.mark.filterwarnings("ignore:The chains have not converged"),
]

PARAMETERS = ["k", "m", "delta", "sigma_obs", "beta"]


def summarise(data, **settings):
    return az_cv.summary(data, var_names=PARAMETERS, round_to="none", **settings)


def test_a_fit_is_data_and_model_at_once(latent_fit, caplog, recwarn):
    caplog.set_level(logging.INFO)
    table = summarise(latent_fit)
    assert "diagnostic files" in caplog.text
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
    assert {w.category for w in recwarn.list} <= {az_cv.ScoreWarning}
    assert list(table.index[:3]) == ["k", "m", "delta[0]"]
    assert len(table) == 10
    # Each machine rounds, and so samples, in its own way, and few draws of slow chains vary.
    assert table["vrf_mean"].median() > 2
    assert table["vrf_mean"]["sigma_obs"] > 10
    idata = as_idata(latent_fit)
    by_parts = summarise(idata, model=latent_fit, family="polynomial")
    expected = summarise(latent_fit, family="polynomial")
    np.testing.assert_array_equal(by_parts, expected)
    assert "cv_summary" in idata.children


def test_fit_and_scores_take_a_fit_too(latent_fit):
    result = az_cv.fit(
        latent_fit, lambda posterior: posterior["delta"].max("delta_dim_0"), family="polynomial"
    )
    assert result.estimates["fn"].sel(summary="vrf_mean") > 1.3
    xr.testing.assert_identical(az_cv.scores(latent_fit), result.scores)
    assert as_idata(latent_fit)["sample_stats"]["diverging"].dtype == bool


@pytest.mark.parametrize("digits", [18, 8])
def test_three_routes_give_the_same_summary(
    digits, sample, executable, data_file, stan_libraries, tmp_path
):
    settings = {"save_latent_dynamics": True, "sig_figs": digits, "seed": 5}
    fit = sample(executable, str(data_file), tmp_path, **settings)
    by_route = {
        "diagnostic": cmdstan_scores(fit, route="diagnostic"),
        "executable": cmdstan_scores(fit, route="executable"),
        "bridgestan": cmdstan_scores(fit, route="bridgestan", stan_file=stan_libraries["prophet"]),
    }
    tables = {
        route: summarise(fit, scores=scores, family=az_cv.Polynomial(order=2))
        for route, scores in by_route.items()
    }
    expected = tables["diagnostic"]
    scale = expected["sd"].to_numpy()
    for table in tables.values():
        for column in ("mean", "sd"):
            difference = np.abs(table[column] - expected[column]) / scale
            assert difference.max() < 10.0 ** (3 - min(digits, 12)), column
        for column in ("mcse_mean", "mcse_sd", "vrf_mean", "vrf_sd"):
            np.testing.assert_allclose(table[column], expected[column], rtol=1e-3)
        for column in ("ess_bulk", "ess_tail", "r_hat"):
            np.testing.assert_array_equal(table[column], expected[column])


def test_some_draws_of_the_fit_have_their_own_scores(latent_fit):
    idata = as_idata(latent_fit)
    thinned = idata.isel(draw=slice(10, None, 3), chain=[1, 3])
    scores = az_cv.scores(thinned, model=latent_fit)
    assert scores["chain"].values.tolist() == [1, 3]
    expected = az_cv.scores(latent_fit).sel(draw=thinned["posterior"]["draw"], chain=[1, 3])
    xr.testing.assert_identical(scores, expected)


def test_draws_of_another_fit_are_refused(latent_fit, plain_fit):
    with pytest.raises(ValueError, match=r"'k' has other draws in data.*Pass the fit"):
        az_cv.scores(as_idata(plain_fit), model=latent_fit)
    stranger = xr.Dataset({"mu": (("chain", "draw"), np.zeros((4, 200)))})
    with pytest.raises(ValueError, match=r"\['mu'\] and the CmdStan fit \['k', 'm'"):
        az_cv.scores(stranger, model=latent_fit)
    longer = as_idata(latent_fit)["posterior"].to_dataset()
    longer = longer.assign_coords(draw=longer["draw"] + 1)
    with pytest.raises(ValueError, match=r"200 labels along 'draw' .* 200 of the CmdStan fit"):
        az_cv.scores(longer, model=latent_fit)


def test_files_give_draws_and_scores(plain_fit, executable, data_file, tmp_path):
    files = [shutil.copy(file, tmp_path) for file in plain_fit.runset.csv_files]
    idata, scores = read_cmdstan_scores(files, exe_file=executable, data_file=data_file)
    xr.testing.assert_identical(
        idata["posterior"].to_dataset().drop_attrs(),
        as_idata(plain_fit)["posterior"].to_dataset().drop_attrs(),
    )
    xr.testing.assert_identical(
        scores.drop_attrs(),
        cmdstan_scores(plain_fit, route="executable").drop_attrs(),
    )
    assert len(summarise(idata, scores=scores, family="polynomial")) == 10


def test_the_way_out_of_missing_files_is_told(plain_fit, tmp_path):
    files = []
    for file in plain_fit.runset.csv_files:
        path = tmp_path / Path(file).name
        path.write_text(Path(file).read_text().replace("data.json", "gone.json"))
        files.append(str(path))
    with pytest.raises(
        ValueError, match=r"az_cv\.sources\.cmdstan_scores\(fit, exe_file=\.\.\., data_file"
    ):
        az_cv.summary(cmdstanpy.from_csv(files))


def test_an_executable_of_another_model_is_explained(plain_fit, executable, data_file, tmp_path):
    files = []
    for file in plain_fit.runset.csv_files:
        path = tmp_path / Path(file).name
        path.write_text(Path(file).read_text().replace("sigma_obs", "noise"))
        files.append(path)
    with pytest.raises(ValueError, match=r"parameters \['sigma_obs'\], which the draws have not"):
        read_cmdstan_scores(files, exe_file=executable, data_file=data_file)


def test_a_file_that_is_no_program_is_explained(plain_fit, tmp_path):
    script = tmp_path / "model"
    script.write_text("no program")
    script.chmod(0o755)
    with pytest.raises(ValueError, match=r"model does not run: .*executable and data are those"):
        cmdstan_scores(plain_fit, route="executable", exe_file=script)


def test_missing_cmdstanpy_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "cmdstanpy", None)
    with pytest.raises(ImportError, match=r"CmdStan files need CmdStanPy: pip install"):
        read_cmdstan_scores(["output.csv"])


def as_fit(model, template, folder):
    """Return a fit whose files hold independent draws of a Gaussian model of unit variances."""
    rng = np.random.default_rng(2)
    centre = model.log_density_gradient(np.zeros(model.param_unc_num()))[1]
    files = []
    for chain, file in enumerate(template.runset.csv_files):
        lines = Path(file).read_text().splitlines()
        first = next(k for k, line in enumerate(lines) if not line.startswith("#"))
        sampler = [name for name in lines[first].split(",") if name.endswith("__")]
        lines[first] = ",".join([*sampler, *model.param_names()])
        for k, line in enumerate(lines[first + 1 :], first + 1):
            if not line.startswith("#"):
                draw = model.param_constrain(centre + rng.normal(size=len(centre)))
                values = [*line.split(",")[: len(sampler)], *map(repr, draw.tolist())]
                lines[k] = ",".join(values)
        files.append(folder / f"layout_{chain + 1}.csv")
        files[-1].write_text("\n".join(lines) + "\n")
    return cmdstanpy.from_csv([str(file) for file in files])


def test_tuples_and_complex_numbers_of_a_fit(latent_fit, stan_model, stan_libraries, tmp_path):
    fit = as_fit(stan_model("layout"), latent_fit, tmp_path)
    scores = cmdstan_scores(fit, stan_file=stan_libraries["layout"], route="bridgestan")
    # The log densities in these files are those of another model.
    with pytest.raises(ValueError, match="not the one that was sampled"):
        az_cv.summary(fit, scores=scores)
    with pytest.warns(UserWarning, match="not the one that was sampled"):
        table = az_cv.summary(fit, scores=scores, round_to="none", check=False)
    expected = {"A[0, 2]": 13, "z.real": 0, "z.imag": 0, "pair:1": 0, "pair:2[1]": 2}
    expected |= {"pairs:1[1]": 2, "pairs:2[1, 0]": 21}
    np.testing.assert_allclose(
        table.loc[list(expected), "mean"], list(expected.values()), atol=1e-9
    )
    assert (np.abs(table["sd"] - 1) < 5 * table["mcse_sd"]).all()
    assert "sample_stats" in as_idata(fit).children
