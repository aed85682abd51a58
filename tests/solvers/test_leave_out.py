"""Closed-form leave-out fits against refitting without the fold."""

from dataclasses import replace

import numpy as np
import pytest

from az_cv import Kernel
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.linear.dual_system import factorise_dual
from az_cv.solvers.linear.inverse import assemble_gram
from az_cv.solvers.linear.linear_fit import Outskirts, find_outskirts
from az_cv.solvers.linear.primal_system import factorise_primal

FOLDS = {
    "single draws": lambda n: [np.array([i]) for i in range(n)],
    "runs": lambda n: np.split(np.arange(n), range(3, n, 3)),
    "two halves": lambda n: [np.arange(n // 2), np.arange(n // 2, n)],
}


@pytest.fixture
def problem(rng):
    x = rng.normal(size=(60, 2))
    outputs = np.column_stack([np.sin(x[:, 0]), x[:, 1] ** 2 + rng.normal(size=60)])
    return x, -x, outputs


def refit_dual(gram, outputs, ridge, train, basis):
    n = len(train)
    system = np.block(
        [
            [gram[np.ix_(train, train)] + ridge * np.eye(n), basis[train]],
            [basis[train].T, np.zeros((basis.shape[1],) * 2)],
        ]
    )
    solution = np.linalg.solve(
        system, np.vstack([outputs[train], np.zeros((basis.shape[1], outputs.shape[1]))])
    )
    return solution[:n], solution[n:]


@pytest.mark.parametrize("folds", FOLDS.values(), ids=FOLDS)
@pytest.mark.parametrize("semi_exact", [False, True])
def test_dual_leave_out_equals_refitting(problem, folds, semi_exact):
    x, s, outputs = problem
    kernel = Kernel(length_scale=1.5)
    gram = kernel.gram(x, s, x, s)
    exact = [s if semi_exact else None]
    basis = np.column_stack([np.ones(60), s]) if semi_exact else np.ones((60, 1))
    relative = 1e-3
    blocks = folds(60)
    (fit,) = factorise_dual(
        assemble_gram(kernel.gram, x, s), blocks, ridge=relative, exact_features=exact
    ).fit(outputs)
    ridge = relative * np.trace(gram) / 60
    _, everything = refit_dual(gram, outputs, ridge, np.arange(60), basis)
    np.testing.assert_allclose(fit.intercept, everything[0], rtol=1e-8)
    for rows in blocks:
        train = np.setdiff1d(np.arange(60), rows)
        weights, null = refit_dual(gram, outputs, ridge, train, basis)
        control_variate = gram[np.ix_(rows, train)] @ weights + basis[rows][:, 1:] @ null[1:]
        np.testing.assert_allclose(fit.adjusted[rows], outputs[rows] - control_variate, atol=1e-8)
        np.testing.assert_allclose(
            fit.residual[rows], outputs[rows] - control_variate - null[0], atol=1e-8
        )


@pytest.mark.parametrize("folds", FOLDS.values(), ids=FOLDS)
def test_primal_leave_out_equals_refitting(problem, folds, rng):
    _, _, outputs = problem
    features = rng.normal(size=(60, 4)) * np.array([1.0, 1e4, 1e-3, 1.0])
    relative = 1e-6
    blocks = folds(60)
    (fit,) = factorise_primal(features, blocks, ridge=relative).fit(outputs)
    penalty = relative * (features**2).sum() / 60 * np.diag([0.0, 1, 1, 1, 1])
    design = np.column_stack([np.ones(60), features])
    for rows in [*blocks, np.array([], dtype=int)]:
        train = np.setdiff1d(np.arange(60), rows)
        normal = design[train].T @ design[train] + penalty
        coefficients = np.linalg.solve(normal, design[train].T @ outputs[train])
        if not len(rows):
            np.testing.assert_allclose(fit.intercept, coefficients[0], rtol=1e-7)
            continue
        expected = outputs[rows] - features[rows] @ coefficients[1:]
        np.testing.assert_allclose(fit.adjusted[rows], expected, rtol=1e-6, atol=1e-8)


def each_without(distinct, control_variate, outputs):
    """Return f - g, with g at each draw from a fit without it and its repetitions."""
    n = len(outputs)
    apart = [
        outputs[rows] - control_variate(rows, np.setdiff1d(np.arange(n), rows)) for rows in distinct
    ]
    return np.concatenate(apart)


def test_single_draws_left_out_are_those_of_refitting(problem, rng):
    x, s, outputs = problem
    for repeated in (x, s, outputs):
        repeated[[11, 12, 30]] = repeated[[10, 10, 29]]
    distinct = np.split(np.arange(60), [i for i in range(1, 60) if i not in (11, 12, 30)])
    kernel, ridge = Kernel(length_scale=1.5), 1e-3
    gram, basis = kernel.gram(x, s, x, s), np.ones((60, 1))

    def by_kernel(rows, train):
        weights, _ = refit_dual(gram, outputs, ridge * np.trace(gram) / 60, train, basis)
        return gram[np.ix_(rows, train)] @ weights

    dual = factorise_dual(assemble_gram(kernel.gram, x, s), FOLDS["runs"](60), ridge=ridge)
    (fit,) = dual.fit(outputs, distinct=distinct)
    expected = each_without(distinct, by_kernel, outputs)
    np.testing.assert_allclose(fit.leave_one_out, expected, rtol=1e-7)
    assert (abs((fit.leave_one_out - fit.adjusted).mean(axis=0)) > 1e-6).all()

    design = np.column_stack([np.ones(60), x, s**3])
    penalty = ridge * (design[:, 1:] ** 2).sum() / 60 * np.diag([0.0, 1, 1, 1, 1])

    def by_features(rows, train):
        normal = design[train].T @ design[train] + penalty
        return design[rows, 1:] @ np.linalg.solve(normal, design[train].T @ outputs[train])[1:]

    primal = factorise_primal(design[:, 1:], FOLDS["runs"](60), ridge=ridge)
    (fit,) = primal.fit(outputs, distinct=distinct)
    expected = each_without(distinct, by_features, outputs)
    np.testing.assert_allclose(fit.leave_one_out, expected, rtol=1e-7)
    assert primal.fit(outputs)[0].leave_one_out is None


def test_quadrature_error_and_evidence_are_those_of_the_gaussian_process(problem):
    x, s, outputs = problem
    kernel = Kernel(length_scale=1.5)
    gram = kernel.gram(x, s, x, s)
    covariance = gram + 1e-2 * np.trace(gram) / 60 * np.eye(60)
    (fit,) = factorise_dual(
        assemble_gram(kernel.gram, x, s), FOLDS["single draws"](60), ridge=1e-2
    ).fit(outputs)
    precision = np.linalg.inv(covariance)
    ones = np.ones(60)
    information = ones @ precision @ ones
    projected = precision - np.outer(precision @ ones, precision @ ones) / information
    amplitude = np.einsum("iq,ij,jq->q", outputs, projected, outputs) / 59
    evidence = -0.5 * (
        59 * np.log(amplitude) + np.linalg.slogdet(covariance)[1] + np.log(information)
    )
    np.testing.assert_allclose(fit.log_evidence, evidence, rtol=1e-8)


def test_a_singular_matrix_is_reported_not_raised():
    folds = FOLDS["single draws"](60)
    assert factorise_dual(np.asfortranarray(np.ones((60, 60))), folds, ridge=0.0) is None
    assert factorise_primal(np.ones((60, 1)), folds, ridge=0.0) is None


def test_systems_say_how_much_memory_they_hold():
    features = np.random.default_rng(0).normal(size=(60, 4))
    system = factorise_primal(features, FOLDS["single draws"](60), ridge=1e-3)
    assert system.nbytes == 8 * (60 * 5 + 5 * 5 + 5 * 60)
    ones = factorise_dual(np.asfortranarray(np.eye(60)), FOLDS["single draws"](60), ridge=1e-3)
    assert ones.nbytes == 8 * (60 * 60 + 3 * 60)


def test_unpenalised_features_that_are_collinear_are_left_out(problem):
    x, s, outputs = problem
    sets = [None, np.column_stack([s, s]), s]
    systems = [
        factorise_dual(
            assemble_gram(Kernel(length_scale=1.5).gram, x, s),
            FOLDS["runs"](60),
            ridge=1e-3,
            exact_features=exact,
        )
        for exact in (sets, sets[1:2])
    ]
    assert len(systems[0].fit(outputs)) == 2
    assert systems[1] is None


@pytest.mark.parametrize(("folds", "many"), [("single draws", True), ("runs", False)])
def test_the_shift_is_that_of_refitting_without_the_outermost_runs(problem, folds, many):
    x, s, outputs = problem
    kernel, everything = Kernel(length_scale=1.5), np.arange(60)
    runs = FOLDS[folds](60)
    length = len(runs[0])
    outskirts = replace(
        find_outskirts(x, 1, ERROR_MODEL),
        number=8,
        length=length,
        runs=np.arange(60) // length,
        many=many,
    )

    def fit(rows, outskirts=None):
        gram = assemble_gram(kernel.gram, x[rows], s[rows])
        # The ridge is relative to the mean diagonal, which leaving draws out would change.
        relative = 1e-3 * np.trace(kernel.gram(x, s, x, s)) / 60 / np.diag(gram).mean()
        system = factorise_dual(gram, FOLDS["single draws"](len(rows)), ridge=relative)
        (found,) = system.fit(outputs[rows], outskirts=outskirts)
        return found

    found = fit(everything, outskirts)
    slopes = [np.polyfit(f, e, 1)[0] for f, e in zip(outputs.T, found.residual.T)]
    left = np.clip(slopes, 0, 1) * outputs
    for j in range(outputs.shape[1]):
        shifts = []
        for distance in ((x**2).sum(axis=1), np.abs(outputs[:, j] - outputs[:, j].mean())):
            farthest = sorted(runs, key=lambda rows: -distance[rows].max())
            for k in (1, 2, 4, 8):
                rest = np.setdiff1d(everything, np.concatenate(farthest[:k]))
                weight = outskirts.discount if k > 4 else 1.0
                if many:
                    weight = k**-0.5
                shift = fit(rest).intercept[j] - found.intercept[j]
                plain = left[rest, j].mean() - left[:, j].mean()
                shifts.append(weight * abs(shift - plain))
        np.testing.assert_allclose(found.tail_shift[j], max(shifts), rtol=1e-6)


def test_visits_count_in_few_dimensions(rng):
    x = rng.normal(size=(2000, 2))
    outskirts = find_outskirts(x, 4, ERROR_MODEL)
    assert (outskirts.length, outskirts.number) == (4, 16)
    visits = outskirts.runs.reshape(-1, 4)
    assert (visits == visits[:, :1]).all()
    assert len(np.unique(visits)) == 500
    assert find_outskirts(x, 500, ERROR_MODEL).length == 1
    assert find_outskirts(np.hstack([x, x]), 4, ERROR_MODEL).length == 1


@pytest.mark.parametrize(("n", "number"), [(5, 1), (100, 6), (512, 32), (4000, 32)])
def test_a_sixteenth_of_few_draws_is_outermost(n, number, rng):
    assert find_outskirts(rng.normal(size=(n, 3)), 1, ERROR_MODEL).number == number


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_outermost_draws_are_the_first_of_a_stable_order(length, ties, rng):
    distance = rng.normal(size=(100, 6))
    if ties:
        distance = (distance > 1.0).astype(float)
    runs = np.arange(100) // length
    outskirts = Outskirts(distance[:, 0], runs, length, number=7, few=1, discount=1.0)
    reach = np.stack([distance[runs == run].max(axis=0) for run in runs])
    expected = np.argsort(-reach, axis=0, kind="stable")[: 7 * length].T
    np.testing.assert_array_equal(outskirts.outermost(distance), expected)
