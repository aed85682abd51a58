import numpy as np
import pytest

from az_cv.engine.combination import PLAIN
from az_cv.engine.combination import combine as combine_in_dimension
from az_cv.engine.engine import run_engine
from az_cv.engine.errors import plain_standard_error, standard_error
from az_cv.solvers.base import Member, Task
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.folds import make_folds
from az_cv.solvers.linear.exact import member_from_fit, tail_error
from az_cv.solvers.linear.linear_fit import find_outskirts
from az_cv.solvers.linear.primal_system import factorise_primal


@pytest.fixture
def outputs(rng):
    return rng.normal(size=(4, 500, 3))


def combine(outputs, members, dimension=2):
    return combine_in_dimension(outputs, members, dimension, ERROR_MODEL)


def member(adjusted, label="member", tail=0.0):
    q = adjusted.shape[2]
    return Member(label, adjusted.mean(axis=(0, 1)), adjusted, np.full(q, tail))


def test_a_useless_member_leaves_plain_monte_carlo(outputs, rng):
    estimate = combine(outputs, [member(outputs + 3 * rng.normal(size=outputs.shape))])
    np.testing.assert_allclose(estimate.mean, outputs.mean(axis=(0, 1)), atol=0.02)
    assert (estimate.mcse <= estimate.plain_mcse).all()
    assert (estimate.weights[PLAIN] > 0.8).all()


def test_chains_with_memory_are_estimated_with_single_draws_left_out(rng):
    """What leaving out runs would change counts as error."""
    x = rng.normal(size=(4, 50, 3))
    for t in range(1, 50):
        x[:, t] = 0.8 * x[:, t - 1] + 0.6 * x[:, t]
    flat, folds = x.reshape(200, 3), make_folds("auto", x)
    system = factorise_primal(np.hstack([flat, flat**2 - 1]), folds.blocks, ridge=1e-3)
    outskirts = find_outskirts(flat, folds.visit, ERROR_MODEL)
    (fit,) = system.fit(np.exp(flat), outskirts=outskirts, distinct=folds.distinct)
    found = member_from_fit("polynomial", fit, Task(flat, -flat, (4, 50), folds))
    singly = fit.leave_one_out.mean(axis=0)
    np.testing.assert_allclose(found.estimate, singly)
    np.testing.assert_allclose(found.adjusted.mean(axis=(0, 1)), singly)
    change = fit.adjusted.mean(axis=0) - singly
    assert (abs(change) > 1e-3).all()
    both = np.hypot(tail_error(fit, ERROR_MODEL, 3), change)
    np.testing.assert_allclose(found.tail, fit.times * both)


def test_a_good_member_takes_all(outputs):
    estimate = combine(outputs, [member(1e-6 * outputs)])
    np.testing.assert_allclose(estimate.mean, 0, atol=1e-6)
    np.testing.assert_allclose(estimate.weights["member"], 1)
    assert ((estimate.plain_mcse / estimate.mcse) ** 2 > 1e11).all()


def test_members_with_independent_errors_are_averaged(outputs, rng):
    noise = [0.1 * rng.normal(size=outputs.shape) for _ in range(2)]
    estimate = combine(outputs, [member(noise[0], "a"), member(noise[1], "b")])
    for label in "ab":
        np.testing.assert_allclose(estimate.weights[label], 0.5, atol=0.1)


def test_an_estimate_far_from_the_plain_average_is_not_believed(outputs):
    wrong = Member("wrong", np.full(3, 7.0), 7 + 1e-3 * outputs, np.zeros(3))
    estimate = combine(outputs, [wrong])
    np.testing.assert_array_equal(estimate.weights["wrong"], 0)
    np.testing.assert_allclose(estimate.mean, estimate.plain_mean)


@pytest.mark.parametrize(
    ("residual", "dimension", "believed"),
    [(1e-3, 2, True), (0.1, 2, False), (1e-3, 1, False), (1e-12, 1, True)],
)
def test_only_a_close_fit_is_believed_against_the_plain_average(
    outputs, residual, dimension, believed
):
    far = 10 * outputs.std() / outputs[..., 0].size ** 0.5
    fit = Member("fit", np.full(3, far), far + residual * outputs, np.zeros(3))
    estimate = combine(outputs, [fit], dimension)
    np.testing.assert_allclose(estimate.weights["fit"], 1.0 if believed else 0.0)


def two_modes(seed, f, n=50):
    """Return the error of the mean of f, in standard errors, under two Gaussians with a gap.

    The expectation is a sum over a fine grid.
    """
    weights, means = np.array([0.35, 0.65]), np.array([-2.0, 1.5])
    sds = np.array([0.25, 0.7])

    def densities(x):
        return weights / sds * np.exp(-0.5 * ((x[..., None] - means) / sds) ** 2)

    rng = np.random.default_rng(seed)
    which = (rng.uniform(size=(2, n)) > weights[0]).astype(int)
    x = means[which] + sds[which] * rng.normal(size=(2, n))
    parts = densities(x)
    shares = parts / parts.sum(axis=-1, keepdims=True)
    scores = (shares * (means - x[..., None]) / sds**2).sum(axis=-1)
    grid = np.linspace(-8, 8, 100_001)
    density = densities(grid).sum(axis=-1)
    truth = density @ f(grid) / density.sum()
    estimate = run_engine(x[..., None], scores[..., None], f(x)[..., None]).estimate
    return float((estimate.mean[0] - truth) / estimate.mcse[0])


@pytest.mark.parametrize("f", [np.sin, np.exp, np.asarray], ids=["sine", "exponential", "mean"])
def test_modes_with_a_gap_between_them_do_not_spoil_the_error(f):
    """A kernel fits all draws, left out or not, and misses the shares of the modes."""
    errors = np.array([two_modes(seed, f) for seed in range(12)])
    assert np.abs(errors).max() < 4
    assert (errors**2).mean() < 1.6**2


def test_a_member_with_a_large_tail_error_is_not_preferred(outputs):
    estimate = combine(outputs, [member(1e-3 * outputs, tail=5.0)])
    np.testing.assert_array_equal(estimate.weights["member"], 0)


def test_members_that_ought_to_agree_and_do_not_widen_the_error(outputs):
    fits = [
        Member(label, np.full(3, value), value + 1e-6 * outputs, np.full(3, 1e-6))
        for label, value in (("lucky", 0.0), ("other", 1e-3))
    ]
    estimate = combine(outputs, fits)
    distance = np.abs(np.array([0.0, 1e-3])[:, None] - estimate.mean).max(axis=0)
    np.testing.assert_allclose(estimate.mcse, distance, rtol=0.05)


def test_a_member_with_a_large_error_may_disagree(outputs):
    good = Member("good", np.zeros(3), 1e-6 * outputs, np.full(3, 1e-6))
    poor = Member("poor", np.full(3, 1e-3), 1e-3 + 1e-6 * outputs, np.full(3, 1e-4))
    np.testing.assert_allclose(
        combine(outputs, [good, poor]).mcse, combine(outputs, [good]).mcse, rtol=0.1
    )


def test_autocorrelation_of_the_residuals_enters_the_error(rng):
    noise = rng.normal(size=(4, 2000, 1))
    slow = noise.copy()
    for t in range(1, 2000):
        slow[:, t] = 0.8 * slow[:, t - 1] + noise[:, t]
    zero = np.zeros(1)
    honest = standard_error(slow, zero, ERROR_MODEL)[0]
    independent = slow.std() / np.sqrt(slow.size)
    # The autocorrelation time of AR(1) with 0.8 is 9.
    assert honest == pytest.approx(3 * independent, rel=0.25)


def test_few_heavy_residuals_widen_the_error(rng):
    residual = 1e-3 * rng.normal(size=(4, 500, 1))
    residual[0, 0] = 10.0
    zero = np.zeros(1)
    assert standard_error(residual, zero, ERROR_MODEL)[0] > 2 * residual.std() / np.sqrt(2000)


def test_plain_error_is_arviz(outputs):
    from arviz_stats.base import array_stats

    expected = [float(np.squeeze(array_stats.mcse(outputs[..., j]))) for j in range(3)]
    np.testing.assert_allclose(plain_standard_error(outputs), expected, rtol=1e-6)


def test_many_outputs_together_are_combined_as_each_alone(rng):
    """Good, bad and hopeless members, and one that lies far from the others with a small error."""
    outputs = rng.normal(size=(4, 100, 35))
    sizes = 10.0 ** rng.uniform(-3, 0, size=(3, 35))
    members = [
        member(size * rng.normal(size=outputs.shape), f"member {k}", tail=0.01 * k)
        for k, size in enumerate(sizes)
    ]
    members[0].estimate[:5] += 0.3
    together = combine(outputs, members)
    shares = np.array([weight for weight in together.weights.values()])
    assert ((shares > 0.01).sum(axis=0) > 1).any()
    assert ((shares > 0.99).sum(axis=0) == 1).any()
    for j in range(35):
        parts = [
            Member(m.label, m.estimate[j : j + 1], m.adjusted[..., j : j + 1], m.tail[j : j + 1])
            for m in members
        ]
        alone = combine(outputs[..., j : j + 1], parts)
        for name in ("mean", "mcse", "tail"):
            expected = getattr(alone, name)[0]
            np.testing.assert_allclose(getattr(together, name)[j], expected, rtol=1e-10)
        alone_shares = [alone.weights[label][0] for label in together.weights]
        np.testing.assert_allclose(shares[:, j], alone_shares, atol=1e-10)
