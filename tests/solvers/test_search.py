"""How many draws the search for hyper-parameters sees."""

from dataclasses import replace

import numpy as np
import pytest

from az_cv import Exact, Kernel, Polynomial
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.families.description import describe
from az_cv.solvers.base import Task
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.folds import Folds, make_folds
from az_cv.solvers.kept import Kept
from az_cv.solvers.linear import family_systems, judging, parts, search
from az_cv.solvers.linear.family_systems import FamilySystems
from az_cv.solvers.linear.inverse import kernel_matrix
from az_cv.solvers.linear.search import Setting


@pytest.mark.parametrize(
    ("d", "n", "sizes", "first_round"),
    [
        # 1890 features on 1500 draws, in the dual: two small rounds, 5 scales x 7 ridges first.
        (60, 1500, {400, 1250, 1500}, 35),
        # 702 features on 2000 draws, in the primal: one round on twice 702, 5 scales.
        (36, 2000, {1404, 2000}, 5),
    ],
)
def test_only_the_chosen_system_has_full_size(d, n, sizes, first_round, rng, monkeypatch):
    x = rng.normal(size=(n, d))
    made = []
    for module, name in (
        (judging, "factorise_dual"),
        (judging, "scan_ridges"),
        (parts, "factorise_dual"),
        (parts, "factorise_primal"),
    ):
        factorise = getattr(module, name)

        def counted(ingredients, *args, factorise=factorise, **kwargs):
            made.append(len(ingredients))
            return factorise(ingredients, *args, **kwargs)

        monkeypatch.setattr(module, name, counted)
    outputs = np.tanh(x[:, :1])
    outputs = (outputs - outputs.mean()) / outputs.std()
    folds = Folds(tuple(np.arange(k, n, 4) for k in range(4)), 0, False, "every fourth")
    task = Task(x, -x, (1, n), folds, guide=outputs)
    ((_, fit),) = Exact().prepare(Polynomial(2), task).systems.fit(outputs)
    assert set(made) == sizes
    assert made.count(min(sizes)) == first_round
    assert made.count(n) == 1
    assert (fit.residual**2).mean() < 0.7


def test_hyper_parameters_are_chosen_for_the_functions_on_request(rng):
    """A ripple that the coordinates know nothing of wants another kernel than they do."""
    x = rng.normal(size=(4, 150, 3))
    ripple = np.sin(4 * x.sum(axis=2, keepdims=True))

    def estimate(tune_for, *outputs):
        engine = Engine(x, -x, Settings(family=Kernel(), solver=Exact(tune_for=tune_for)))
        return [engine.estimate(f) for f in outputs]

    (asked,) = estimate("functions", ripple)
    (usual,) = estimate("posterior", ripple)
    assert not np.array_equal(asked.adjusted, usual.adjusted)
    # The same as naming the function when the engine is made, and free of earlier questions.
    settings = Settings(family=Kernel())
    by_guide = Engine(x, -x, settings, guide=ripple).estimate(ripple)
    np.testing.assert_array_equal(asked.adjusted, by_guide.adjusted)
    _, again = estimate("functions", x, ripple)
    np.testing.assert_array_equal(asked.adjusted, again.adjusted)
    with pytest.raises(ValueError, match=r"tune_for 'all' is unknown. Choose from \['posterior'"):
        Exact(tune_for="all")


def test_functions_of_the_guide_are_known_whatever_their_last_digit(rng):
    """Whether settings are sought for an output must not depend on how it was rounded."""
    x = rng.normal(size=(200, 2))
    guide = np.column_stack([x, x**2])
    outputs = np.column_stack([np.nextafter(guide, np.inf), -3 * guide[:, :1], np.sin(x[:, :1])])
    np.testing.assert_array_equal(search.are_new(outputs, guide), [False] * 5 + [True])
    assert search.are_new(outputs, guide[:, :0]).all()


def test_indicators_are_left_to_one_kernel(rng, monkeypatch):
    """For them one kernel of the default is nearly as good as several, and many are asked for."""
    x = rng.gamma(3.0, size=(4, 150, 6))
    u, s = np.log(x), 3.0 - x
    roots = np.sqrt(x)
    engine = Engine(u, s, guide=roots)
    fitted = []
    fit = family_systems.FamilySystems.fit

    def count(self, outputs, *, steps=False):
        fitted.append((describe(self.family), steps))
        return fit(self, outputs, steps=steps)

    monkeypatch.setattr(family_systems.FamilySystems, "fit", count)
    engine.estimate(roots)
    kernels = [label for label, _ in fitted if "kernel" in label]
    assert len(kernels) > 1
    fitted.clear()
    indicators = engine.estimate((x < 2.0).astype(float), steps=True)
    assert [steps for _, steps in fitted] == [True] * len(fitted)
    (kept,) = [label for label, _ in fitted if "kernel" in label]
    assert kept in kernels
    assert (indicators.mcse < indicators.plain_mcse).mean() > 0.5


def test_settings_that_differ_in_their_ridge_share_a_matrix(rng, monkeypatch):
    x = rng.gamma(3.0, size=(200, 2))
    task = Task(x, 2 / x - 1, (4, 50), make_folds("auto", x.reshape(4, 50, 2), ERROR_MODEL))
    made = []

    def counted(*arguments):
        made.append(len(arguments[1]))
        return kernel_matrix(*arguments)

    monkeypatch.setattr(family_systems, "kernel_matrix", counted)
    kernel = Kernel(length_scale=1.5)
    outputs = np.sin(x)
    together = FamilySystems(Exact(), kernel, task)
    first, second = (Setting(together._variants[0], ridge) for ridge in (1e-6, 1e-3))
    together.__dict__["_chosen"] = [first, second], np.zeros(4)
    shared = [fit for one in (first, second) for fit in together._solve(one, outputs, 1)]
    assert made == [200]
    for ridge, fit in zip((1e-6, 1e-3), shared, strict=True):
        alone = FamilySystems(Exact(ridge=ridge), kernel, replace(task, kept=Kept()))
        ((_, expected),) = alone.fit(outputs)
        np.testing.assert_array_equal(fit.residual, expected.residual)


def test_ridges_that_were_left_out_count_as_the_nearest_that_was_not():
    """The long kernel ends in a cliff, which the short one has beside it: one is as risky."""
    nothing = np.nan
    scores = np.array([[4.0, 2.0, 1.0, 3.0, nothing], [nothing, 9.0, 1.0, 2.0, 2.5]])[..., None]
    risks = search.stabilise(scores, whole=True, brief=True)[..., 0]
    assert risks.tolist() == [[9.0, 9.0, 3.0, 3.0, np.inf], [np.inf, 9.0, 9.0, 3.0, 3.0]]
    careless = search.stabilise(scores, whole=True)[..., 0]
    assert careless.tolist() == [[4.0, 9.0, 3.0, 3.0, np.inf], [np.inf, 9.0, 9.0, 3.0, 2.5]]


@pytest.mark.parametrize("skew", [1.0, 4.0, 30.0])
def test_ridges_that_are_left_out_are_not_missed(skew, rng):
    """The settings are those of a search that leaves none out, from fewer systems."""
    x = np.log(rng.gamma(skew, size=(240, 3)))
    task = Task(x, skew - np.exp(x), (4, 60), make_folds("auto", x.reshape(4, 60, 3), ERROR_MODEL))
    chosen, made = [], []
    for is_brief in (True, False):
        systems = FamilySystems(Exact(), Kernel(), replace(task, kept=Kept()))
        assert systems._is_brief
        systems._is_brief = is_brief
        chosen.append([(one.family, one.ridge) for one in systems.settings])
        made.append(systems.task.kept.nbytes)
    assert chosen[0] == chosen[1]
    assert made[0] < 0.8 * made[1]
