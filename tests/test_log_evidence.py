"""Log evidences against algebra and quadrature, from every source, and what is refused."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
import xarray as xr

import az_cv
from az_cv.engine.bridge_sampling import bridge_sampling
from az_cv.engine.settings import Settings

FOLDER = Path(__file__).parents[1] / "examples" / "evidence"


@pytest.fixture(scope="module")
def targets():
    return SimpleNamespace(**runpy.run_path(str(FOLDER / "models_with_truth.py")))


Y = np.array([2, 0, 3, 1, 1])
RATE = 2.0 + Y.sum(), 1.0 + len(Y)  # of the gamma posterior of a Poisson rate, prior Gamma(2, 1)
TRUTH = (
    scipy.special.gammaln(RATE[0]) - RATE[0] * np.log(RATE[1]) - scipy.special.gammaln(Y + 1).sum()
)


def rate_density(x):
    """Return the joint log density of counts and the logarithm of their rate."""
    counts = (Y * x[0] - jnp.exp(x[0]) - scipy.special.gammaln(Y + 1)).sum()
    return counts + 2 * x[0] - jnp.exp(x[0])


def rate_draws(shape=(4, 300), seed=0):
    rng = np.random.default_rng(seed)
    return {"x": np.log(rng.gamma(RATE[0], 1 / RATE[1], size=(*shape, 1)))}


def within(found, truth):
    return abs(found.log_evidence - truth) < 4 * found.mcse


def test_gamma_poisson_has_its_evidence():
    found = az_cv.log_evidence(rate_draws((4, 100)), model=rate_density, progressbar=False)
    assert within(found, TRUTH)
    assert found.mcse < 5e-4
    assert found.vrf > 100
    assert abs(found.plain_log_evidence - TRUTH) < 4 * found.plain_mcse
    assert found.diagnostics["overlap"] > 0.9


@pytest.mark.parametrize("chains", [1, 3])
def test_odd_numbers_of_chains_are_split_in_the_middle(chains):
    found = az_cv.log_evidence(
        rate_draws((chains, 400)), model=rate_density, family="polynomial", progressbar=False
    )
    assert within(found, TRUTH)


@pytest.mark.parametrize("d", [2, 10])
def test_a_gaussian_posterior_is_exact(d):
    rng = np.random.default_rng(d)
    factor = np.eye(d) + rng.normal(size=(d, d)) / np.sqrt(d)
    precision = np.linalg.inv(factor @ factor.T)
    draws = 3 + rng.normal(size=(4, 100, d)) @ factor.T

    def log_density(x):
        return 7 - 0.5 * (x - 3) @ precision @ (x - 3)

    truth = 7 + 0.5 * np.linalg.slogdet(2 * np.pi * factor @ factor.T)[1]
    found = az_cv.log_evidence({"x": draws}, model=log_density, progressbar=False)
    assert found.log_evidence == pytest.approx(truth, abs=1e-9)
    assert found.mcse < 1e-9
    assert found.plain_mcse > 1e-3


@pytest.mark.parametrize("proposal", ["gaussian", "warped", "mixture"])
def test_every_proposal_gives_the_same(proposal):
    found = az_cv.log_evidence(
        rate_draws((4, 200)),
        model=rate_density,
        proposal=proposal,
        family="polynomial",
        progressbar=False,
    )
    assert within(found, TRUTH)
    assert proposal in found.settings["proposal"].lower()


def test_two_modes_are_bridged_by_a_mixture():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4, 500, 2)) + 6 * (rng.uniform(size=(4, 500, 1)) < 0.3)

    def log_density(x):
        parts = [
            jnp.log(w) - 0.5 * ((x - m) ** 2).sum() - jnp.log(2 * jnp.pi)
            for w, m in ((0.7, 0.0), (0.3, 6.0))
        ]
        return jnp.logaddexp(*parts) + 1.5

    found = az_cv.log_evidence(
        {"x": draws}, model=log_density, family="polynomial", progressbar=False
    )
    assert within(found, 1.5)
    assert found.settings["proposal"].startswith("mixture")


def test_it_is_never_worse_than_plain_bridge_sampling():
    """Where gradients say nothing of use, as all zeros do not, the plain answer stands."""
    draws = rate_draws((4, 100))["x"]

    def log_density(x):
        constant = scipy.special.gammaln(Y + 1).sum()
        return RATE[0] * x[:, 0] - RATE[1] * np.exp(x[:, 0]) - constant

    found = bridge_sampling(draws, np.zeros_like(draws), log_density, Settings(random_seed=1))
    assert found.mcse <= found.plain_mcse
    assert abs(found.value - TRUTH) < 4 * found.mcse


def test_results_are_printed_attached_and_read_back(tmp_path):
    tree = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"x": (("chain", "draw", "k"), rate_draws()["x"])})}
    )
    found = az_cv.log_evidence(tree, model=rate_density, family="polynomial", progressbar=False)
    assert repr(found).startswith("log evidence: -")
    assert "bridge sampling" in repr(found)
    assert "log_evidence" in found._repr_html_()
    tree.to_netcdf(tmp_path / "trace.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "trace.nc", engine="h5netcdf") as read:
        from az_cv.labelled.evidence import stored_evidence

        assert stored_evidence(read) == found
    bare = xr.DataTree.from_dict({"posterior": tree["posterior"].to_dataset()})
    az_cv.log_evidence(
        bare, model=rate_density, family="polynomial", attach=False, progressbar=False
    )
    assert "cv_evidence" not in bare
    with pytest.raises(KeyError, match="no group 'cv_evidence'"):
        stored_evidence(bare)


def test_the_seed_decides():
    data = rate_draws((4, 100))
    first, same, other = (
        az_cv.log_evidence(
            data, model=rate_density, family="polynomial", random_seed=seed, progressbar=False
        ).log_evidence
        for seed in (1, 1, 2)
    )
    assert first == same != other


def test_draws_of_another_model_are_refused():
    def other(x):
        return rate_density(x) - 3 * jnp.exp(x[0])

    with pytest.raises(ValueError, match="do not belong to these draws"):
        az_cv.log_evidence(rate_draws(), model=other, progressbar=False)
    scores = az_cv.scores(rate_draws(), model=rate_density, progressbar=False)
    with pytest.raises(ValueError, match="changes otherwise than the scores say"):
        az_cv.log_evidence(rate_draws(), model=other, scores=scores, progressbar=False)


def test_chains_in_different_places_are_refused():
    draws = np.random.default_rng(0).normal(size=(4, 200, 1))
    draws[1::2] += 60.0

    def log_density(x):
        return jnp.logaddexp(-0.5 * x[0] ** 2, -0.5 * (x[0] - 60.0) ** 2)

    with pytest.raises(ValueError, match="No proposal meets the posterior"):
        az_cv.log_evidence({"x": draws}, model=log_density, check=False, progressbar=False)


def test_a_posterior_far_from_any_proposal_is_warned_of():
    """A thin shell in six dimensions: no mixture of three Gaussians follows it."""
    rng = np.random.default_rng(0)
    d, radius = 6, 400.0
    x = rng.normal(size=(4, 400, d))
    r = radius + rng.normal(size=(4, 400, 1))
    draws = r * x / np.linalg.norm(x, axis=2, keepdims=True)

    def log_density(x):
        length = jnp.sqrt((x**2).sum())
        return -0.5 * (length - radius) ** 2 - (d - 1) * jnp.log(length)

    surface = np.log(2 * np.pi ** (d / 2)) - scipy.special.gammaln(d / 2)
    with pytest.warns(UserWarning, match="overlap by 0.0"):
        found = az_cv.log_evidence(
            {"x": draws}, model=log_density, family="polynomial", check=False, progressbar=False
        )
    assert within(found, surface + 0.5 * np.log(2 * np.pi))


def test_gradients_without_a_density_are_refused():
    with pytest.raises(TypeError, match="a gradient"):
        az_cv.log_evidence(rate_draws(), model=lambda x: -x, progressbar=False)
    with pytest.raises(TypeError, match="needs a model"):
        az_cv.log_evidence(az_cv.load_eight_schools(), progressbar=False)


def test_too_few_draws_are_refused():
    x = np.random.default_rng(0).normal(size=(2, 10, 8))
    with pytest.raises(ValueError, match="too few for 8 parameters"):
        az_cv.log_evidence(
            {"x": x}, model=lambda x: -0.5 * (x**2).sum(), check=False, progressbar=False
        )


def test_unknown_proposals_are_refused():
    with pytest.raises(ValueError, match="proposal 'student' is unknown"):
        az_cv.log_evidence(rate_draws(), model=rate_density, proposal="student")


EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.fixture(scope="module")
def schools():
    draws = az_cv.load_eight_schools()["cv_scores"]["unconstrained_draw"].values[:, ::8]
    dims = ("chain", "draw")
    return xr.Dataset(
        {
            "mu": (dims, draws[..., 0]),
            "tau": (dims, np.exp(draws[..., 1])),
            "z": ((*dims, "z_dim_0"), draws[..., 2:]),
        }
    )


@pytest.mark.pymc
def test_pymc_models_have_every_constant(targets, schools):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", 0, 1, shape=8)
        pm.Normal("y", mu + tau * z, ERROR, observed=EFFECT)
    target = targets.eight_schools()
    found = az_cv.log_evidence(
        schools, model=model, family="polynomial", attach=False, progressbar=False
    )
    assert within(found, target.truth)
    unconstrained = np.concatenate(
        [schools["mu"].values[..., None], np.log(schools["tau"].values)[..., None], schools["z"]],
        axis=2,
    )
    by_jax = az_cv.log_evidence(
        {"x": unconstrained}, model=target.log_density, family="polynomial", progressbar=False
    )
    # The same draws, seeds and densities: rounding alone tells them apart.
    assert found.log_evidence == pytest.approx(by_jax.log_evidence, abs=1e-6)


@pytest.mark.pymc
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda pm: pm.Flat("x"), r"The priors of \['x'\] are improper"),
        (lambda pm: pm.HalfFlat("x"), r"The priors of \['x'\] are improper"),
        (lambda pm: (pm.Normal("x"), pm.Poisson("k", 3)), r"The variables \['k'\] are discrete"),
    ],
)
def test_pymc_models_without_an_evidence_are_refused(build, message):
    pm = pytest.importorskip("pymc")
    with pm.Model() as model:
        build(pm)
        pm.Normal("y", model["x"], 1, observed=[1.0, 2.0])
    with pytest.raises(ValueError, match=message):
        az_cv.log_evidence({"x": np.ones((4, 50))}, model=model, progressbar=False)


@pytest.mark.pymc
def test_pymc_says_where_its_density_is_not_normalised():
    pm = pytest.importorskip("pymc")
    from az_cv.sources.dispatch import log_density_of

    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2, transform=ordered, initval=[-1.0, 1.0])
        pm.Potential("extra", x.sum())
    posterior = {"x": np.sort(np.random.default_rng(0).normal(size=(2, 20, 2)), axis=2)}
    with (
        pytest.warns(UserWarning, match=r"The potentials \['extra'\] count as they are"),
        pytest.warns(UserWarning, match=r"priors of \['x'\], which are ordered"),
    ):
        log_density_of(posterior, model=model)


@pytest.mark.pymc
def test_impossible_parameters_have_no_density():
    pm = pytest.importorskip("pymc")
    from az_cv.sources.dispatch import log_density_of

    with pm.Model() as model:
        scale = pm.Normal("scale", 2, 1)
        pm.Exponential("y", scale, observed=[1.0])
    log_density = log_density_of({"scale": np.ones((2, 20))}, model=model)
    values = log_density(np.array([[2.0], [-1.0]]))
    expected = scipy.stats.norm.logpdf(2.0, 2, 1) + np.log(2.0) - 2.0
    assert values[0] == pytest.approx(expected)
    assert values[1] == -np.inf


@pytest.mark.long
def test_numpyro_models_have_every_constant(targets, schools):
    numpyro = pytest.importorskip("numpyro")
    import jax
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, BarkerMH

    def model(effect):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([8]))
        numpyro.sample("y", dist.Normal(mu + tau * z, ERROR), obs=effect)

    with jax.enable_x64(True):
        mcmc = MCMC(BarkerMH(model), num_warmup=0, num_samples=1, progress_bar=False)
        mcmc.run(jax.random.key(0), EFFECT)
        found = az_cv.log_evidence(
            schools, model=mcmc, family="polynomial", attach=False, progressbar=False
        )
    assert within(found, targets.schools_truth())
