"""PyMC scores against the model's own transforms and gradients."""

import numpy as np
import pytest
import xarray as xr

from az_cv.scores import batches, pymc_gradient
from az_cv.scores.finite import NonFiniteScoresWarning
from az_cv.scores.pymc_graph import log_density_graph
from az_cv.scores.pymc_model import pymc_scores

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
COORDS = {"row": range(6), "column": ["a", "b"], "school": list("ABCDEFGH")}


def build(builder):
    with pm.Model(coords=COORDS) as model:
        builder()
    return model


def python_mode():
    from pytensor.compile.mode import Mode

    return Mode(linker="py", optimizer="fast_compile")


def random_points(model, num_chains=2, num_draws=5):
    """Draw unconstrained points and map them back with PyMC's own graph of the model."""
    import pytensor

    with pytensor.config.change_flags(cxx=""):
        initial = model.initial_point(0)
        backward = pytensor.function(
            model.value_vars,
            model.replace_rvs_by_values(model.free_RVs),
            mode=python_mode(),
            on_unused_input="ignore",
        )
        points, constrained = [], []
        for _ in range(num_chains * num_draws):
            point = {
                value.name: np.asarray(initial[value.name])
                if value.dtype.startswith("int")
                else initial[value.name] + RNG.normal(size=np.shape(initial[value.name]))
                for value in model.value_vars
            }
            points.append(point)
            constrained.append(backward(*point.values()))

    def stack(rows):
        array = np.stack([np.asarray(row) for row in rows])
        return array.reshape(num_chains, num_draws, *array.shape[1:])

    posterior = {
        rv.name: stack([draw[i] for draw in constrained]) for i, rv in enumerate(model.free_RVs)
    }
    values = {name: stack([point[name] for point in points]) for name in points[0]}
    return as_tree(posterior), values, points


def as_tree(variables):
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))), values)
            for name, values in variables.items()
        }
    )
    sizes = posterior.sizes
    posterior = posterior.assign_coords(chain=range(sizes["chain"]), draw=range(sizes["draw"]))
    return xr.DataTree.from_dict({"posterior": posterior})


def reference_gradients(model, points):
    import pytensor

    with pytensor.config.change_flags(cxx=""):
        gradient = model.compile_dlogp(mode=python_mode())
        return np.array([gradient(point) for point in points])


def relative_error(gradient, expected):
    return np.max(np.abs(gradient - expected) / np.maximum(1, np.abs(expected)))


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
    assert scores.gradient_seconds > 0


@pytest.mark.parametrize(
    "evaluate",
    [pymc_gradient.with_jax, pymc_gradient.vectorised, pymc_gradient.compiled_loop],
    ids=lambda function: function.__name__,
)
def test_every_way_to_evaluate_gives_the_same_gradient(evaluate):
    model = build(discrete_held_fixed)
    _, values, points = random_points(model)
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(model, [row.shape[1:] for row in rows])
    continuous = [variable.name for variable in model.continuous_value_vars]

    arrays = evaluate(graph, rows, argnums=[list(values).index(name) for name in continuous])

    gradient = np.concatenate([array.reshape(10, -1) for array in arrays], axis=1)
    assert relative_error(gradient, reference_gradients(model, points)) < 1e-10


def test_pytensor_takes_over_where_jax_fails_and_a_compiled_loop_where_python_is_slow(
    eight_schools, monkeypatch
):
    data, values, _ = random_points(eight_schools)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)

    def without_jax(*args, **kwargs):
        raise NotImplementedError("No JAX conversion for the given Op")

    monkeypatch.setattr(pymc_gradient, "with_jax", without_jax)
    python = pymc_scores(data, model=eight_schools, progressbar=False)
    monkeypatch.setattr(
        pymc_gradient, "compiled_loop", lambda *args, **kwargs: ["the compiled loop"]
    )
    monkeypatch.setattr(
        pymc_gradient.vectorised, "__kwdefaults__", {"progressbar": False, "patience": 0.0}
    )
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(eight_schools, [row.shape[1:] for row in rows])
    slow = pymc_gradient.model_gradients(graph, rows, argnums=[0, 1, 2])

    assert python.gradient_backend == "vectorised"
    np.testing.assert_allclose(python.gradient, expected.gradient, rtol=1e-12, atol=1e-12)
    assert slow.backend == "loop"
    assert slow.arrays == ["the compiled loop"]


def test_chunks_of_bounded_memory_change_nothing(eight_schools, monkeypatch):
    data, _, _ = random_points(eight_schools)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)

    monkeypatch.setattr(batches, "CHUNK_BYTES", 4 * 2000)
    chunked = pymc_scores(data, model=eight_schools, progressbar=True)

    np.testing.assert_allclose(chunked.gradient, expected.gradient, rtol=1e-12, atol=1e-12)


def test_precision_of_jax_is_left_as_it_was(eight_schools):
    import jax

    before = jax.config.jax_enable_x64
    data, _, _ = random_points(eight_schools)
    scores = pymc_scores(data, model=eight_schools, progressbar=False)

    assert jax.config.jax_enable_x64 == before
    assert scores.gradient_backend == "jax"


def test_a_derivative_that_depends_on_no_draw_is_repeated_for_all(monkeypatch):
    with pm.Model() as model:
        pm.Flat("flat")
        pm.Potential("slope", 2.0 * model["flat"])
        pm.Flat("free", shape=2)
    data = as_tree({"flat": RNG.normal(size=(2, 5)), "free": RNG.normal(size=(2, 5, 2))})
    for evaluate in (pymc_gradient.with_jax, None):
        if evaluate is None:
            monkeypatch.setattr(pymc_gradient, "with_jax", None)
        scores = pymc_scores(data, model=model, progressbar=False)
        np.testing.assert_array_equal(scores.gradient, np.tile([2.0, 0.0, 0.0], (2, 5, 1)))


def saturated():
    pm.Beta("probability", 1, 1)
    scale = pm.HalfNormal("scale")
    pm.Normal("y", 0, scale, observed=1.0)


def test_draws_saturated_at_a_boundary_are_dropped_with_a_warning():
    probability, scale = RNG.uniform(0.1, 0.9, size=(2, 2, 10))
    probability[0, 3] = 1.0  # rounded to the boundary: no finite logit
    scale[1, 5] = 0.0  # underflow: no finite logarithm
    scale[0, 7] = 5e-324  # finite logarithm of a subnormal, infinite gradient
    data = as_tree({"probability": probability, "scale": scale})

    with pytest.warns(
        NonFiniteScoresWarning, match=r"3 of 20 draws .*probability_logodds__, scale_log__"
    ):
        scores = pymc_scores(data, model=build(saturated), progressbar=False)

    assert scores.draw.values.tolist() == [0, 1, 2, 4, 6, 8, 9]
    assert scores.dropped_draws == 3
    assert np.isfinite(scores.to_dataarray()).all()


def test_a_posterior_with_no_finite_draw_is_refused():
    zeros = np.zeros((2, 10))
    data = as_tree({"probability": zeros, "scale": zeros})
    with pytest.raises(ValueError, match="20 of 20 draws have no finite score"):
        pymc_scores(data, model=build(saturated), progressbar=False)


def test_minibatch_models_are_refused():
    with pm.Model() as model:
        x, y = pm.Minibatch(RNG.normal(size=100), RNG.normal(size=100), batch_size=10)
        beta = pm.Normal("beta")
        pm.Normal("y", beta * x, 1, observed=y, total_size=100)
    with pytest.raises(ValueError, match="minibatches of its data"):
        pymc_scores(as_tree({"beta": np.zeros((2, 5))}), model=model)


def test_model_is_taken_from_the_context(eight_schools):
    data, _, _ = random_points(eight_schools)
    with eight_schools:
        scores = pymc_scores(data, progressbar=False)
    assert scores.sizes["unconstrained_parameter"] == 10


def test_input_is_unchanged_and_dimension_order_irrelevant(eight_schools):
    data, _, _ = random_points(eight_schools)
    before = data.copy(deep=True)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)
    xr.testing.assert_identical(data, before)

    posterior = data["posterior"].to_dataset().transpose(..., "draw", "chain")
    transposed = pymc_scores(posterior, model=eight_schools, progressbar=False)
    xr.testing.assert_equal(transposed, expected)


def test_coordinates_of_the_draws_are_kept(eight_schools):
    data, _, _ = random_points(eight_schools)
    posterior = data["posterior"].to_dataset().isel(draw=[1, 3], chain=[1])
    scores = pymc_scores(posterior, model=eight_schools, progressbar=False)
    assert scores.draw.values.tolist() == [1, 3]
    assert scores.chain.values.tolist() == [1]


def test_errors_name_what_is_wrong(eight_schools):
    data, _, _ = random_points(eight_schools)
    posterior = data["posterior"].to_dataset()
    with pytest.raises(TypeError, match="There is no PyMC model"):
        pymc_scores(data)
    with pytest.raises(TypeError, match=r"must be a pymc.Model, not dict"):
        pymc_scores(data, model={})
    with pytest.raises(ValueError, match=r"The posterior lacks \['tau'\]"):
        pymc_scores(posterior.drop_vars("tau"), model=eight_schools)
    with pm.Model() as discrete:
        pm.Poisson("count", 3)
    with pytest.raises(ValueError, match=r"no continuous free variable, only \['count'\]"):
        pymc_scores(as_tree({"count": np.ones((2, 5), int)}), model=discrete)
    with pytest.raises(ValueError, match=r"shape \(3,\) per draw for 'theta'"):
        variables = {"mu": np.zeros((2, 5)), "tau": np.ones((2, 5)), "theta": np.zeros((2, 5, 3))}
        pymc_scores(as_tree(variables), model=build(eight_schools_centered))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", ["pymc", "nutpie", "numpyro", "blackjax", "smc"])
def test_draws_of_every_sampler_have_scores(sampler, eight_schools, schools_gradient):
    settings = {"chains": 2, "cores": 1, "random_seed": 4, "progressbar": False}
    with eight_schools:
        if sampler == "smc":
            data = pm.sample_smc(50, compute_convergence_checks=False, **settings)
        else:
            if sampler != "pymc":
                pytest.importorskip(sampler)
            if sampler in ("numpyro", "blackjax"):
                # Chains in parallel need as many devices, set before JAX is first used.
                settings["nuts_sampler_kwargs"] = {"chain_method": "vectorized"}
            data = pm.sample(
                50, tune=50, nuts_sampler=sampler, compute_convergence_checks=False, **settings
            )
        scores = pymc_scores(data, progressbar=False)

    expected = schools_gradient(scores.unconstrained_draw.values)
    assert scores.gradient.shape == (2, 50, 10)
    assert relative_error(scores.gradient.values, expected) < 1e-10
