"""Training on draws beyond memory: minibatches from pieces, judged on draws it has not seen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from az_cv import SGD, Ensemble, Kernel, NeuralNetwork, Polynomial
from az_cv.engine.settings import Settings
from az_cv.engine.streaming.buffer import Buffered
from az_cv.engine.streaming.estimates import in_order
from az_cv.engine.streaming.gram import Functions
from az_cv.engine.streaming.pieces import Draws, cut, middle, pieces_of, stretches
from az_cv.engine.streaming.plan import Size, make_plan
from az_cv.engine.streaming.plan_training import plan_training, training_of
from az_cv.engine.streaming.stream import stream
from az_cv.engine.streaming.training import Lesson
from az_cv.engine.whitening import fit_whitening
from az_cv.families import HierarchicalKernel
from az_cv.solvers.base import Task
from az_cv.solvers.folds import make_folds
from az_cv.solvers.training.cross_fit import Trainee
from az_cv.solvers.training.rows import split

pytest.importorskip("dask")

SMALL = NeuralNetwork(widths=(32,))
BRIEF = {"num_epochs": 4, "batch_size": 64}
MEMORY = 2**26


@pytest.fixture
def small_buffer(monkeypatch):
    """Let a buffer hold a tenth of the draws here, and a fifth in single precision."""
    monkeypatch.setattr("az_cv.engine.streaming.plan_training.BUFFERED", 1 / 1000)


def bent(z):
    """Return draws and scores of a target that no polynomial fits, from normal numbers."""
    x = z.copy()
    x[..., 1:] += 0.3 * (z[..., :1] ** 2 - 1)
    s = -z
    s[..., 0] += 0.6 * z[..., 0] * z[..., 1:].sum(axis=-1)
    return x, s


def bent_draws(rng, draws=2000, chains=4, d=3):
    x, s = bent(rng.normal(size=(chains, draws, d)))
    return Draws(x, s, np.concatenate([x[..., :2], np.exp(0.3 * x[..., 1:2])], axis=2))


def estimate(draws, settings, **options):
    found = stream(draws, draws, settings, memory=MEMORY, **options)
    assert found.plan.buffer < draws.sizes[0] * draws.sizes[1] / 2
    return found


@pytest.mark.parametrize(
    ("family", "solver", "tolerance"),
    [
        pytest.param(Polynomial(2), SGD(**BRIEF), 1e-10, id="polynomial"),
        pytest.param(
            Polynomial(2),
            SGD(objective="batch_means", **BRIEF),
            1e-10,
            id="runs",
            marks=pytest.mark.long,
        ),
        # Networks have single precision.
        pytest.param(SMALL, SGD(strength=1.0, **BRIEF), 1e-4, id="network", marks=pytest.mark.long),
    ],
)
def test_a_buffer_that_holds_all_draws_gives_the_training_in_memory(rng, family, solver, tolerance):
    draws = bent_draws(rng, draws=300, chains=2)
    settings = Settings(family, solver, folds=2, random_seed=5)
    d, q = draws.sizes[2:]
    plan = plan_training(Size(*draws.sizes, 0, 2**30), settings, solver, family)
    assert plan.in_buffer < 100 and plan.batch == 1
    whitening = fit_whitening(draws.x.reshape(-1, d))
    functions = Functions(slice(0, q), np.zeros(q), np.ones(q), np.ones(q))
    segments = cut(draws, plan.folds, 70, 6)
    lesson = Lesson(solver, family, draws, segments, plan, whitening, d, settings)
    parts, labels, beyond, history = lesson.residuals(functions, np.inf)
    x, s = whitening.draws(draws.x.reshape(-1, d)), whitening.scores(draws.s.reshape(-1, d))
    folds = make_folds(2, x.reshape(2, 300, d), settings.errors)
    task = Task(x, s, (2, 300), folds, random_seed=5)
    fitted = Trainee(solver, family, task).fit(functions.of(draws.outputs.reshape(-1, q)))
    (member,) = fitted.members
    assert labels == [member.label] * 2 * q and not beyond.any()
    found = in_order(parts, 2).adjusted
    np.testing.assert_allclose(found, member.adjusted, atol=tolerance)
    assert np.abs(found - functions.of(draws.outputs.reshape(-1, q)).reshape(2, 300, -1)).max() > 1
    assert [r.epoch for r in history] == [r.epoch for r in fitted.history]


def test_a_part_in_the_middle_is_what_training_in_memory_holds_out():
    parts = [stretch for fold, stretch in stretches(2, 100, 3) if fold != 1]
    rest, taken = middle(parts, 13)
    rows, held_out = split(200, np.r_[34:67, 134:167], 0, 0.1)

    def flat(some):
        return np.concatenate([100 * chain + np.arange(a, b) for chain, a, b in some])

    np.testing.assert_array_equal(flat(rest), rows)
    np.testing.assert_array_equal(flat(taken), held_out)


def buffered(draws, capacity, window=1):
    q = draws.sizes[3]
    pieces = pieces_of(draws, [(0, 0, 90), (1, 0, 100)], 20)
    functions = Functions(slice(0, q), np.zeros(q), np.ones(q), np.ones(q))

    class Unchanged:
        def draws(self, x):
            return x

        scores = draws

    return Buffered(pieces, [], Unchanged(), functions, capacity, np.float64, window)


def passes(source, key):
    """Return the draws of each filling of the buffer, over two passes."""
    import jax

    with jax.enable_x64(True):
        source.start(jax.random.key(key))
        found, taken = [], 0
        while taken < 380:
            buffer = source.at(taken)
            found.append(np.asarray(buffer.draws.x)[buffer.rows[: buffer.size], 0])
            assert len(buffer.draws.x) == source._size
            taken += buffer.size
    return found


def test_every_pass_takes_every_draw_once_in_another_order():
    numbers = np.arange(200.0).reshape(2, 100, 1)
    source = buffered(Draws(numbers, numbers, numbers), capacity=65)
    found = passes(source, 1)
    assert all(len(part) <= 65 for part in found)
    half = len(found) // 2
    first, second = (np.concatenate(part) for part in (found[:half], found[half:]))
    expected = np.r_[0:90, 100:200]
    np.testing.assert_array_equal(np.sort(first), expected)
    np.testing.assert_array_equal(np.sort(second), expected)
    assert (first != second).any()
    np.testing.assert_array_equal(first, np.concatenate(passes(source, 1)[:half]))
    assert (first != np.concatenate(passes(source, 2)[:half])).any()


def test_runs_stay_within_successive_draws():
    numbers = np.arange(200.0).reshape(2, 100, 1)
    source = buffered(Draws(numbers, numbers, numbers), capacity=65, window=8)
    for _ in range(2):
        buffer = source.at(10**6)
        runs = buffer.rows[: buffer.size, None] + np.arange(8)
        assert (np.diff(np.asarray(buffer.draws.x)[runs, 0], axis=1) == 1).all()


def seeded_means(draws, family, seed):
    settings = Settings(family, SGD(strength=1e-4, **BRIEF), random_seed=seed)
    return estimate(draws, settings).values["mean"]


@pytest.mark.usefixtures("small_buffer")
def test_the_same_seed_gives_the_same_answer_to_the_last_digit(rng):
    draws = bent_draws(rng)
    first, second = (seeded_means(draws, Polynomial(1), 0) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.long
@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize("family", [Polynomial(2), SMALL], ids=["polynomial", "network"])
def test_training_follows_from_the_seed(rng, family):
    draws = bent_draws(rng)
    first, second, other = (seeded_means(draws, family, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


@pytest.mark.usefixtures("small_buffer")
def test_polynomials_that_are_trained_reach_those_that_are_solved_for(rng):
    draws = bent_draws(rng)
    solved = estimate(draws, Settings(Polynomial(2), folds=2))
    solver = SGD(strength=1e-6, num_epochs=50, early_stopping=False)
    trained = estimate(draws, Settings(Polynomial(2), solver, random_seed=0))
    for name in ("mean", "sd"):
        error = solved.values[f"mcse_{name}"]
        assert (np.abs(trained.values[name] - solved.values[name]) < 0.1 * error).all()
        np.testing.assert_allclose(trained.values[f"mcse_{name}"], error, rtol=0.01)


@pytest.mark.usefixtures("small_buffer")
def test_a_network_learns_what_polynomials_cannot(rng):
    draws = bent_draws(rng)
    solved = estimate(draws, Settings(Polynomial(2)))
    trained = estimate(draws, Settings(SMALL, SGD(strength=1.0), random_seed=0))
    gain, before = trained.values["vrf_mean"][:2], solved.values["vrf_mean"][:2]
    assert (gain > 3 * before).all() and (gain > 30).all()
    z = trained.values["mean"][:2] / trained.values["mcse_mean"][:2]
    assert (np.abs(z) < 4).all()
    assert trained.shares["silu network 32"] > 2.5


@pytest.mark.usefixtures("small_buffer")
def test_outputs_that_are_not_finite_do_not_harm_the_others(rng):
    draws = bent_draws(rng)
    draws.outputs[2, 77, 1] = np.nan
    draws.outputs[..., 2] = 2.5
    found = estimate(draws, Settings(SMALL, SGD(strength=1.0, **BRIEF), random_seed=0))
    assert np.isnan(found.values["mean"][1]) and not found.finite[1]
    assert found.values["mean"][2] == 2.5 and found.values["sd"][2] == 0
    assert found.values["vrf_mean"][0] > 2


@pytest.mark.usefixtures("small_buffer")
def test_training_that_diverges_leaves_the_plain_average(rng):
    from az_cv.notices import collected_notices

    draws = bent_draws(rng)
    solver = SGD(learning_rate=1e6, max_restarts=0, **BRIEF)
    with pytest.warns(UserWarning, match="diverged"), collected_notices():
        found = estimate(draws, Settings(Polynomial(2), solver, random_seed=0))
    np.testing.assert_allclose(found.values["mean"], found.values["plain_mean"], rtol=1e-9)
    assert set(found.shares) == {"plain Monte Carlo"}


def test_memory_for_draws_does_not_grow_with_their_number():
    settings = Settings(family=SMALL)
    solver, family = training_of(settings)
    plans = [
        plan_training(Size(4, draws, 100, 100, 1000, 10**9), settings, solver, family)
        for draws in (10**5, 10**6, 10**7)
    ]
    assert len({(p.buffer, p.in_buffer, p.rows, p.columns) for p in plans}) == 1
    assert 2 * plans[0].buffer * 4 * (200 + 200) < 0.5 * 10**9
    assert "training" in plans[0].costs and plans[0].seconds < plans[1].seconds


@dataclass(frozen=True)
class Strange:
    """A solver of the user's own."""

    def accepts(self, family: Any) -> bool:
        return True

    def prepare(self, family: Any, task: Any) -> Any:
        raise AssertionError("holds all draws")


def test_what_cannot_be_trained_in_pieces_is_refused():
    with pytest.raises(TypeError, match=r"fitted by Exact\(\) and SGD\(\)"):
        training_of(Settings(solver=Strange()))
    with pytest.raises(TypeError, match="needs solver=Exact"):
        training_of(Settings(HierarchicalKernel(), SGD()))
    with pytest.raises(TypeError, match="semi_exact"):
        training_of(Settings(Ensemble([Polynomial(1), Kernel()], semi_exact=True), SGD()))
    with pytest.raises(TypeError, match="pass solver=SGD"):
        make_plan(Size(4, 500, 3, 3, 0, MEMORY), Settings(Ensemble([Polynomial(1), Kernel()])))


@pytest.mark.parametrize(
    ("family", "solver", "expected"),
    [
        ("auto", "auto", None),
        (Polynomial(2), "auto", None),
        (SMALL, "auto", SMALL),
        ("network", "auto", NeuralNetwork()),
        ("auto", "sgd", NeuralNetwork()),
        ("polynomial", "sgd", Polynomial(2)),
    ],
)
def test_networks_are_trained_and_what_else_is_asked_for(family, solver, expected):
    found = training_of(Settings(family, solver))
    assert (found and found[1]) == expected


@pytest.mark.usefixtures("small_buffer")
def test_training_keeps_to_its_time(rng):
    draws = bent_draws(rng)
    settings = Settings(SMALL, SGD(num_epochs=400, strength=1.0), random_seed=0)
    found = estimate(draws, settings, max_time=1.0)
    assert max(record.epoch for record in found.history) < 200


@pytest.mark.long
@pytest.mark.usefixtures("small_buffer")
@pytest.mark.parametrize(
    ("family", "gain"), [(Polynomial(2), 5), (SMALL, 10)], ids=["polynomial", "network"]
)
def test_errors_are_right_for_chains_that_remember(rng, family, gain):
    """Autocorrelated draws of a Gaussian: the mean of exp(x / 2) and its square are known."""
    z = []
    for seed in range(20):
        noise = rng.normal(size=(4, 1500, 2)) * np.sqrt(1 - 0.8**2)
        x = np.empty_like(noise)
        x[:, 0] = rng.normal(size=(4, 2))
        for t in range(1, 1500):
            x[:, t] = 0.8 * x[:, t - 1] + noise[:, t]
        draws = Draws(x, -x, np.exp(0.5 * x))
        found = estimate(draws, Settings(family, SGD(), random_seed=seed))
        assert (found.values["vrf_mean"] > gain / 2).all()
        z.append((found.values["mean"] - np.exp(1 / 8)) / found.values["mcse_mean"])
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.5
    assert np.mean(np.abs(z) < 1.96) > 0.85
