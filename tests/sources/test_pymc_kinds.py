"""PyMC scores against the model's own transforms and gradients, for many kinds of models."""

import numpy as np
import pytest
from pymc_points import build, random_points, reference_gradients, relative_error

from az_cv.sources.pymc_model import pymc_scores

pm = pytest.importorskip("pymc")
pt = pytest.importorskip("pytensor.tensor")

pytestmark = [
    pytest.mark.pymc,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]
RNG = np.random.default_rng(7)


def eight_schools_centered():
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("y", theta, 10.0, observed=RNG.normal(size=8))


def bounds_from_other_variables():
    width = pm.Exponential("width", 1.0)
    lower = pm.Deterministic("lower", -width)
    inner = pm.Uniform("inner", 0, width)
    pm.Uniform("innermost", lower, inner)
    pm.TruncatedNormal("above", mu=0, sigma=1, lower=inner)


def ordered():
    ordered = pm.distributions.transforms.ordered
    cutpoints = pm.Normal("cutpoints", 0, 2, shape=3, transform=ordered, initval=[-1, 0, 1])
    pm.Normal(
        "by_row", 0, 2, shape=(2, 3), transform=ordered, initval=np.tile([-1.0, 0.0, 1.0], (2, 1))
    )
    eta = pm.Normal("eta")
    pm.OrderedLogistic("y", eta=eta, cutpoints=cutpoints, observed=[0, 1, 2, 3, 1])


def dirichlet():
    weights = pm.Dirichlet("weights", np.array([1.0, 2.0, 3.0]))
    pm.Dirichlet("rows", np.ones((2, 4)))
    pm.Multinomial("y", n=10, p=weights, observed=[2, 3, 5])


def lkj_cholesky():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=pm.Exponential.dist(1.0))
    pm.MvNormal("y", np.zeros(3), chol=chol, observed=RNG.normal(size=(5, 3)))


def truncated():
    mu = pm.Normal("mu")
    pm.Truncated("cut", pm.Normal.dist(mu, 1), lower=-1, upper=2)
    pm.Truncated("gamma", pm.Gamma.dist(2, 1), upper=5)
    pm.Truncated("y", pm.Normal.dist(mu, 1), lower=0, observed=[0.5, 1.0])


def censored():
    mu = pm.Normal("mu")
    sigma = pm.HalfNormal("sigma")
    pm.Censored(
        "y", pm.Normal.dist(mu, sigma), lower=-1, upper=1, observed=np.array([-1, 0.3, 1, 1])
    )


def zero_sum():
    pm.ZeroSumNormal("one_axis", sigma=2, shape=4)
    effect = pm.ZeroSumNormal("two_axes", shape=(3, 4), n_zerosum_axes=2)
    pm.Normal("y", effect, 1, observed=RNG.normal(size=(3, 4)))


def supports():
    pm.VonMises("circular", 0.5, 2.0, shape=2)
    pm.Beta("logodds", 2, 2)
    pm.Pareto("above_one", 3, 1)
    pm.Triangular("triangular", lower=-1, c=0, upper=2)
    transforms = pm.distributions.transforms
    pm.HalfNormal("softplus", default_transform=None, transform=transforms.log_exp_m1)
    pm.Normal("plain", shape=(2, 2))
    pm.HalfNormal("untransformed", default_transform=None, initval=5.0)


def imputed():
    mu = pm.Normal("mu")
    sigma = pm.HalfNormal("sigma")
    with pytest.warns(pm.exceptions.ImputationWarning):
        pm.Normal("y", mu, sigma, observed=np.ma.masked_invalid([1.0, np.nan, 0.5, np.nan]))


def mixture():
    weights = pm.Dirichlet("weights", np.ones(2))
    mu = pm.Normal("mu", 0, 3, shape=2)
    pm.NormalMixture("y", w=weights, mu=mu, sigma=1.0, observed=RNG.normal(size=10))


def data_dims_and_potential():
    x = pm.Data("x", RNG.normal(size=(6, 2)), dims=("row", "column"))
    beta = pm.Normal("beta", dims="column")
    scale = pm.HalfStudentT("scale", nu=4, sigma=1)
    pm.Potential("soft_constraint", -10 * (beta.sum() - 1) ** 2)
    y = pm.Data("y_data", RNG.normal(size=6), dims="row")
    pm.Normal("y", x @ beta, scale, observed=y, dims="row")


def time_series():
    steps = pm.GaussianRandomWalk("steps", sigma=0.5, init_dist=pm.Normal.dist(), steps=6)
    rho = pm.Normal("rho", 0, 0.5, shape=2)
    pm.AR("ar", rho, sigma=1.0, init_dist=pm.Normal.dist(0, 1, shape=1), constant=True, steps=5)
    pm.Normal("y", steps, 1, observed=RNG.normal(size=7))


def gp_marginal():
    length = pm.InverseGamma("length", 5, 5)
    amplitude = pm.HalfNormal("amplitude")
    gp = pm.gp.Marginal(cov_func=amplitude**2 * pm.gp.cov.Matern52(1, length))
    inputs = np.linspace(0, 3, 12)[:, None]
    gp.marginal_likelihood("y", X=inputs, y=np.sin(inputs[:, 0]), sigma=pm.HalfNormal("noise"))


def gp_latent():
    length = pm.Gamma("length", 3, 2)
    gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, length))
    f = gp.prior("f", X=np.linspace(0, 3, 8)[:, None], jitter=1e-6)
    pm.Poisson("y", pm.math.exp(f), observed=np.arange(8))


def custom_dist():
    def logp(value, loc):
        return -pt.abs(value - loc) - 0.1 * value**4

    loc = pm.Normal("loc")
    pm.CustomDist("custom", loc, logp=logp, size=3)
    pm.CustomDist("y", loc, logp=logp, observed=np.array([0.3, 1.0]))


def discrete_held_fixed():
    switch = pm.DiscreteUniform("switch", 0, 5)
    rates = pm.Exponential("rates", 1.0, shape=2)
    label = pm.Bernoulli("label", 0.4, shape=3)
    noise = pm.Normal("noise", label.sum(), 1.0)
    rate = pm.math.switch(switch > np.arange(6), rates[0], rates[1])
    pm.Poisson("y", rate * pm.math.exp(noise), observed=[1, 0, 2, 3, 5, 4])


def labelled_dims():
    import pymc.dims as pmd

    observed = pmd.Data("observed", RNG.normal(size=8), dims="school")
    mu = pmd.Normal("mu", 0, 5)
    tau = pmd.HalfCauchy("tau", 5)
    theta = pmd.Normal("theta", mu, tau, dims="school")
    shift = pmd.ZeroSumNormal("shift", core_dims="school", dims="school")
    pmd.Normal("y", theta + shift, 1.0, observed=observed)


BUILDERS = [
    eight_schools_centered,
    bounds_from_other_variables,
    ordered,
    dirichlet,
    lkj_cholesky,
    truncated,
    censored,
    zero_sum,
    supports,
    imputed,
    mixture,
    data_dims_and_potential,
    time_series,
    gp_marginal,
    gp_latent,
    custom_dist,
    discrete_held_fixed,
    labelled_dims,
]


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda builder: builder.__name__)
def test_scores_match_the_models_own_transforms_and_gradient(builder):
    model = build(builder)
    data, values, points = random_points(model)

    scores = pymc_scores(data, model=model, progressbar=False)

    continuous = [variable.name for variable in model.continuous_value_vars]
    expected_draws = np.concatenate(
        [values[name].reshape(2, 5, -1) for name in continuous], axis=-1
    )
    round_trip = np.abs(scores.unconstrained_draw - expected_draws).max().item()
    gradient = scores.gradient.values.reshape(10, -1)
    gradient_error = relative_error(gradient, reference_gradients(model, points))
    assert round_trip < 1e-10
    assert gradient_error < 1e-8


def test_eight_schools_gradient_matches_the_one_derived_by_hand(eight_schools, schools_gradient):
    data, _, _ = random_points(eight_schools)

    scores = pymc_scores(data, model=eight_schools, progressbar=False)

    expected = schools_gradient(scores.unconstrained_draw.values)
    assert relative_error(scores.gradient.values, expected) < 1e-10
    assert scores.unconstrained_parameter.values.tolist()[:3] == ["mu", "tau_log__", "z_0"]
    assert scores.gradient_backend == "jax"
    assert scores.compile_seconds > 0
    assert scores.evaluate_seconds > 0
