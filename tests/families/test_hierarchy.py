"""Hierarchical kernels: what they find in scores, and that their fields are what they claim."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import az_cv
from az_cv import Exact, HierarchicalKernel
from az_cv.engine.choices import default_stack
from az_cv.engine.engine import run_engine
from az_cv.families.description import describe
from az_cv.families.hierarchy import find_influence
from az_cv.families.hierarchy.chosen_fit import of_few_directions
from az_cv.families.hierarchy.conditional import ConditionalNormal
from az_cv.families.hierarchy.conditional_fit import fit_conditional
from az_cv.families.hierarchy.lifting import lift_draws
from az_cv.families.hierarchy.series import gaussian_series, number_of_terms

GROUPS = 8


def groups(rng, n):
    """Return draws and scores of effects around a mean with a common scale, by its logarithm."""
    v = 0.4 * rng.normal(size=n)
    mu = rng.normal(size=n)
    effects = mu[:, None] + np.exp(v)[:, None] * rng.normal(size=(n, GROUPS))
    deviation, precision = effects - mu[:, None], np.exp(-2 * v)[:, None]
    of_scale = -v / 0.16 - GROUPS + (precision * deviation**2).sum(axis=1)
    of_mean = -mu + (precision * deviation).sum(axis=1)
    x = np.column_stack([mu, v, effects])
    return x, np.column_stack([of_mean, of_scale, -precision * deviation])


def test_the_scale_of_a_group_is_found(rng):
    x, s = groups(rng, 2000)
    sd = x.std(axis=0)
    found = find_influence((x - x.mean(axis=0)) / sd, s * sd)
    np.testing.assert_array_equal(found.top, [1])
    assert found.total[1] > 10 * np.median(found.total)
    half = find_influence(((x - x.mean(axis=0)) / sd)[::2], (s * sd)[::2])
    np.testing.assert_array_equal(half.top, [1])


def test_a_coordinate_that_governs_several_is_found_where_everything_interacts(rng):
    x = rng.normal(size=(4000, 40))
    interaction = x**2 - 1 + 0.1 * x * (x.sum(axis=1, keepdims=True) - x)

    def found(strength):
        governed = interaction.copy()
        governed[:, 1:7] += strength * x[:, [0]] * x[:, 1:7]
        sd = x.std(axis=0)
        return find_influence((x - x.mean(axis=0)) / sd, (0.1 * governed - x) * sd).top

    np.testing.assert_array_equal(found(1.2), [0])
    assert not len(found(0.5))


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_nothing_is_found_in_a_gaussian(rng, correlation):
    covariance = (1 - correlation) * np.eye(10) + correlation
    x = rng.multivariate_normal(np.zeros(10), covariance, size=1000)
    assert not len(find_influence(x, -x @ np.linalg.inv(covariance)).top)


def test_two_scales_are_found_and_not_what_follows_them(rng):
    first, s_first = groups(rng, 3000)
    second, s_second = groups(rng, 3000)
    x, s = np.hstack([first, second]), np.hstack([s_first, s_second])
    sd = x.std(axis=0)
    found = find_influence((x - x.mean(axis=0)) / sd, s * sd)
    assert set(found.top) == {1, 1 + first.shape[1]}


def test_given_its_scale_a_normal_model_is_normal(rng):
    """The score of the scale is then that of its marginal distribution."""
    x, s = groups(rng, 2000)
    centre, sd = x.mean(axis=0), x.std(axis=0)
    z, t = (x - centre) / sd, s * sd
    rest = [0, *range(2, x.shape[1])]
    conditional = fit_conditional(z[:, [1]], z[:, rest], t[:, rest], np.empty((2000, 0)), sd[[1]])
    moved = conditional.move(z[:, [1]], t[:, [1]], z[:, rest], t[:, rest])
    np.testing.assert_allclose(moved.top_score[:, 0], -x[:, 1] / 0.16 * sd[1], atol=5e-3)
    np.testing.assert_allclose(moved.standard_score, -moved.standard, atol=1e-3)


@pytest.mark.parametrize("kind", ["dense", "few directions", "diagonal"])
def test_the_rest_keeps_its_standardised_values(rng, kind):
    """The score of a global coordinate is the derivative of the log density along the flow."""
    r, h, p = 3, 2, 5
    m = 2 if kind == "few directions" else r
    roots = rng.normal(size=(p, m, m))
    precisions = roots @ roots.transpose(0, 2, 1)
    if kind == "diagonal":
        precisions = np.einsum("pii->pi", precisions)
    basis = rng.normal(size=(r, r)) if m < r else np.eye(r)
    conditional = ConditionalNormal(
        steps=np.array([0.2, 0.3]),
        precisions=precisions,
        shifts=rng.normal(size=(p, r)),
        slopes=rng.normal(size=(h, r)),
        gradients=np.zeros((p, r, 0)),
        basis=basis,
    )

    def log_density(top, rest):
        return -0.5 * (top**2).sum() - (jnp.cosh(rest - top.sum())).sum()

    def weights(top):
        pairs = jnp.stack(
            [jnp.exp(-2 * conditional.steps * top), jnp.exp(2 * conditional.steps * top)]
        )
        return jnp.concatenate([jnp.ones(1), pairs.T.ravel()])

    def rest_of(top, standard):
        w = weights(top)
        changing = jnp.tensordot(w, precisions, 1)
        changing = (jnp.diag(changing) if kind == "diagonal" else changing) + 1e-8 * jnp.eye(m)
        precision = jnp.eye(r).at[:m, :m].set(changing)
        factor = jnp.linalg.cholesky(precision)
        mean = jnp.linalg.solve(precision, w @ conditional.shifts + top @ conditional.slopes)
        return basis @ (mean + jnp.linalg.solve(factor.T, standard)), factor

    def along(top, standard):
        rest, factor = rest_of(top, standard)
        return log_density(top, rest) - jnp.log(jnp.diag(factor)).sum()

    with jax.enable_x64(True):
        top, rest = rng.normal(size=(1, h)), rng.normal(size=(1, r))
        score, rest_score = jax.grad(log_density, argnums=(0, 1))(top[0], rest[0])
        moved = conditional.move(top, np.asarray(score)[None], rest, np.asarray(rest_score)[None])
        again, _ = rest_of(top[0], moved.standard[0])
        expected = jax.grad(along)(top[0], moved.standard[0])
    np.testing.assert_allclose(again, rest[0], rtol=1e-10)
    np.testing.assert_allclose(moved.top_score[0], expected, rtol=1e-8)


def test_one_precision_for_all_draws_is_as_one_for_each(rng):
    root, r, h = rng.normal(size=(3, 3)), 3, 2
    conditional = ConditionalNormal(
        steps=np.zeros(h),
        precisions=(root @ root.T)[None],
        shifts=rng.normal(size=(1, r)),
        slopes=rng.normal(size=(h, r)),
        gradients=rng.normal(size=(1, r, 2)),
    )
    # The same with one for each draw, of which nothing changes from draw to draw.
    unchanged = {
        name: np.concatenate([part := getattr(conditional, name), np.repeat(0 * part, 2 * h, 0)])
        for name in ("precisions", "shifts", "gradients")
    }
    each = replace(conditional, steps=np.full(h, 0.3), **unchanged)
    draws = [rng.normal(size=(20, k)) for k in (h, h, r, r)]
    for found, expected in zip(
        vars(conditional.move(*draws)).values(), vars(each.move(*draws)).values()
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    # And with none that changes: the standardised rest is then turned.
    still, found = (
        of_few_directions(conditional, np.ones((20, 1)), 0).move(*draws),
        each.move(*draws),
    )
    for name in ("top_score", "preconditioned", "variance", "along", "along_score"):
        np.testing.assert_allclose(getattr(still, name), getattr(found, name), rtol=1e-6, atol=1e-9)


def test_draws_far_out_in_a_heavy_tail_are_finite(rng):
    x, s = groups(rng, 400)
    x[:2, 1] = [-60.0, 40.0]
    kernel, lifted_x, lifted_s, _ = HierarchicalKernel(top=[1]).lift(x, s, np.empty((400, 0)))[0]
    (variant, *_) = kernel.variants(lifted_x, lifted_s)
    assert np.isfinite(variant.matrix(lifted_x, lifted_s)).all()


@pytest.fixture(scope="module")
def lifted():
    x, s = groups(np.random.default_rng(5), 3000)
    asked = np.column_stack([x[:, 2:].mean(axis=1), x[:, 2] - x[:, 3]])
    standard = (asked - asked.mean(axis=0)) / asked.std(axis=0)
    kernel, lifted_x, lifted_s, _ = HierarchicalKernel().lift(x, s, standard)[0]
    return kernel, lifted_x, lifted_s


def test_the_matrix_is_that_of_all_pairs(lifted):
    kernel, x, s = lifted
    for variant in kernel.variants(x, s):
        few = slice(0, 3000, 12)
        pairs = variant.gram(x[few], s[few], x[few], s[few])
        np.testing.assert_allclose(pairs, pairs.T, atol=1e-10)
        np.testing.assert_allclose(np.tril(variant.matrix(x[few], s[few])), np.tril(pairs))
        values = np.linalg.eigvalsh(pairs)
        assert values[0] > -1e-10 * values[-1]


def test_kernel_sections_have_mean_zero(lifted):
    kernel, x, s = lifted
    for variant in kernel.variants(x, s):
        sections = variant.gram(x, s, x[:100], s[:100])
        z = sections.mean(axis=0) / (sections.std(axis=0) / np.sqrt(len(x)))
        assert np.sqrt((z**2).mean()) < 1.6


def test_what_is_asked_gives_directions(lifted):
    kernel, _, _ = lifted
    assert kernel.layout.names == (1,)
    assert kernel.layout.own == 2 * kernel.layout.rest + 2


def test_a_quantity_and_its_logarithm_give_one_direction(rng):
    x, s = groups(rng, 2000)
    total = 0.1 * x[:, 2:].sum(axis=1)
    asked = np.column_stack([total, np.exp(total), x[:, 2] - x[:, 3]])
    standard = (asked - asked.mean(axis=0)) / asked.std(axis=0)
    layout, *_ = lift_draws(x, s, standard, np.array([1]), np.arange(2000))
    assert layout.own == 2 * layout.rest + 2


def test_it_gains_where_a_kernel_of_distances_gains_little(rng):
    x, s = groups(rng, 800)
    x, s = x.reshape(4, 200, -1), s.reshape(4, 200, -1)
    outputs = np.concatenate([np.exp(x[..., [1]]), x[..., [0, 2]], x[..., [0, 2]] ** 2], axis=2)
    truth = np.array([np.exp(0.08), 0.0, 0.0, 1.0, 1 + np.exp(0.32)])
    found = run_engine(x, s, outputs, family=HierarchicalKernel()).estimate
    radial = run_engine(x, s, outputs, family="kernel").estimate
    assert np.median(radial.mcse**2 / found.mcse**2) > 10
    assert (found.plain_mcse**2 / found.mcse**2 > 20).all()
    assert (np.abs(found.mean - truth) < 4 * found.mcse).all()


def test_auto_takes_it_where_something_governs():
    def has_it(d, top):
        return "hierarchical kernel" in [describe(m) for m in default_stack(4000, d, top=top)]

    assert has_it(10, (3,))
    assert not has_it(10, ())
    assert not has_it(60, ())
    assert has_it(60, (3,))


def test_in_many_dimensions_structure_stands_for_networks(rng):
    v = 0.3 * rng.normal(size=800)
    effects = np.exp(v)[:, None] * rng.normal(size=(800, 45))
    precision = np.exp(-2 * v)[:, None]
    of_scale = -v / 0.09 - 45 + (precision * effects**2).sum(axis=1)
    x = np.column_stack([v, effects]).reshape(4, 200, -1)
    s = np.column_stack([of_scale, -precision * effects]).reshape(4, 200, -1)
    found = run_engine(x, s, x[..., :3])
    assert [describe(member) for member in found.members] == [
        "polynomial order 1",
        "hierarchical kernel",
    ]
    assert (found.estimate.plain_mcse / found.estimate.mcse > 10).all()


def test_networks_are_not_trained_where_others_are_precise(rng):
    x = rng.normal(size=(4, 100, 45))
    found = run_engine(x, -x - 4e-3 * x**3, x[..., :3])
    assert any("network" in describe(member) for member in found.members)
    assert not found.history
    assert (found.estimate.plain_mcse / found.estimate.mcse > 10).all()


def test_a_table_names_what_governs():
    data = az_cv.load_eight_schools().isel(draw=slice(250))
    table = az_cv.summary(data, var_names=["mu", "tau"])
    assert table.attrs["global"] == "tau_log__"
    assert "Global parameters: tau_log__." in " ".join(str(table).split())


def test_top_takes_names():
    data = az_cv.load_eight_schools().isel(draw=slice(200))
    with threadpool_limits(1):  # a factorisation by two threads rounds differently
        named = az_cv.fit(data, var_names=["mu"], family=HierarchicalKernel(top=["tau_log__"]))
        found = az_cv.fit(data, var_names=["mu"], family=HierarchicalKernel())
    np.testing.assert_array_equal(named.estimates["mu"], found.estimates["mu"])
    with pytest.raises(ValueError, match=r"'omega'.*not among the unconstrained parameters"):
        az_cv.fit(data, family=HierarchicalKernel(top=["omega"]))


def test_nonsense_is_refused(rng):
    with pytest.raises(ValueError, match=r"write top=\['tau'\]"):
        HierarchicalKernel(top="tau")
    with pytest.raises(ValueError, match="length_scale must be positive"):
        HierarchicalKernel(length_scale=0.0)
    x = rng.normal(size=(2, 50, 3))
    with pytest.raises(ValueError, match="some, not all, of the 3 coordinates"):
        run_engine(x, -x, x, family=HierarchicalKernel(top=[7]))
    with pytest.raises(ValueError, match="some, not all, of the 3 coordinates"):
        run_engine(x, -x, x, family=HierarchicalKernel(top=[0, 1, 2]))


def test_one_pair_of_lengths_may_be_given(lifted):
    kernel, x, s = lifted
    fixed = HierarchicalKernel(length_scale=3.0, top_length_scale=5.0, layout=kernel.layout)
    assert [(k.length_scale, k.top_length_scale) for k in fixed.variants(x, s)] == [(3.0, 5.0)]


def test_constant_coordinates_are_left_out(rng):
    x, s = groups(rng, 400)
    x = np.column_stack([np.full(400, 2.0), x])
    s = np.column_stack([np.zeros(400), s])
    kernel = HierarchicalKernel().lift(x, s, np.empty((400, 0)))[0].family
    assert kernel.layout.names == (2,)
    assert kernel.layout.rest == GROUPS + 1


def test_coordinates_that_repeat_each_other_are_no_obstacle(rng):
    x, s = groups(rng, 600)
    x, s = np.column_stack([x, x[:, 1]]), np.column_stack([s, 0 * s[:, 1]])
    views = HierarchicalKernel(top=[1, 10]).lift(x, s, np.empty((600, 0)))
    kernel, lifted_x, lifted_s, _ = views[0]
    assert kernel.layout.top == 2
    assert np.isfinite(lifted_x).all()
    assert np.isfinite(lifted_s).all()


def test_draws_are_judged_by_what_other_draws_taught(rng):
    """Directions learned from the draws that they are judged by would bias the answer."""
    x, s = groups(rng, 400)
    asked = rng.normal(size=(400, 2)) + x[:, 2:4]
    views = HierarchicalKernel().lift(x, s, asked)
    np.testing.assert_array_equal(np.sort(np.concatenate([v.judged for v in views])), range(400))
    for k, view in enumerate(views):
        changed = x.copy(), s.copy(), asked.copy()
        for array in changed:
            array[view.judged[:50]] *= 1.5
        again = HierarchicalKernel(top=view.family.layout.names).lift(*changed)[k]
        same = np.setdiff1d(np.arange(400), view.judged[:50])
        np.testing.assert_array_equal(again.x[same], view.x[same])
        np.testing.assert_array_equal(again.s[same], view.s[same])
    assert len(HierarchicalKernel().lift(*(np.tile(a, (4, 1)) for a in (x, s, asked)))) == 1


def test_answers_do_not_depend_on_the_number_of_threads(rng, monkeypatch):
    """Two views are lifted and solved side by side, each on one thread."""
    x, s = (a.reshape(4, 200, -1) for a in groups(rng, 800))
    found = []
    for threads in (1, 2):
        # Nothing else that runs now may take a thread away.
        monkeypatch.setattr("az_cv.threads._free_lately", lambda _, k=threads: k)
        with threadpool_limits(limits=threads):
            found.append(run_engine(x, s, x, family=HierarchicalKernel()).estimate)
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].mcse, found[1].mcse)


def test_many_coordinates_have_diagonal_precisions(rng):
    """Memory and time grow linearly with the number of coordinates."""
    n, d = 900, 400
    v = 0.3 * rng.normal(size=n)
    effects = np.exp(v)[:, None] * rng.normal(size=(n, d))
    precision = np.exp(-2 * v)[:, None]
    x = np.column_stack([v, effects])
    s = np.column_stack(
        [-v / 0.09 - d + (precision * effects**2).sum(axis=1), -precision * effects]
    )
    x, s = x.reshape(2, 450, -1), s.reshape(2, 450, -1)
    outputs = np.concatenate([x[..., :1] ** 2, x[..., 1:3]], axis=2)
    kernel = HierarchicalKernel(length_scale=8.0, top_length_scale=6.0)
    found = run_engine(x, s, outputs, family=kernel, solver=Exact(ridge=1e-8)).estimate
    assert np.median(found.plain_mcse / found.mcse) > 3


@pytest.mark.parametrize("length", [2.0, 4.0, 8.0, 16.0])
def test_the_series_is_the_gaussian_kernel(length):
    """With an error of 3e-3 instead, eight schools gained a tenth and less.

    Their gains were 4,900 for mu and 190 for Choate, and are 85,000 and 19,000.
    """
    x = np.linspace(-4, 4, 17)
    values, slopes = gaussian_series(x[:, None], length, number_of_terms(length))
    difference = (x[:, None] - x) / length
    exact = np.exp(-0.5 * difference**2)
    np.testing.assert_allclose(values[:, 0] @ values[:, 0].T, exact, atol=1e-3)
    slope = -difference / length * exact
    np.testing.assert_allclose(slopes[:, 0] @ values[:, 0].T, slope, atol=2e-3)
