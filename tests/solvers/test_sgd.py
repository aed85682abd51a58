"""Minibatch training: objectives against algebra, agreement with exact solves, divergence."""

from itertools import product

import jax
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from az_cv import (
    SGD,
    Ensemble,
    Exact,
    Kernel,
    NeuralNetwork,
    Polynomial,
    fit,
    scores_dataset,
    summary,
)
from az_cv.engine.choices import default_stack
from az_cv.engine.engine import run_engine
from az_cv.engine.errors import effective_size
from az_cv.families import Potential
from az_cv.families.description import describe
from az_cv.families.kernel import BASES
from az_cv.families.operators import OPERATORS
from az_cv.families.traced import kernel_hyper, polynomial_features, stein_kernel
from az_cv.solvers import inverse_schedule
from az_cv.solvers.base import Task
from az_cv.solvers.folds import make_folds
from az_cv.solvers.training.network_model import find_squares
from az_cv.solvers.training.objectives import batch_means, least_squares, pairwise_variance
from az_cv.solvers.training.preconditioner import fit_preconditioner
from az_cv.solvers.training.trainer import Trainer
from az_cv.testing import Banana

SMALL = NeuralNetwork(widths=(32,))
QUICK = SGD(num_epochs=5, batch_size=64)


def shaped(target, n=1200, seed=4):
    x = target.sample(np.random.default_rng(seed), n)
    outputs = np.stack(list(target.integrands(x).values()), axis=1)
    return tuple(a.reshape(4, n // 4, -1) for a in (x, target.score(x), outputs))


@pytest.fixture(scope="module")
def banana():
    return shaped(Banana())


def standardised(arrays):
    x, s, outputs = (a.reshape(-1, a.shape[2]) for a in arrays)
    scale = x.std(axis=0)
    outputs = (outputs - outputs.mean(axis=0)) / outputs.std(axis=0)
    return (x - x.mean(axis=0)) / scale, s * scale, outputs


def spread(arrays, family, solver):
    """Return the variance of the out-of-fold draws in units of that of the output."""
    shape = arrays[0].shape[:2]
    x, s, outputs = standardised(arrays)
    task = Task(x, s, shape, make_folds("chain", arrays[0]), random_seed=0)
    (member,) = solver.prepare(family, task).fit(outputs).members
    return member.adjusted.var(axis=(0, 1))


def exact_spread(arrays, family, ridge):
    folds = make_folds("chain", arrays[0])
    x, s, outputs = standardised(arrays)
    task = Task(x, s, arrays[0].shape[:2], folds)
    ((_, found),) = Exact(ridge=ridge).prepare(family, task).systems.fit(outputs)
    return found.adjusted.var(axis=0)


# Features


@pytest.mark.parametrize(
    "family", [Polynomial(1), Polynomial(3, degree_scale=0.5), Polynomial(2, interactions=False)]
)
def test_traced_polynomials_are_those_of_the_exact_solver(family, rng):
    x, s = rng.normal(size=(2, 8, 3))
    family = family.variants(x, s)[0]
    with jax.enable_x64(True):
        traced = polynomial_features(family, 3)(x, s)
    np.testing.assert_allclose(traced, family.features(x, s), atol=1e-12)


@pytest.mark.parametrize(
    ("base", "operator"),
    [pair for pair in product(BASES, OPERATORS) if pair != ("anova", "scalar_langevin")],
)
def test_traced_kernels_are_those_of_the_exact_solver(base, operator, rng):
    x, s, y, t = rng.normal(size=(4, 6, 3))
    kernel = Kernel(base, operator, length_scale=2.0, nu=4.5, alpha_1=0.3)
    with jax.enable_x64(True):
        traced = stein_kernel(kernel, kernel_hyper(kernel), x, s, y, t)
    np.testing.assert_allclose(traced, kernel.gram(x, s, y, t), rtol=1e-9, atol=1e-9)


# Objectives


def test_gradients_of_the_objectives_are_those_of_the_algebra(rng):
    features, f = rng.normal(size=(12, 3)), rng.normal(size=(12, 1))
    theta, c = rng.normal(size=(3, 1)), rng.normal(size=1)
    centred, f_centred = features - features.mean(axis=0), f - f.mean(axis=0)
    runs, f_runs = features.reshape(4, 3, 3).mean(axis=1), f.reshape(4, 3, 1).mean(axis=1)
    with jax.enable_x64(True):

        def gradient(objective):
            return jax.grad(lambda theta: objective(f - features @ theta).sum())(theta)

        np.testing.assert_allclose(
            gradient(lambda r: least_squares(r, c)),
            -features.T @ (f - features @ theta - c) / 12,
            rtol=1e-10,
        )
        np.testing.assert_allclose(
            gradient(pairwise_variance),
            -centred.T @ (f_centred - centred @ theta) / 11,
            rtol=1e-10,
        )
        np.testing.assert_allclose(
            gradient(lambda r: batch_means(r, c, 3)),
            -3 * runs.T @ (f_runs - runs @ theta - c) / 4,
            rtol=1e-10,
        )


def test_the_pairwise_variance_is_the_sum_over_pairs(rng):
    r = rng.normal(size=(5, 1))
    pairs = [(r[i, 0] - r[j, 0]) ** 2 for i in range(5) for j in range(i)]
    assert float(pairwise_variance(r)[0]) == pytest.approx(0.25 * 2 / 20 * sum(pairs))


# Agreement with exact solves


@pytest.mark.parametrize("objective", ["least_squares", "variance"])
@pytest.mark.parametrize("order", [1, 2])
def test_polynomials_reach_the_exact_solution(order, objective, banana):
    solver = SGD(objective=objective, strength=1e-6, early_stopping=False)
    ours = spread(banana, Polynomial(order, degree_scale=1.0), solver)
    exact = exact_spread(banana, Polynomial(order, degree_scale=1.0), 1e-6)
    np.testing.assert_allclose(ours, exact, rtol=0.1)


def test_preconditioning_is_what_reaches_it_on_uneven_features(banana):
    family = Polynomial(3, degree_scale=0.03)
    exact = exact_spread(banana, family, 1e-8)
    fixed = {"strength": 1e-8, "early_stopping": False}
    with_it = spread(banana, family, SGD(**fixed))
    without = spread(banana, family, SGD(**fixed, precondition=False))
    assert (with_it[:2] < 1.1 * exact[:2]).all()
    assert (without[:2] > 1.2 * exact[:2]).all()


def test_kernels_come_within_a_factor_two_of_the_exact_solution(banana):
    x, s, _ = standardised(banana)
    # The same centres for both, whatever the fold.
    (family,) = Kernel(length_scale=4.0, centres=100).variants(x, s)
    ours = spread(banana, family, SGD(strength=1e-6, early_stopping=False))
    exact = exact_spread(banana, family, 1e-6)
    assert (ours < 2 * exact).all()


@pytest.mark.parametrize(
    "family",
    [Kernel("paper", length_scale="median", alpha_1=0.1), Kernel(length_scale=0.3)],
    ids=["paper", "imq, length scale far too short"],
)
def test_kernel_parameters_can_be_trained_in_the_same_loop(family, banana):
    solver = {"strength": 1e-6, "num_centres": 60, "num_epochs": 30, "early_stopping": False}
    fixed = spread(banana, family, SGD(**solver))
    trained = spread(banana, family, SGD(**solver, train_kernel=True))
    assert np.isfinite(trained).all()
    assert trained[0] < fixed[0]


PAPER_KERNEL = Kernel("paper", length_scale="median", alpha_1=0.1)


@pytest.mark.parametrize(
    ("family", "objective"),
    [
        (Polynomial(2), "least_squares"),
        (Polynomial(2), "variance"),
        (PAPER_KERNEL, "least_squares"),
        (Ensemble([PAPER_KERNEL, Polynomial(2)]), "variance"),
        (NeuralNetwork(widths=(20,) * 6), "least_squares"),
    ],
    ids=["polynomial", "polynomial, variance", "kernel", "ensemble, variance", "network"],
)
def test_the_settings_of_the_paper_run_as_written(family, objective):
    # The kernel alone gains two per cent in these few epochs.
    least_gain = 1.0 if isinstance(family, Kernel) else 0.95
    x, s, outputs = shaped(Banana(), n=200)
    solver = SGD.paper(objective)
    assert (solver.batch_size, solver.num_epochs, solver.schedule) == (8, 25, "inverse")
    estimate = run_engine(x, s, outputs, family=family, solver=solver, random_seed=1).estimate
    assert np.isfinite(estimate.mcse).all()
    assert (estimate.mcse <= estimate.plain_mcse).all()
    assert estimate.mcse[1] < least_gain * estimate.plain_mcse[1]


def test_any_optax_optimizer_is_used_as_it_is(banana):
    solver = SGD(optimizer=optax.sgd(inverse_schedule(5.0, 100.0)), strength=1e-6)
    exact = exact_spread(banana, Polynomial(2, degree_scale=1.0), 1e-6)
    ours = spread(banana, Polynomial(2, degree_scale=1.0), solver)
    np.testing.assert_allclose(ours[:3], exact[:3], rtol=0.1)


# Batch means


def test_batch_means_lowers_the_asymptotic_variance(rng):
    # An AR(1) chain of two independent normals: one fast, one slow. One feature must serve both.
    draws = 4000
    rates = np.array([0.0, 0.95])
    x = np.zeros((4, draws, 2))
    noise = rng.normal(size=x.shape) * np.sqrt(1 - rates**2)
    x[:, 0] = rng.normal(size=(4, 2))
    for t in range(1, draws):
        x[:, t] = rates * x[:, t - 1] + noise[:, t]
    outputs = (x[..., :1] + 0.3 * x[..., 1:]).copy()
    tied = Potential(
        lambda params, x: (params["a"] * (x[0] - x[1]))[None], lambda key, d, q: {"a": np.zeros(())}
    )

    def asymptotic_variance(objective):
        solver = SGD(objective=objective, num_epochs=20, early_stopping=False, window=100)
        flat = x.reshape(-1, 2)
        task = Task(flat, -flat, (4, draws), make_folds("chain", x), random_seed=0)
        (member,) = solver.prepare(tied, task).fit(outputs.reshape(-1, 1)).members
        adjusted = member.adjusted
        return adjusted.var() / effective_size(adjusted)[0]

    # Least squares minimises the marginal variance, which the fast coordinate dominates.
    assert asymptotic_variance("batch_means") < 0.8 * asymptotic_variance("least_squares")


# Networks


def test_a_network_beats_the_polynomials_it_contains(banana):
    network = spread(banana, SMALL, SGD())
    linear = exact_spread(banana, Polynomial(1), 1e-6)
    assert (network[:2] < 0.5 * linear[:2]).all()


def test_an_affine_output_of_a_gaussian_is_exact_from_the_start(rng):
    x = rng.normal(size=(4, 100, 3))
    estimate = run_engine(x, -x, x + 2.0, family=SMALL, solver=QUICK, random_seed=0).estimate
    assert ((estimate.plain_mcse / estimate.mcse) ** 2 > 1e3).all()


def test_squares_are_found_and_helped_by_their_partners(rng):
    x = rng.normal(size=(2000, 3))
    squares, partners = find_squares(np.column_stack([x, (x - 0.1) ** 2, np.cos(x[:, :1])]))
    assert squares.tolist() == [3, 4, 5]
    assert partners.tolist() == [0, 1, 2]
    chains = x[:1000].reshape(4, 250, 3)
    moments = np.concatenate([chains, chains**2], axis=2)
    estimate = run_engine(chains, -chains, moments, family=SMALL, solver=QUICK).estimate
    vrf = (estimate.plain_mcse / estimate.mcse) ** 2
    assert (vrf[3:] > 100).all()


def test_training_is_reproducible_from_the_seed(banana):
    runs = [
        run_engine(*banana, family=SMALL, solver=QUICK, random_seed=seed).estimate.mean
        for seed in (7, 7, 8)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


def test_a_single_chain_is_split_into_blocks(banana):
    x, s, outputs = (a.reshape(1, -1, a.shape[2]) for a in banana)
    estimate = run_engine(x, s, outputs, family=SMALL, solver=QUICK, random_seed=0).estimate
    assert estimate.adjusted.shape == outputs.shape
    assert estimate.mcse[0] < 0.9 * estimate.plain_mcse[0]


def test_a_split_fraction_trains_on_the_first_part(banana):
    estimate = run_engine(*banana, family=SMALL, solver=QUICK, folds=0.5, random_seed=0).estimate
    assert estimate.adjusted.shape[1] == banana[0].shape[1] // 2
    assert estimate.mcse[0] < estimate.plain_mcse[0]


def test_a_time_budget_shortens_training(banana):
    unlimited = SGD(num_epochs=200, batch_size=32, early_stopping=False)
    limited = SGD(num_epochs=200, batch_size=32, early_stopping=False, time_budget=0.1)
    steps = [
        max(record.epoch for record in run_engine(*banana, family=SMALL, solver=s).history)
        for s in (limited, unlimited)
    ]
    assert steps[0] < 0.5 * steps[1]


# Divergence


def test_divergence_is_restarted_at_a_lower_rate(banana):
    solver = SGD(learning_rate=30.0, precondition=True, strength=1e-6, max_restarts=6)
    run = run_engine(*banana, family=Polynomial(2), solver=solver, random_seed=0)
    assert max(record.restart for record in run.history) >= 1
    assert run.estimate.mcse[1] < run.estimate.plain_mcse[1]


@pytest.mark.parametrize("family", [Polynomial(2), SMALL], ids=["polynomial", "network"])
def test_hopeless_divergence_warns_and_leaves_the_plain_average(family, banana):
    solver = SGD(optimizer=optax.sgd(-50.0), max_restarts=1, num_epochs=5)
    with pytest.warns(UserWarning, match="diverged 2 times"):
        estimate = run_engine(*banana, family=family, solver=solver, random_seed=0).estimate
    np.testing.assert_array_equal(estimate.mean, estimate.plain_mean)
    np.testing.assert_array_equal(estimate.mcse, estimate.plain_mcse)


# The labelled layer


def test_the_history_is_on_the_result_and_the_table_has_no_gaps(banana, capsys):
    x, s, _ = banana
    posterior = {"posterior": {"a": x[..., 0], "b": x[..., 1]}}
    import arviz_base

    data = arviz_base.from_dict(posterior)
    scores = scores_dataset(x, s)
    result = fit(
        data, scores=scores, family="network", solver=QUICK, random_seed=1, progressbar=False
    )
    columns = ["member", "fold", "restart", "epoch", "loss", "held_out_variance"]
    assert list(result.history.columns) == columns
    assert set(result.history["fold"]) == {0, 1, 2, 3}
    assert fit(data, scores=scores, family="polynomial", progressbar=False).history is None
    assert capsys.readouterr().out == ""
    table = summary(data, scores=scores, family="network", solver=QUICK, random_seed=1)
    assert np.isfinite(table.to_numpy(dtype=float)).all()
    assert "out of fold" in capsys.readouterr().out


def test_everything_that_auto_stacks_can_be_trained(rng):
    x = rng.normal(size=(4, 50, 6))
    outputs = np.exp(0.3 * x[..., :1]) + x[..., 1:2]
    estimate = run_engine(x, -x, outputs, solver=QUICK, random_seed=0).estimate
    assert abs(estimate.mean[0] - np.exp(0.045)) < 4 * estimate.mcse[0]
    assert estimate.mcse[0] < 0.7 * estimate.plain_mcse[0]
    assert {"imq kernel", "anova kernel"} <= {
        part for label in estimate.weights for part in label.split(" + ")
    }


def test_auto_adds_a_network_only_where_it_pays():
    def has_network(n, d):
        return any(isinstance(m, NeuralNetwork) for m in default_stack(n, d))

    assert not has_network(4000, 10)
    assert has_network(4000, 61)
    assert has_network(100_000, 10)
    assert not has_network(1000, 501)
    assert has_network(40_000, 10)
    assert not has_network(32_000, 10)
    between = [describe(member) for member in default_stack(40_000, 10)]
    assert "polynomial order 2 + imq kernel" in between
    # With smaller systems kernels end, and networks begin, at fewer draws.
    early = [describe(member) for member in default_stack(4000, 10, max_draws=400)]
    assert early[-2:] == ["silu network 512", "silu network 512 unpaired"]
    assert not any("kernel" in label for label in early)
    big = default_stack(1_000_000, 50)
    assert not any(isinstance(member, Kernel) for member in big)


def test_the_preconditioner_copes_with_fewer_draws_than_features(rng):
    features = rng.normal(size=(20, 50))
    found = fit_preconditioner(features, np.array([1e-6]), num_draws=20, batch_size=10)
    assert np.isfinite(found.scales).all()
    assert 0 < found.learning_rate < 1


@pytest.mark.parametrize("enabled", [True, False])
def test_very_many_features_are_not_rotated(rng, enabled, monkeypatch):
    """A rotation of p features takes p^2 numbers, and as many products in every step."""
    monkeypatch.setattr("az_cv.solvers.training.preconditioner.MAX_ROTATED", 5)
    features = rng.normal(size=(100, 6)) * np.arange(1, 7)
    found = fit_preconditioner(features, np.zeros(1), num_draws=100, batch_size=10, enabled=enabled)
    assert found.rotation is None
    variances = (features**2).mean(axis=0)
    expected = 1 / variances if enabled else np.ones(6)
    np.testing.assert_allclose(found.scales[:, 0], expected)
    scaled = features * np.sqrt(expected)
    top = np.linalg.eigvalsh(scaled.T @ scaled / 100)[-1]
    assert 0 < found.learning_rate < 0.5 / top


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"family": SMALL, "solver": Exact()}, TypeError, "NeuralNetwork has none"),
        (
            {"family": Ensemble([Kernel(), Polynomial(1)], semi_exact=True), "solver": QUICK},
            TypeError,
            "semi_exact",
        ),
    ],
)
def test_combinations_that_cannot_work_are_refused(arguments, error, message, banana):
    with pytest.raises(error, match=message):
        run_engine(*banana, **arguments)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SGD(objective="median"), "objective 'median' is unknown"),
        (lambda: SGD(schedule="linear"), "schedule 'linear' is unknown"),
        (lambda: SGD(regularizer="l1"), "regularizer 'l1' is unknown"),
        (lambda: SGD(batch_size=0), "batch_size must be positive"),
        (lambda: SGD(objective="variance", batch_size=1), "at least 2"),
    ],
)
def test_impossible_solvers_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_in_sample_training_sees_every_draw():
    x = np.random.default_rng(3).normal(size=(1, 200, 2))
    f = np.concatenate([x[..., :1], x[..., :1] * x[..., 1:]], axis=2)
    result = run_engine(x, -x, f, family=Polynomial(2), solver=SGD(strength=1e-8), folds=None)
    exact = run_engine(x, -x, f, family=Polynomial(2), solver=Exact(ridge=1e-8), folds=None)
    assert_allclose(result.estimate.mean, exact.estimate.mean, atol=1e-6)
    assert len({record.fold for record in result.history}) == 9  # eight eighths and the whole


@pytest.mark.parametrize(
    "family", [Polynomial(1), Kernel(length_scale=2.0)], ids=["poly", "kernel"]
)
def test_folds_of_unequal_length_share_one_compilation(family, monkeypatch):
    trainers = []

    class Observed(Trainer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            trainers.append(self)

    monkeypatch.setattr("az_cv.solvers.training.cross_fit.Trainer", Observed)
    x = np.random.default_rng(4).normal(size=(1, 203, 2))
    run_engine(x, -x, x, family=Polynomial(2), solver=SGD(num_epochs=2), folds=None)
    (trainer,) = trainers
    assert trainer._run_block._cache_size() == 1


def test_first_training_finds_the_weight_decay():
    """Decay that leaves nothing of the network is tried once, and not taken."""
    x = np.random.default_rng(4).normal(size=(2, 300, 2))
    f = np.sin(x).sum(axis=2, keepdims=True)
    mean, variance = {}, {}
    for strength in (1.0, 100.0, (100.0, 1.0)):
        result = run_engine(x, -x, f, family=SMALL, solver=SGD(strength=strength), random_seed=0)
        mean[strength] = result.estimate.mean
        variance[strength] = result.history[-1].held_out_variance
        assert len({(r.fold, r.epoch) for r in result.history}) == len(result.history)
    assert variance[1.0] < 0.5 * variance[100.0]
    assert_array_equal(mean[100.0, 1.0], mean[1.0])
