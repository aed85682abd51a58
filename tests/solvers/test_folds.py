import numpy as np
import pytest

from az_cv.solvers.folds import make_folds, run_length


def is_partition(blocks, rows):
    joined = np.concatenate(blocks)
    return len(joined) == rows and set(joined.tolist()) == set(range(rows))


@pytest.fixture
def independent(rng):
    return rng.normal(size=(4, 250, 3))


@pytest.mark.parametrize("choice", ["auto", None, "chain", 5])
def test_blocks_partition_the_draws(choice, independent):
    assert is_partition(make_folds(choice, independent).blocks, 1000)


def test_independent_draws_are_left_out_one_by_one(independent):
    folds = make_folds("auto", independent)
    assert len(folds.blocks) == 1000
    assert not folds.in_sample
    assert make_folds(None, independent).in_sample
    assert folds.label == "leave-one-out"


def test_slow_chains_are_left_out_in_runs(rng):
    noise = rng.normal(size=(4, 1000, 1))
    x = noise.copy()
    for t in range(1, 1000):
        x[:, t] = 0.9 * x[:, t - 1] + noise[:, t]
    # The autocorrelation time of an AR(1) process is (1 + 0.9) / (1 - 0.9) = 19.
    assert 10 <= run_length(x) <= 35
    folds = make_folds("auto", x)
    assert is_partition(folds.blocks, 4000)
    assert [len(rows) for rows in folds.distinct] == [1] * 4000
    assert make_folds(None, x).distinct is None


def test_repeated_draws_are_never_separated(rng):
    x = np.repeat(rng.normal(size=(2, 100, 2)), 3, axis=1)
    flat = x.reshape(-1, 2)
    owner = np.empty(600, dtype=int)
    for k, block in enumerate(make_folds("auto", x).blocks):
        owner[block] = k
    same_chain = np.arange(1, 600) % 300 != 0
    repeated = (flat[1:] == flat[:-1]).all(axis=1) & same_chain
    assert repeated.sum() == 400
    assert [len(rows) for rows in make_folds("auto", x).distinct] == [3] * 200
    assert (owner[1:][repeated] == owner[:-1][repeated]).all()


def test_a_single_chain_is_cut_into_blocks(rng):
    folds = make_folds("chain", rng.normal(size=(1, 200, 2)))
    assert [len(block) for block in folds.blocks] == [50] * 4
    assert all((np.diff(block) == 1).all() for block in folds.blocks)


def test_a_fraction_trains_on_the_beginning_of_every_chain(independent):
    folds = make_folds(0.6, independent)
    assert folds.first_draw == 150
    assert (folds.blocks[0] % 250 >= 150).all()
    assert len(folds.blocks[0]) == 400


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("chains", "folds must be 'auto', 'chain'"),
        (True, "folds must be 'auto'"),
        (1, "folds=1 blocks do not fit"),
        (251, "251 blocks do not fit 250 draws"),
        (1.5, "leaves no draws"),
        (0.999, "leaves no draws"),
    ],
)
def test_impossible_choices_are_refused(choice, message, independent):
    with pytest.raises(ValueError, match=message):
        make_folds(choice, independent)


def test_memory_of_the_distance_counts():
    # Antithetic draws whose distance from the centre has a memory of some twenty draws.
    rng = np.random.default_rng(0)
    log_distance = np.zeros((4, 500))
    for t in range(1, 500):
        log_distance[:, t] = 0.9 * log_distance[:, t - 1] + 0.2 * rng.normal(size=4)
    sides = np.where(np.arange(500) % 2, 1.0, -1.0)
    x = (sides * np.exp(log_distance))[..., None]
    assert run_length(x) > 5
    assert run_length(rng.permutation(x.ravel()).reshape(x.shape)) == 1
