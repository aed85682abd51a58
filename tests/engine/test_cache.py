import threading

import numpy as np
import pytest

from az_cv.engine.cache import clear_cache, engine_for, value_key
from az_cv.engine.settings import Settings
from az_cv.families import Ensemble, Kernel, Polynomial
from az_cv.solvers import SGD, Exact
from az_cv.solvers.kept import Kept


@pytest.fixture
def draws(rng):
    x = rng.normal(size=(2, 30, 2))
    return x, -x


def engine(draws, guide=None, **settings):
    return engine_for(*draws, Settings(**settings), guide=guide)


def test_equal_settings_share_an_engine(draws):
    clear_cache()
    first = engine(draws, family=Polynomial(2), solver=Exact(ridge=1e-8))
    assert engine(draws, family=Polynomial(2), solver=Exact(ridge=1e-8)) is first
    copies = tuple(values.copy() for values in draws)
    assert engine(copies, family=Polynomial(2), solver=Exact(ridge=1e-8)) is first
    clear_cache()
    assert engine(draws, family=Polynomial(2), solver=Exact(ridge=1e-8)) is not first


@pytest.mark.parametrize(
    "other",
    [
        {"family": Polynomial(3)},
        {"family": Polynomial(2), "solver": Exact(ridge=1e-8)},
        {"family": Polynomial(2), "folds": 4},
        {"family": Polynomial(2), "random_seed": 1},
        {"family": Polynomial(2), "guide": np.ones((2, 30, 1))},
    ],
)
def test_other_settings_have_their_own(draws, other):
    first = engine(draws, family=Polynomial(2))
    assert engine(draws, **other) is not first


def test_other_draws_have_their_own(draws):
    first = engine(draws, family=Polynomial(2))
    x, s = draws
    moved = x.copy()
    moved[0, 0, 0] += 1e-12
    assert engine((moved, s), family=Polynomial(2)) is not first
    assert engine((x, 2 * s), family=Polynomial(2)) is not first


def test_what_is_kept_has_one_limit_for_all_members(draws):
    made = engine(draws, solver=Exact(ridge=1e-6))
    stores = {id(fitter.systems.task.kept) for fitter in made._fitters}
    assert len(made._fitters) > 2
    assert len(stores) == 1
    kept = made._fitters[0].systems.task.kept
    made.estimate(np.sin(draws[0]))
    assert 0 < kept.nbytes <= kept.limit


def test_fits_take_the_room_of_searches_and_nothing_goes_beyond_the_limit():
    kept = Kept(limit=100)
    for name in "ab":
        kept.put(name, np.zeros(5), lasting=False)
    kept.put("too large", np.zeros(20), lasting=False)
    assert kept.get("too large") is None
    kept.put("fit", np.zeros(6), lasting=True)  # 48 bytes: one search has to go
    assert kept.get("a") is None
    assert kept.get("b") is not None
    kept.put("another search", np.zeros(6), lasting=False)
    assert kept.get("another search") is None
    kept.put("another fit", np.zeros(6), lasting=True)
    assert kept.get("fit") is not None
    assert kept.nbytes == 96


def test_what_is_needed_again_takes_the_room_of_other_fits():
    """The ends of intervals ask twice for the systems of one setting."""
    kept = Kept(limit=100)
    for number in range(2):
        kept.put(("moments", "part", number), np.zeros(6), lasting=True)
    kept.favour(["steps"])
    kept.put(("steps", "part", 0), np.zeros(6), lasting=True)
    assert kept.get(("steps", "part", 0)) is not None and kept.nbytes == 96
    kept.put(("steps", "part", 1), np.zeros(6), lasting=True)
    assert kept.get(("steps", "part", 1)) is not None and kept.nbytes == 96
    # They leave each other alone, and nothing else takes their room.
    kept.put(("steps", "part", 2), np.zeros(6), lasting=True)
    kept.put(("moments", "part", 0), np.zeros(6), lasting=True)
    assert [kept.get(("steps", "part", number)) is not None for number in range(3)] == [1, 1, 0]
    # What never fits sends nothing away.
    kept.put(("steps", "part", 3), np.zeros(20), lasting=True)
    assert kept.nbytes == 96


def test_threads_share_an_engine_and_keep_their_answers_apart(draws):
    """Each thread asks its own question of the same engine, and has the history of its own."""
    clear_cache()
    settings = {"solver": SGD(num_epochs=2), "family": Polynomial(2), "random_seed": 0}
    questions = [np.sin((k + 1) * draws[0]) for k in range(6)]
    alone = [engine(draws, **settings).estimate(f) for f in questions]
    together = [None] * 6

    def ask(k):
        together[k] = engine(draws, **settings).estimate(questions[k])

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(alone, together):
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(one.mcse, other.mcse)
        assert list(one.history) == list(other.history)
        assert len(one.history) > 0


def test_keys_tell_values_apart():
    centres = np.arange(12.0).reshape(3, 2, 2)
    equal = [
        (Kernel(centres=centres), Kernel(centres=centres.copy())),
        (Ensemble([Kernel(), Polynomial(1)]), Ensemble([Kernel(), Polynomial(1)])),
        (SGD(strength=(1e-4, 1.0)), SGD(strength=(1e-4, 1.0))),
    ]
    for one, other in equal:
        assert value_key(one) == value_key(other)
        hash(value_key(one))
    different = [
        (Kernel(centres=centres), Kernel(centres=centres + 1)),
        (Ensemble([Kernel(), Polynomial(1)]), Ensemble([Polynomial(1), Kernel()])),
        (Settings(folds=2), Settings(folds=0.5)),
        (1, 1.0),
        (1, True),
        (np.zeros(4), np.zeros((2, 2))),
    ]
    for one, other in different:
        assert value_key(one) != value_key(other)


def test_threads_get_the_engine_they_asked_for(rng):
    """Each thread asks for its own draws again and again, while others replace the latest."""
    wrong = []

    def ask(number):
        x = np.random.default_rng(number).normal(size=(2, 20, 1))
        for _ in range(20):
            found = engine_for(x, -x, Settings(family=Polynomial(1)), guide=None)
            mean = found.estimate(x + number).mean
            if not np.allclose(mean, number, atol=1e-9):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
