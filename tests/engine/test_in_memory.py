"""Many draws in memory are solved from sums over pieces, as those of a stream are."""

import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import az_cv
from az_cv.engine import choices
from az_cv.engine.choices import (
    MANY_DRAWS,
    MANY_DRAWS_REACH,
    NETWORK_REACH,
    default_stack,
    in_pieces,
)
from az_cv.engine.engine import Engine
from az_cv.engine.settings import Settings
from az_cv.engine.streaming.in_memory import ROOM, InPieces, Summed
from az_cv.engine.streaming.pieces import Draws
from az_cv.engine.streaming.stream import stream
from az_cv.engine.weighted import WeightedEngine
from az_cv.families import Kernel, NeuralNetwork, Polynomial
from az_cv.families.description import describe
from az_cv.labelled.pipeline import blocks_of
from az_cv.solvers import SGD, Exact, Task
from az_cv.solvers.time_limit import time_limit

BEND = 0.3


def bent(rng, draws, d=3):
    """Return draws and scores of a target that no polynomial of low order fits."""
    z = rng.normal(size=(4, draws, d))
    x, s = z.copy(), -z
    x[..., 1:] += BEND * (z[..., :1] ** 2 - 1)
    s[..., 0] += 2 * BEND * z[..., 0] * z[..., 1:].sum(axis=-1)
    return x, s


@pytest.fixture
def many(monkeypatch):
    """Take a thousand draws for many: kernels of all draws end where sections begin."""
    monkeypatch.setattr(choices, "MANY_DRAWS", 1000)
    monkeypatch.setattr(choices, "MAX_PARTS", 0)


@pytest.fixture
def engine(rng, many):
    x, s = bent(rng, 500)
    guide = np.concatenate([x, x**2], axis=2)
    return Engine(x, s, Settings(), guide=guide), x, s


def test_residuals_are_those_of_a_stream(engine):
    pytest.importorskip("dask")
    engine, x, s = engine
    draws = Draws(x, s, x)
    streamed = stream(draws, draws, Settings(), memory=ROOM)
    (fitter,) = (f for f in engine._fitters if isinstance(f, Summed))
    flat = x.reshape(-1, 3)
    (member,) = fitter.fit((flat - flat.mean(axis=0)) / flat.std(axis=0)).members
    assert member.label in streamed.shares and streamed.plan.sections > 100
    found = flat.mean(axis=0) + flat.std(axis=0) * member.adjusted
    # The ridge is 1e-10 of the largest eigenvalue: rounding is enlarged by as much.
    np.testing.assert_allclose(found, streamed.adjusted, atol=1e-6)
    error = flat.std(axis=0) * np.hypot(member.spread / np.sqrt(2000), member.tail)
    np.testing.assert_allclose(error, streamed.values["mcse_mean"], rtol=0.1)


def test_it_gains_and_its_errors_are_right(many):
    """Over 10 seeds: the true means are 0, and second moments are known."""
    z, gains = [], []
    truth = np.r_[np.zeros(3), 1, np.full(2, 1 + 2 * BEND**2)]
    for seed in range(10):
        x, s = bent(np.random.default_rng(seed), 2000)
        found = Engine(x, s, Settings()).estimate(np.concatenate([x, x**2], axis=2))
        z.append((found.mean - truth) / found.mcse)
        gains.append((found.plain_mcse / found.mcse) ** 2)
    assert np.median(gains) > 100
    assert 0.33 < np.sqrt(np.mean(np.square(z))) < 1.25
    assert np.mean(np.abs(z) < 1.96) > 0.92


def test_sums_are_kept_for_further_outputs(engine, monkeypatch):
    engine, x, _ = engine
    first = engine.estimate(x[..., :1])
    (fitter,) = (f for f in engine._fitters if isinstance(f, Summed))
    kept = dict(fitter.solving.grams)
    assert len(kept) == fitter.solving.plan.load.folds
    both = engine.estimate(x)
    assert all(fitter.solving.grams[fold] is gram for fold, gram in kept.items())
    np.testing.assert_allclose(both.mean[0], first.mean[0], atol=1e-9)


def test_threads_share_an_engine_and_keep_their_answers_apart(engine):
    engine, x, _ = engine
    questions = [np.exp(0.1 * (k + 1) * x) for k in range(4)]
    alone = [engine.estimate(f).mean for f in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda f: engine.estimate(f).mean, questions))
    for one, other in zip(together, alone):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_indicators_are_left_to_polynomials(engine):
    engine, x, _ = engine
    found = engine.estimate((x > 1).astype(float), steps=True)
    assert not any("kernel" in label for label in found.weights)
    assert np.isfinite(found.mcse).all()


def test_networks_are_not_trained_where_the_kernel_gains(engine):
    engine, x, _ = engine
    found = engine.estimate(np.sin(x))
    errors = found.mcse / found.plain_mcse
    # Fewer draws would have had networks here.
    assert NETWORK_REACH < np.median(errors) < MANY_DRAWS_REACH
    assert not found.history


def test_little_time_means_few_features_in_this_answer_alone(rng, monkeypatch):
    x, s = bent(rng, 20_000, d=2)
    flat = x.reshape(-1, 2), s.reshape(-1, 2)
    engine = Engine(x[:, :100], s[:, :100], Settings(family="polynomial"))
    fitter = InPieces(Settings()).prepare(Kernel(), Task(*flat, (4, 20_000), engine.folds))
    planned = []
    plan = Summed.plan
    monkeypatch.setattr(Summed, "plan", lambda *a: planned.append(plan(*a)) or planned[-1])
    with time_limit(0.5):
        fitter.fit(flat[0])
    fitter.fit(flat[0])
    assert planned[0].features < 0.5 * planned[1].features
    assert [one.batch for one in planned] == [1, 1]


def test_no_dask_is_needed(engine, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dask"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "dask", None)
    monkeypatch.setitem(sys.modules, "dask.base", None)
    engine, x, _ = engine
    found = engine.estimate(x)
    assert any("kernel" in label for label in found.weights)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Settings(), True),
        (Settings(folds="chain"), True),
        (Settings(folds=4), True),
        (Settings(folds=0.5), False),
        (Settings(folds=None), False),
        (Settings(solver="exact"), False),
        (Settings(solver=Exact()), False),
        (Settings(solver=SGD()), False),
        (Settings(family="network"), False),
        (Settings(family=Polynomial(2)), False),
    ],
)
def test_what_is_asked_for_comes_first(settings, expected):
    assert in_pieces(settings, MANY_DRAWS + 1, 3) is expected


def test_it_begins_where_kernels_of_all_draws_end():
    assert not in_pieces(Settings(), MANY_DRAWS, 3)
    assert not in_pieces(Settings(), MANY_DRAWS + 1, 1000)
    labels = [describe(member) for member in default_stack(MANY_DRAWS, 3)]
    assert "polynomial order 2 + imq kernel" in labels
    members = default_stack(MANY_DRAWS + 1, 3, pieces=True)
    kernels = [k for k, member in enumerate(members) if isinstance(member, Kernel)]
    networks = [k for k, member in enumerate(members) if isinstance(member, NeuralNetwork)]
    # Networks come last, where nothing else is precise.
    assert len(kernels) == 1 and len(networks) == 2 and kernels[0] < networks[0]


def test_draws_with_weights_do_not_take_it(rng, many):
    x, s = bent(rng, 500)
    engine = WeightedEngine(x, s, rng.uniform(0.5, 1.5, size=x.shape[:2]))
    assert not any(isinstance(fitter, Summed) for fitter in engine._fitters)


def test_the_table_names_it(rng, many):
    x, s = bent(rng, 2000)
    posterior = xr.Dataset({"x": (("chain", "draw", "k"), x)})
    scores = az_cv.scores_dataset(x, s)
    table = az_cv.summary(posterior, scores=scores, folds="chain", progressbar=False)
    assert "imq kernel" in table.attrs["family"]
    assert (table["vrf_mean"] > 50).all()
    assert (np.abs(table["mean"]) < 5 * table["mcse_mean"]).all()


@pytest.mark.parametrize(("draws", "expected"), [(1000, 128), (1_000_000, 8)])
def test_many_draws_are_estimated_for_few_quantities_at_a_time(draws, expected):
    """Some arrays with a number for each draw and quantity are in memory at once."""
    engine = SimpleNamespace(shape=(4, draws))
    blocks = list(blocks_of(np.arange(300) % 3 > 0, engine, progressbar=False))
    assert {len(block) for block in blocks[:-1]} == {expected}
    np.testing.assert_array_equal(np.concatenate(blocks), np.flatnonzero(np.arange(300) % 3))
