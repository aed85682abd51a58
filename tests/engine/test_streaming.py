"""Sums over pieces give what a fit in memory gives, and errors that are right."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from az_cv.engine.settings import Settings
from az_cv.engine.streaming.adjust import Residuals, batch_edges
from az_cv.engine.streaming.design import Design, fitted_with, sections_at
from az_cv.engine.streaming.estimates import Series, in_order, judge
from az_cv.engine.streaming.gram import Functions, Sample, Work, merge_sums, sums_of
from az_cv.engine.streaming.memory import available_memory, memory_bytes
from az_cv.engine.streaming.outermost import (
    BEYOND,
    MISSED,
    STEEPNESS,
    Outermost,
    farthest,
    hidden_by,
    missed_by,
    number_of,
)
from az_cv.engine.streaming.pieces import Draws, cut
from az_cv.engine.streaming.plan import Size, make_plan
from az_cv.engine.streaming.solve import fits_without, solve
from az_cv.engine.streaming.stream import stream
from az_cv.engine.streaming.whitening import low_rank_whitening, refined
from az_cv.engine.whitening import fit_whitening
from az_cv.families import Kernel, NeuralNetwork, Polynomial
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.linear.primal_system import factorise_primal

pytest.importorskip("dask")


def bent(z):
    """Return draws and scores of a target that no polynomial fits, from normal numbers."""
    x = z.copy()
    x[..., 1:] += 0.3 * (z[..., :1] ** 2 - 1)
    s = -z
    s[..., 0] += 0.6 * z[..., 0] * z[..., 1:].sum(axis=-1)
    return x, s


def bent_draws(rng, chains=2, draws=300, d=3):
    x, s = bent(rng.normal(size=(chains, draws, d)))
    return Draws(x, s, np.exp(0.3 * x))


def sums(draws, design, folds, rows, segments, block):
    whitening = fit_whitening(draws.x.reshape(-1, draws.x.shape[2]))
    q = draws.outputs.shape[2]
    functions = Functions(slice(0, q), np.zeros(q), np.ones(q), np.ones(q))
    work = Work(whitening, design, functions, block)
    parts = {}
    for segment in cut(draws, folds, rows, segments):
        parts.setdefault(segment.fold, []).append(sums_of(work, segment))
    return {fold: merge_sums(part) for fold, part in parts.items()}, whitening


def whitened(whitening, x, s):
    return whitening.draws(x), whitening.scores(s)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("interactions", [True, False])
def test_features_are_those_of_the_family(rng, order, interactions):
    x, s = rng.normal(size=(2, 40, 4))
    family = Polynomial(order=order, interactions=interactions, degree_scale=1.0)
    rows = Design(4, order, interactions).rows(x, s)
    np.testing.assert_allclose(rows[1:].T, family.features(x, s), atol=1e-13)
    assert (rows[0] == 1).all()


def test_sections_span_what_nystrom_features_span(rng):
    x, s = bent(rng.normal(size=(60, 2)))
    kernel = Kernel(length_scale=2.0)
    sections = sections_at(kernel, x[:20], s[:20])
    out = np.empty((len(sections.factor), 60))
    sections.fill(out, x, s)
    inner = kernel.gram(x[:20], s[:20], x[:20], s[:20])
    outer = kernel.gram(x, s, x[:20], s[:20])
    expected = outer @ np.linalg.solve(inner, outer.T)
    np.testing.assert_allclose(out.T @ out, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(("rows", "segments", "block"), [(300, 2, 300), (37, 8, 16)])
def test_residuals_of_a_stream_are_those_of_the_system_in_memory(rng, rows, segments, block):
    draws, ridge, folds = bent_draws(rng), 1e-6, 3
    design = Design(3, 2)
    parts, whitening = sums(draws, design, folds, rows, segments, block)
    grams = {fold: part.gram for fold, part in parts.items()}
    found = solve(grams, parts, design, ridges=(ridge,))
    x, s = whitening.draws(draws.x.reshape(-1, 3)), whitening.scores(draws.s.reshape(-1, 3))
    features = design.rows(x, s)
    numbers = np.arange(600).reshape(2, 300)
    blocks = [np.array_split(chain, folds) for chain in numbers]
    left_out = [np.concatenate([pieces[k] for pieces in blocks]) for k in range(folds)]
    values = Functions(slice(0, 3), np.zeros(3), np.ones(3), np.ones(3)).of(
        draws.outputs.reshape(-1, 3)
    )
    # The ridge of a stream is that of each degree; in memory it is one for all.
    penalty = [(features[a:b] ** 2).sum() / 600 for a, b in ((1, 4), (4, 10))]
    scaled = features[1:].copy()
    scaled[3:] *= np.sqrt(penalty[0] / penalty[1])
    share = penalty[0] / ((scaled**2).sum() / 600)
    system = factorise_primal(scaled.T, left_out, ridge=ridge * share)
    (fit,) = system.fit(values)
    assert set(found.chosen) == {1}
    for fold, rows_out in enumerate(left_out):
        residual = values[rows_out] - features[:, rows_out].T @ found.coefficients[fold]
        # Penalties are those of the training draws here and of all draws there.
        np.testing.assert_allclose(residual, fit.residual[rows_out], atol=1e-7)


def test_the_way_draws_are_cut_does_not_matter(rng):
    draws = bent_draws(rng)
    design = Design(3, 2)
    whole, _ = sums(draws, design, 2, 300, 2, 300)
    pieces, _ = sums(draws, design, 2, 41, 6, 17)
    for fold in (0, 1):
        np.testing.assert_allclose(
            np.tril(whole[fold].gram), np.tril(pieces[fold].gram), rtol=1e-12, atol=1e-9
        )
        np.testing.assert_allclose(whole[fold].cross, pieces[fold].cross, rtol=1e-12, atol=1e-9)
        far, same = whole[fold].outermost, pieces[fold].outermost
        np.testing.assert_allclose(far.squares, same.squares, rtol=1e-12)
        np.testing.assert_allclose(far.features, same.features, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(far.values, same.values)


def test_a_fit_without_the_outermost_draws_is_that_to_all_others(rng):
    draws, design, ridge = bent_draws(rng), Design(3, 2), 1e-3
    parts, whitening = sums(draws, design, 2, 41, 6, 17)
    whole = merge_sums(list(parts.values()))
    far = farthest([whole.outermost], 20)
    found = fits_without(whole.gram, whole.cross, far, design, ridge, whole.count)[-1]
    x, s = whitening.draws(draws.x.reshape(-1, 3)), whitening.scores(draws.s.reshape(-1, 3))
    near = np.argsort(-(x**2).sum(axis=1))[20:]
    features = design.rows(x, s)[:, near]
    functions = Functions(slice(0, 3), np.zeros(3), np.ones(3), np.ones(3))
    values = functions.of(draws.outputs.reshape(-1, 3)[near])
    size = (features**2).sum(axis=1)
    penalty = ridge / len(near) * np.r_[0, [size[1:4].sum()] * 3, [size[4:].sum()] * 6]
    expected = np.linalg.solve(features @ features.T + np.diag(penalty), features @ values)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_the_more_a_kernel_misses_at_the_outermost_draws_the_larger_its_error(rng):
    """Its fit is close where there are draws, and wrong by as much as all of them farther out."""
    far = Outermost(np.full(4, 9.0), rng.normal(size=(3, 4)), rng.normal(size=(4, 3)))
    nothing = np.zeros((3, 3))
    missed = missed_by(nothing, far)
    np.testing.assert_allclose(missed, (far.values**2).sum(axis=0))
    # Large residuals show what is missed, and then it counts as it is.
    hidden = hidden_by(far, nothing[0], missed, 10 * missed)
    np.testing.assert_allclose(hidden, BEYOND**2 * missed)
    # A fit that misses everything there is ten times as bad as the largest share that counts as is.
    hidden = hidden_by(far, nothing[0], missed, 0.1 * missed)
    np.testing.assert_allclose(hidden, BEYOND**2 * missed / MISSED ** (2 * STEEPNESS))
    right = hidden_by(far, nothing[0], 0.9 * MISSED**2 * missed, 1e-30 * missed)
    np.testing.assert_allclose(right, 0.9 * BEYOND**2 * MISSED**2 * missed)


def test_a_fit_to_some_of_the_draws_counts_each_as_often_as_it_stands_for():
    squares = np.random.default_rng(0).chisquare(3, size=4000)
    rows, roots = Sample(near=6.0, every=4).of(squares)
    assert set(np.flatnonzero(squares > 6)) <= set(rows) and len(rows) < 2000
    assert (roots**2).sum() == pytest.approx(4000, abs=4)
    assert roots**2 @ squares[rows] == pytest.approx(squares.sum(), rel=0.05)
    assert Sample().of(squares)[0] == slice(None)


def test_fitted_values_are_those_of_the_orthonormal_features(rng):
    """Where a kernel is not used, its sections are not looked at."""
    x, s = rng.normal(size=(2, 300, 3))
    design = Design(3, 2, sections=sections_at(Kernel(length_scale=2.0), x[::6], s[::6]))
    coefficients = rng.normal(size=(design.size, 4))
    expected = design.rows(x, s)[1:].T @ coefficients[1:]
    np.testing.assert_allclose(fitted_with(design, coefficients).at(x, s), expected, atol=1e-8)
    coefficients[4:] = 0.0
    scores = fitted_with(design, coefficients)
    assert scores.sections is None and scores.polynomials.order == 1
    np.testing.assert_allclose(scores.at(x, s), s @ coefficients[1:4], atol=1e-12)


def test_squares_of_whitened_coordinates_have_no_bias(rng):
    """With a Cholesky factor of the same draws the first has a mean of -18 / 300, 5 errors."""
    means = []
    for _ in range(40):
        x = rng.normal(size=(300, 20))
        first = fit_whitening(x[::3])
        white = first.draws(x)
        whitening = refined(first, white.mean(axis=0), np.cov(white.T), 20)
        np.testing.assert_allclose(np.cov(whitening.draws(x).T), np.eye(20), atol=1e-10)
        means.append(1 + (whitening.draws(x) * whitening.scores(-x)).mean(axis=0))
    means = np.array(means)
    error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
    assert (np.abs(means.mean(axis=0)) < 3.5 * error).all()


def test_what_a_kernel_misses_at_the_outermost_draws_stands_for_the_region_beyond(rng):
    draws = bent_draws(rng, draws=2000)
    x, s = draws.x.reshape(-1, 3), draws.s.reshape(-1, 3)
    whitening = fit_whitening(x)
    rows = slice(None, None, 50)
    sections = sections_at(Kernel(length_scale=3.0), *(w[rows] for w in whitened(whitening, x, s)))
    design = Design(3, 2, sections=sections)
    parts, _ = sums(draws, design, 2, 500, 4, 200)
    found = solve({fold: part.gram for fold, part in parts.items()}, parts, design)
    whole = merge_sums(list(parts.values()))
    far = farthest([whole.outermost], number_of(whole.count))
    kernels = np.flatnonzero(found.chosen == 2)
    assert len(kernels)
    for k in kernels:
        fit = fits_without(whole.gram, whole.cross, far, design, found.ridge[k], whole.count)[2]
        expected = BEYOND * np.sqrt(missed_by(fit, far)[k]) / whole.count
        assert found.beyond[k] == pytest.approx(expected, rel=1e-6)
    assert not found.beyond[found.chosen != 2].any()


def test_answers_do_not_depend_on_the_number_of_threads(rng, monkeypatch):
    """Small ridges enlarge the last digits, which depend on threads, by a factor of a million."""
    x, s = bent(rng.normal(size=(4, 4000, 4)))
    draws = Draws(x, s, x)
    pilot = Draws(*(array[:, ::4] for array in (x, s, x)))
    found = []
    for threads in (1, 2):
        # Nothing else that runs now may take a thread away.
        monkeypatch.setattr("az_cv.threads._free_lately", lambda _, k=threads: k)
        monkeypatch.setattr("az_cv.engine.streaming.plan.processors", lambda k=threads: k)
        with threadpool_limits(limits=threads):
            found.append(stream(draws, pilot, Settings(), memory=2**27))
    assert found[0].plan.features > 600
    np.testing.assert_array_equal(found[0].values["mean"], found[1].values["mean"])
    np.testing.assert_array_equal(found[0].adjusted, found[1].adjusted)


def test_unequal_batches_bring_no_scatter_of_their_own():
    """Three batches share 190 draws: a constant stays one, and the mean is that of the draws."""
    edges = batch_edges(190, 63)
    lengths = np.diff(edges)
    assert len(set(lengths.tolist())) == 2
    draws = np.arange(190.0)
    averages = np.add.reduceat(draws, edges[:-1]) / lengths
    values = np.column_stack([np.full(3, 7.0), averages])
    bounds = np.zeros(1), np.zeros(1)
    parts = {
        0: Residuals([(0, 0), (1, 0)], [values] * 2, [values] * 2, [lengths] * 2, *bounds),
    }
    found = in_order(parts, 2)
    for series in (found.plain, found.adjusted):
        assert series.shape == (2, 3, 2)
        np.testing.assert_allclose(series[..., 0], 7.0, rtol=1e-14)
        np.testing.assert_allclose(series[..., 1].mean(axis=1), draws.mean(), rtol=1e-14)
    np.testing.assert_array_equal(found.starts, edges[:-1])


def test_the_region_beyond_the_draws_is_in_the_error(rng):
    plain = rng.normal(size=(4, 200, 2))
    residuals = 1e-4 * rng.normal(size=plain.shape)
    series = Series(plain, residuals, np.arange(200), np.full(1, -9.0), np.full(1, 9.0))
    functions = Functions(slice(0, 1), np.zeros(1), np.full(1, 5.0), np.ones(1))
    tail = np.full(2, 1e-3)
    values, _, _ = judge(series, functions, ["a kernel"], tail, 3, ERROR_MODEL)
    assert values["mcse_mean"][0] == pytest.approx(5e-3, rel=1e-2)


def test_errors_are_right_where_a_tail_that_bends_others_is_short_by_chance():
    """A Student variable bends others: in this seed none of 20,000 draws reaches far."""
    rng = np.random.default_rng([7, 7])
    z = rng.normal(size=(4, 5000, 4))
    z[..., 0] = t = rng.standard_t(10, size=(4, 5000))
    x, s = z.copy(), -z
    x[..., 1:] += 0.3 * (t[..., None] ** 2 - 1.25)
    s[..., 0] = -11 * t / (10 + t**2) + 0.6 * t * z[..., 1:].sum(axis=-1)
    draws = Draws(x, s, x)
    pilot = Draws(*(array[:, ::4] for array in (x, s, x)))
    found = stream(draws, pilot, Settings(), memory=2**24).values
    # A fit with a kernel claims a gain of 13,000, and is off by 25 of its errors.
    assert (np.abs(found["mean"]) < 4 * found["mcse_mean"]).all()
    assert (found["vrf_mean"] > 2).all()


def test_errors_are_right_for_chains_that_remember(rng):
    """Autocorrelated draws of a Gaussian: the mean of exp(x / 2) is known."""
    z = []
    for _ in range(12):
        noise = rng.normal(size=(4, 1500, 2)) * np.sqrt(1 - 0.8**2)
        x = np.empty_like(noise)
        x[:, 0] = rng.normal(size=(4, 2))
        for t in range(1, 1500):
            x[:, t] = 0.8 * x[:, t - 1] + noise[:, t]
        draws = Draws(x, -x, np.exp(0.5 * x))
        found = stream(draws, draws, Settings(family="polynomial"), memory=2**22)
        assert (found.values["vrf_mean"] > 5).all()
        z.append((found.values["mean"] - np.exp(1 / 8)) / found.values["mcse_mean"])
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.5


def test_means_and_sds_of_a_gaussian_are_exact(rng):
    x = rng.normal(size=(2, 400, 3))
    draws = Draws(3 * x + 7, -x / 3, 3 * x + 7)
    found = stream(draws, draws, Settings(family="polynomial"), memory=2**24)
    np.testing.assert_allclose(found.values["mean"], 7, atol=1e-10)
    np.testing.assert_allclose(found.values["sd"], 3, atol=1e-8)


def test_what_cannot_be_fitted_is_left_to_the_plain_average(rng):
    x = rng.normal(size=(2, 500, 2))
    outputs = np.stack(
        [rng.normal(size=(2, 500)), np.full((2, 500), 5.0), np.where(x[..., 0] > 3, np.nan, 1.0)],
        axis=2,
    )
    outputs[0, 3, 2] = np.nan
    found = stream(
        Draws(x, -x, outputs), Draws(x, -x, outputs), Settings(family="polynomial"), memory=2**24
    )
    assert found.values["vrf_mean"][0] < 1.1
    assert found.values["mean"][0] == pytest.approx(outputs[..., 0].mean(), abs=0.02)
    assert found.values["mean"][1] == 5 and found.values["sd"][1] == 0
    assert np.isnan(found.values["mean"][2]) and not found.finite[2]


def test_gradients_of_other_draws_are_refused(rng):
    draws = bent_draws(rng, draws=1000)
    flipped = Draws(draws.x, -draws.s, draws.outputs)
    with pytest.raises(ValueError, match="do not belong to these draws"):
        stream(flipped, flipped, Settings(), memory=2**24)
    wrong = draws.s.copy()
    wrong[1, 5, 2] = np.nan
    with pytest.raises(
        ValueError, match="gradient has non-finite values, first at chain 1, draw 5"
    ):
        stream(Draws(draws.x, wrong, draws.outputs), draws, Settings(), memory=2**24)


def test_blocks_of_outputs_give_the_answers_of_all_at_once(rng, monkeypatch):
    draws = bent_draws(rng, d=4)
    settings = Settings(family="polynomial")
    whole = stream(draws, draws, settings, memory=2**26)
    monkeypatch.setattr("az_cv.engine.streaming.plan.columns_of", lambda *args: 1)
    single = stream(draws, draws, settings, memory=2**26)
    assert (whole.plan.columns, single.plan.columns) == (4, 1)
    for name, values in whole.values.items():
        np.testing.assert_allclose(single.values[name], values, rtol=1e-9)


def test_features_grow_with_draws_until_memory_or_time_says_no():
    def features(draws, memory=8 * 10**9, max_time=None):
        size = Size(4, draws, 10, 10, 10_000, memory)
        return make_plan(size, Settings(), max_time)

    counts = [features(draws).features for draws in (1000, 16_000, 64_000)]
    assert counts == sorted(set(counts))
    assert "draws" in features(1000).reason
    assert "memory" in features(64_000, memory=10**8).reason
    assert "time" in features(250_000, max_time=0.01).reason
    for memory in (10**7, 10**8, 10**9):
        plan = features(64_000, memory)
        assert 8 * (plan.features + 1) ** 2 * (plan.folds + 3) <= memory


def test_polynomials_of_fourth_order_join_where_they_leave_room_for_a_kernel():
    def plan(draws):
        return make_plan(Size(4, draws, 10, 10, 0, 8 * 10**9), Settings())

    few, many = plan(4_000), plan(16_000)
    assert (few.order, many.order) == (2, 4)
    assert min(few.sections, many.sections) >= 500


def test_many_dimensions_have_scores_alone_or_sections():
    plan = make_plan(Size(4, 10_000, 5_000, 5, 0, 2 * 10**10), Settings())
    assert (plan.order, plan.sections) == (1, 0)
    plan = make_plan(Size(4, 250, 5_000, 5, 0, 2 * 10**10), Settings())
    assert plan.order == 0 and plan.sections == plan.features <= 1000 / 16


def test_a_low_rank_covariance_is_found_in_many_dimensions(rng):
    direction = rng.normal(size=800)
    x = rng.normal(size=(300, 800)) + 2 * rng.normal(size=(300, 1)) * direction
    found = low_rank_whitening(x)
    white = found.draws(x)
    assert np.var(white @ direction) / (direction @ direction) < 3
    # Draws and scores are moved by maps that are inverse to each other.
    s = rng.normal(size=(300, 800))
    np.testing.assert_allclose(
        np.einsum("nd,nd->n", white, found.scores(s)),
        np.einsum("nd,nd->n", x - found.mean, s),
        atol=1e-8,
    )


def test_other_families_and_folds_are_refused():
    size = Size(4, 10_000, 5, 5, 0, 10**9)
    with pytest.raises(TypeError, match="polynomials and kernels"):
        make_plan(size, Settings(family=NeuralNetwork()))
    with pytest.raises(ValueError, match="number of blocks"):
        make_plan(size, Settings(folds=0.5))
    assert make_plan(size, Settings(folds=7)).folds == 7
    assert make_plan(size, Settings(family=Kernel(centres=50))).features == 50


def test_memory_is_read_as_people_write_it():
    assert memory_bytes("0.5 GB") == 500_000_000
    assert memory_bytes(None) == pytest.approx(available_memory(), rel=0.5)
    with pytest.raises(ValueError, match="at least"):
        memory_bytes(10)
