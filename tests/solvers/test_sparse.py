"""Few features of many: the lasso and random subsets, each against a second route."""

from dataclasses import replace

import numpy as np
import pytest

from az_cv import Ensemble, Exact, Kernel, Polynomial
from az_cv.engine.engine import run_engine
from az_cv.solvers import Lasso, RandomSubsets, Task
from az_cv.solvers.folds import make_folds
from az_cv.solvers.linear.primal_system import factorise_primal
from az_cv.solvers.sparse import lasso_path as module
from az_cv.solvers.sparse.lasso_path import Moments, lasso_path
from az_cv.solvers.sparse.splits import make_splits
from az_cv.testing import Gaussian, LogisticRegression

SOLVERS = [Lasso(), RandomSubsets(), Lasso(penalty=0.1), RandomSubsets(num_fits=3, num_features=9)]


def regression(rng, n, p, correlation=0.5):
    """Return standardised features, each correlated with the next, and outputs of few of them."""
    z = rng.normal(size=(n, p + 1))
    features = z[:, 1:] + correlation * z[:, :-1]
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    coefficients = rng.normal(size=(p, 3)) * (rng.uniform(size=(p, 3)) < 0.1)
    outputs = features @ coefficients + 0.5 * rng.normal(size=(n, 3))
    return features, outputs - outputs.mean(axis=0)


def moments_of(features, outputs):
    n = len(features)
    return Moments(features.T @ features / n, features.T @ outputs / n, outputs.var(axis=0), n)


@pytest.mark.parametrize("rounds", [10, 0], ids=["active sets", "coordinate descent"])
@pytest.mark.parametrize(("n", "p"), [(100, 40), (60, 150)])
def test_the_path_meets_the_conditions_of_the_minimum(n, p, rounds, rng, monkeypatch):
    """Karush-Kuhn-Tucker: the gradient is the penalty where a coefficient is, else below it."""
    monkeypatch.setattr(module, "MAX_ROUNDS", rounds)
    features, outputs = regression(rng, n, p)
    moments = moments_of(features, outputs)
    largest = np.abs(moments.right).max(axis=0)
    penalties = np.array([0.9, 0.5, 0.2, 0.1, 0.05])
    path = list(lasso_path(moments, penalties, tolerance=1e-8))
    assert len(path) == 5
    for fraction, (chosen, coefficients) in zip(penalties, path):
        np.testing.assert_array_equal(chosen, np.arange(3))
        gradient = features.T @ (outputs - features @ coefficients) / n / (fraction * largest)
        on = coefficients != 0
        assert on.any(axis=0).all()
        np.testing.assert_allclose(gradient[on], np.sign(coefficients[on]), atol=1e-5)
        assert np.abs(gradient[~on]).max() <= 1 + 1e-5


def test_both_routes_find_the_same_minimum(rng, monkeypatch):
    moments = moments_of(*regression(rng, 80, 120, correlation=1.0))
    penalties = np.geomspace(1, 0.03, 8)[1:]
    *_, (_, by_sets) = lasso_path(moments, penalties, tolerance=1e-9)
    monkeypatch.setattr(module, "MAX_ROUNDS", 0)
    monkeypatch.setattr(module, "MAX_ELEMENTS", 1.0)  # every output for itself
    *_, (_, by_descent) = lasso_path(moments, penalties, tolerance=1e-9)
    np.testing.assert_allclose(by_sets, by_descent, atol=1e-6)


def test_outputs_stop_where_nothing_more_is_gained(rng):
    features, outputs = regression(rng, 200, 100)
    noise = rng.normal(size=(200, 1))
    moments = moments_of(features, np.hstack([outputs, noise - noise.mean()]))
    penalties = np.geomspace(1, 1e-4, 20)[1:]
    steps = [set(chosen) for chosen, _ in lasso_path(moments, penalties, max_features=60)]
    reach = [sum(k in chosen for chosen in steps) for k in range(4)]
    assert reach[3] < min(reach[:3])
    limited = list(lasso_path(moments, penalties, max_features=5))
    assert max(len(chosen) for chosen, _ in limited[3:]) < 4 or len(limited) < len(steps)


def task_of(x, s, folds="auto"):
    return Task(
        x.reshape(-1, x.shape[2]),
        s.reshape(-1, x.shape[2]),
        x.shape[:2],
        make_folds(folds, x),
    )


@pytest.mark.parametrize("folds", ["auto", "chain", 3, 0.5])
def test_without_penalty_the_lasso_is_least_squares(folds, rng):
    target = LogisticRegression(d=3)
    x = target.sample(rng, 200).reshape(4, 50, 3)
    s = target.score(x.reshape(-1, 3)).reshape(x.shape)
    task = task_of(x - x.mean(axis=(0, 1)), s, folds)
    outputs = np.exp(0.3 * x).reshape(200, 3)
    family = Polynomial(2)
    (member,) = Lasso(penalty=0).prepare(family, task).fit(outputs).members
    features = replace(family, degree_scale=1.0).balanced(task.s).features(task.x, task.s)
    _, reported = make_splits(task.folds, 200, 5)
    expected = outputs.copy()
    for split in reported:
        assert not np.intersect1d(split.trained, split.judged).size
        design = np.column_stack([np.ones(len(split.trained)), features[split.trained]])
        coefficients = np.linalg.lstsq(design, outputs[split.trained], rcond=None)[0]
        expected[split.judged] -= features[split.judged] @ coefficients[1:]
    expected = expected.reshape(4, 50, 3)[:, task.folds.first_draw :]
    np.testing.assert_allclose(member.adjusted, expected, atol=1e-8)
    np.testing.assert_allclose(member.estimate, expected.mean(axis=(0, 1)), atol=1e-8)


@pytest.mark.parametrize("choice", ["auto", "chain", 7, 0.5])
def test_residuals_come_from_fits_that_have_not_seen_the_run(choice, rng):
    """Whatever the outputs are in a group, the fit that judges it there stays the same."""
    x = np.cumsum(rng.normal(size=(4, 100, 3)), axis=1) * 0.02 + rng.normal(size=(4, 100, 3))
    task = task_of(x, -x, choice)
    _, reported = make_splits(task.folds, 400, 5)
    for block in task.folds.blocks:
        (holding,) = [s for s in reported if np.isin(block, s.judged).all()]
        assert not np.isin(block, holding.trained).any()
    outputs = np.sin(2 * x).reshape(400, 3)
    judged = reported[0].judged
    solver = Lasso(penalty=0.2)
    before = solver.prepare(Polynomial(2), task).fit(outputs).members[0].adjusted
    changed = outputs.copy()
    changed[judged] += rng.normal(size=(len(judged), 3))
    after = solver.prepare(Polynomial(2), task).fit(changed).members[0].adjusted
    shape = (4, 100, 3)
    control = [np.full(shape, np.nan) for _ in range(2)]
    for values, adjusted, whole in zip(control, (before, after), (outputs, changed)):
        values[:, task.folds.first_draw :] = (
            whole.reshape(shape)[:, task.folds.first_draw :] - adjusted
        )
    rows = np.zeros(400, dtype=bool)
    rows[judged] = True
    rows = rows.reshape(4, 100) & ~np.isnan(control[0][..., 0])
    np.testing.assert_allclose(control[0][rows], control[1][rows], atol=1e-10)
    if len(reported) > 1:
        assert not np.allclose(control[0][~rows], control[1][~rows])


def test_an_average_of_fits_leaves_out_what_each_of_them_does(rng):
    """The residuals are the average of those of refitting every subset without each fold."""
    target = LogisticRegression(d=3)
    x = target.sample(rng, 120).reshape(4, 30, 3)
    s = target.score(x.reshape(-1, 3)).reshape(x.shape)
    task, outputs = task_of(x, s, "chain"), np.exp(0.3 * x).reshape(120, 3)
    subsets = RandomSubsets(num_fits=4, num_features=3).prepare(Polynomial(2), task)
    (member,) = subsets.fit(outputs).members
    columns = subsets._subsets(3)
    assert len(columns) == 4
    assert all(len(own) == 6 and set(own) >= {0, 1, 2} for own in columns)
    assert set(np.concatenate(columns)) == set(range(9))
    expected = np.zeros_like(outputs)
    for own in columns:
        for block in task.folds.blocks:
            rest = np.setdiff1d(np.arange(120), block)
            design = np.column_stack([np.ones(120), subsets.features[:, own]])
            coefficients = np.linalg.lstsq(design[rest], outputs[rest], rcond=None)[0]
            expected[block] += (outputs[block] - design[block, 1:] @ coefficients[1:]) / 4
    np.testing.assert_allclose(member.adjusted.reshape(120, 3), expected, atol=1e-7)


def test_one_subset_of_everything_is_least_squares(rng):
    x = rng.normal(size=(4, 50, 3))
    task, outputs = task_of(x, -np.tanh(x)), np.cos(x).reshape(200, 3)
    subsets = RandomSubsets(num_features=100).prepare(Polynomial(2), task)
    (member,) = subsets.fit(outputs).members
    (fit,) = factorise_primal(subsets.features, task.folds.blocks, ridge=1e-13).fit(outputs)
    np.testing.assert_allclose(member.adjusted.reshape(200, 3), fit.adjusted, atol=1e-8)


@pytest.mark.parametrize("folds", ["auto", "chain", None, 0.5])
def test_the_lasso_finds_a_square_among_many(folds, rng):
    """Exact on a Gaussian, correlated and with more features than draws."""
    factor = rng.normal(size=(25, 25)) + 3 * np.eye(25)
    target = Gaussian(factor @ factor.T, mean=rng.normal(size=25))
    x = target.sample(rng, 320).reshape(4, 80, 25)
    s = target.score(x.reshape(-1, 25)).reshape(x.shape)
    outputs = np.stack([x[..., 0] ** 2, x[..., 0]], axis=-1)
    estimate = run_engine(x, s, outputs, family=Polynomial(2), solver=Lasso(), folds=folds).estimate
    truth = [target.covariance[0, 0] + target.mean[0] ** 2, target.mean[0]]
    assert Polynomial(2).num_features(25) > 320
    np.testing.assert_allclose(estimate.mean, truth, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("order", [2, 3])
def test_nothing_is_worse_than_plain(solver, order, rng):
    """Where features outnumber draws, and where no polynomial helps."""
    x = rng.normal(size=(4, 15, 12))
    outputs = np.concatenate([x[..., :2], np.sign(x[..., :2]), rng.normal(size=(4, 15, 2))], axis=2)
    family = Polynomial(order, coordinates=range(12 if order == 2 else 4))
    estimate = run_engine(x, -x, outputs, family=family, solver=solver).estimate
    assert (estimate.mcse <= estimate.plain_mcse).all()
    assert np.isfinite(estimate.mean).all()


@pytest.mark.long
@pytest.mark.parametrize("solver", [Lasso(), RandomSubsets(num_fits=10)], ids=repr)
def test_intervals_hold_the_truth(solver):
    """Of 95% intervals for means and squares of three coefficients, 40 data sets of 160 draws."""
    target = LogisticRegression(d=3, rows=40)
    truth = np.array(list(target.expectations().values()))
    rng = np.random.default_rng(3)
    z, gains = [], []
    for x in target.sample(rng, 40 * 160).reshape(40, 4, 40, 3):
        s = target.score(x.reshape(-1, 3)).reshape(x.shape)
        outputs = np.concatenate([x, x**2], axis=2)
        estimate = run_engine(x, s, outputs, family=Polynomial(2), solver=solver).estimate
        z.append((estimate.mean - truth) / estimate.mcse)
        gains.append((estimate.plain_mcse / estimate.mcse) ** 2)
    assert (np.abs(z) < 1.96).mean() > 0.9
    assert np.median(gains) > 2


@pytest.mark.parametrize("solver", [Lasso(), RandomSubsets()], ids=repr)
def test_families_without_features_are_refused(solver):
    x = np.random.default_rng(0).normal(size=(4, 20, 2))
    for family in (Kernel(), Ensemble([Kernel(centres=5), Polynomial(2)], semi_exact=True)):
        with pytest.raises(TypeError, match=r"selects features, and .* Use solver=Exact\(\)"):
            run_engine(x, -x, x, family=family, solver=solver)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Lasso(penalty=2.0), "penalty must be 'auto' or from 0 to 1; it is 2.0"),
        (lambda: Lasso(num_folds=1), "num_folds must be an integer from 2 on"),
        (lambda: RandomSubsets(num_fits=0), "num_fits must be an integer from 1 on"),
        (lambda: RandomSubsets(num_features=0), "num_features must be 'auto' or an integer"),
    ],
)
def test_impossible_choices_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_least_squares_needs_more_draws_than_features(rng):
    x = rng.normal(size=(4, 10, 12))
    with pytest.raises(ValueError, match="penalty=0 is least squares and needs more draws"):
        run_engine(x, -x, x, family=Polynomial(2), solver=Lasso(penalty=0))


def test_with_hardly_any_draws_nothing_is_claimed(rng):
    x = rng.normal(size=(2, 5, 2))
    for solver in (Lasso(), RandomSubsets()):
        estimate = run_engine(x, -x, x, family=Polynomial(2), solver=solver, folds="chain").estimate
        np.testing.assert_array_equal(estimate.mean, x.mean(axis=(0, 1)))


def test_indicators_are_answered(rng):
    x = rng.normal(size=(4, 50, 3))
    for solver in (Lasso(), RandomSubsets(), Exact()):
        task = task_of(x, -x)
        members = (
            solver.prepare(Polynomial(3), task)
            .fit((x[..., :2] < 0).reshape(200, 2) * 1.0, steps=True)
            .members
        )
        assert members[0].adjusted.std() < 0.5
