"""What holds for any draws, names, labels and types: properties instead of examples.

Draws are those of a skewed density (logarithms of Gamma variables) seen through a linear map, so
that nothing is exact and nothing is symmetric by accident. The examples are always the same.
"""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import az_cv
from az_cv.engine.engine import Engine, run_engine
from az_cv.engine.modes import find_modes
from az_cv.engine.settings import Settings
from az_cv.families import Kernel, Polynomial
from az_cv.solvers import Exact, Task
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.folds import make_folds

few = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
CHEAP = [Polynomial(1), Polynomial(2), Kernel()]
families = st.sampled_from(CHEAP)
seeds = st.integers(0, 2**32 - 1)
labels = st.text("abcxyzµθ_ .-[]", min_size=1, max_size=6).filter(
    lambda name: name.strip(" .") == name
)


@st.composite
def posteriors(draw, least=1, most=4):
    """Return draws and scores of shape (chain, draw, d)."""
    chains, draws = draw(st.integers(1, 4)), draw(st.integers(16, 40))
    d = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(seeds))
    gamma = rng.gamma(3.0, size=(chains, draws, d))
    return _mapped(np.log(gamma), 3.0 - gamma, _invertible(rng, d))


def _invertible(rng, d):
    """Return a matrix with singular values from 1/4 to 4."""
    left, _, right = np.linalg.svd(rng.normal(size=(d, d)))
    return left * 2.0 ** rng.uniform(-2, 2, size=d) @ right


def _mapped(x, s, matrix):
    """Return draws and scores in other coordinates."""
    return x @ matrix.T, s @ np.linalg.inv(matrix)


def _same(one, other, rtol=1e-6):
    """Compare means and errors, in units of the plain errors."""
    unit = one.plain_mcse
    np.testing.assert_allclose(one.mean / unit, other.mean / unit, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(one.mcse / unit, other.mcse / unit, rtol=rtol, atol=rtol)


def _estimate(x, s, outputs, family):
    """Return the estimate with folds and hyper-parameters that do not depend on coordinates.

    By default autocorrelation is that of the coordinates, and so are the functions that
    hyper-parameters are chosen for.
    """
    return Engine(x, s, Settings(family=family, folds=4), guide=outputs).estimate(outputs)


def _functions(x):
    return np.concatenate([x, np.cos(x), x[..., :1] * x[..., -1:]], axis=2)


@few
@given(posteriors(), families, seeds)
def test_linear_maps_of_the_parameters_change_nothing(posterior, family, seed):
    x, s = posterior
    rng = np.random.default_rng(seed)
    y, t = _mapped(x, s, _invertible(rng, x.shape[2]))
    shifted = y + rng.normal(size=x.shape[2])
    outputs = _functions(x)
    _same(
        _estimate(x, s, outputs, family),
        _estimate(shifted, t, outputs, family),
        rtol=1e-4,
    )


@few
@given(posteriors(), families, st.randoms(use_true_random=False))
def test_the_order_of_chains_parameters_and_outputs_is_irrelevant(posterior, family, random):
    x, s = posterior
    outputs = _functions(x)
    chains, parameters, columns = (
        random.sample(range(k), k) for k in (len(x), x.shape[2], outputs.shape[2])
    )
    before = _estimate(x, s, outputs, family)
    x, s, outputs = x[chains], s[chains], outputs[chains]
    after = _estimate(x[..., parameters], s[..., parameters], outputs[..., columns], family)
    back = np.argsort(columns)
    _same(before, replace_columns(after, back), rtol=1e-4)


def replace_columns(estimate, columns):
    """Return the estimate with its outputs in another order."""
    found = copy.copy(estimate)
    for name in ("mean", "mcse", "plain_mean", "plain_mcse"):
        object.__setattr__(found, name, getattr(estimate, name)[columns])
    return found


@few
@given(posteriors(), families, st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.booleans())
def test_units_of_an_output_are_units_of_its_estimate(posterior, family, zero, unit, turned):
    x, s = posterior
    outputs = _functions(x)
    unit = -unit if turned else unit
    assume(abs(zero) <= 1e6 * abs(unit))
    one = run_engine(x, s, outputs, family=family).estimate
    other = run_engine(x, s, zero + unit * outputs, family=family).estimate
    size = one.plain_mcse
    np.testing.assert_allclose((other.mean - zero) / unit / size, one.mean / size, atol=1e-5)
    np.testing.assert_allclose(other.mcse / abs(unit) / size, one.mcse / size, rtol=1e-5, atol=1e-7)


@few
@given(posteriors(), st.sampled_from([Polynomial(2), Kernel()]), seeds)
def test_a_fit_is_linear_in_the_function(posterior, family, seed):
    """Weights of several fits and the choice of a ridge are not: they depend on the function."""
    x, s = posterior
    shape, d = x.shape[:2], x.shape[2]
    flat, scores = x.reshape(-1, d), s.reshape(-1, d)
    chosen = family.variants(flat, scores)[:1]
    task = Task(flat, scores, shape, make_folds("auto", x))
    fitter = Exact(ridge=1e-3).prepare(Fixed(chosen[0]), task)
    outputs = _functions(x).reshape(len(flat), -1)
    mixing = np.random.default_rng(seed).normal(size=(outputs.shape[1], 2))
    (apart,) = fitter.fit(outputs).members
    (together,) = fitter.fit(outputs @ mixing).members
    np.testing.assert_allclose(together.estimate, apart.estimate @ mixing, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(together.adjusted, apart.adjusted @ mixing, rtol=1e-6, atol=1e-6)


class Fixed:
    """One variant of a family: with several, each function would choose its own."""

    def __init__(self, family):
        self.family = family

    def variants(self, x, s):
        return [self.family]

    def num_features(self, d):
        return self.family.num_features(d)

    def features(self, x, s):
        return self.family.features(x, s)

    def gram(self, x, s, y, t):
        return self.family.gram(x, s, y, t)


@few
@given(posteriors(least=2), seeds, st.integers(1, 12))
def test_modes_are_those_of_any_coordinates_and_order(posterior, seed, number):
    x, s = (part.reshape(-1, part.shape[2]).copy() for part in posterior)
    rng = np.random.default_rng(seed)
    x[:number] += 40 * x.std(axis=0)
    matrix, order = _invertible(rng, x.shape[1]), rng.permutation(len(x))
    y, t = _mapped(x, s, matrix)
    one, other = find_modes(x, s, 1, ERROR_MODEL), find_modes(y[order], t[order], 1, ERROR_MODEL)
    assert (one is None) == (other is None)
    if one is not None and len(set(one.counts)) == len(one.counts):
        np.testing.assert_array_equal(one.label[order], other.label)


@st.composite
def labelled(draw):
    """Return a posterior with random names, dims, coordinates and types, and its scores."""
    x, s = draw(posteriors(most=4))
    chains, draws, d = x.shape
    names = draw(st.lists(labels, min_size=2, max_size=2, unique=True))
    kind = draw(st.sampled_from(["f8", "f4", ">f8"]))
    split = draw(st.integers(0, d))
    index = draw(st.permutations(list("abcdef")))[: d - split]
    coords = {
        "chain": draw(st.sampled_from([np.arange(chains), 10 - 2 * np.arange(chains)])),
        "draw": draw(st.sampled_from([np.arange(draws), 500 + 3 * np.arange(draws)])),
        "which one": index,
    }
    values = x.astype(kind)
    data = {f"v{name}": (("chain", "draw"), values[..., k]) for k, name in enumerate(names[:split])}
    if d > split:
        dims = draw(st.permutations(["chain", "draw", "which one"]))
        rest = xr.DataArray(values[..., split:], dims=["chain", "draw", "which one"])
        data[f"w{names[0]}"] = rest.transpose(*dims)
    posterior = xr.Dataset(data, coords=coords)
    scores = az_cv.scores_dataset(
        x.astype(kind).astype(float), s, coords={k: coords[k] for k in ("chain", "draw")}
    )
    return posterior, scores


@pytest.mark.filterwarnings("ignore::UserWarning")
@few
@given(labelled(), st.sampled_from([Polynomial(1), Polynomial(2)]))
def test_names_labels_and_types_come_back_and_the_input_stays(data, family):
    posterior, scores = data
    before, scores_before = posterior.copy(deep=True), scores.copy(deep=True)
    for variable in [*posterior.variables.values(), *scores.variables.values()]:
        if isinstance(variable._data, np.ndarray):
            variable._data.flags.writeable = False
    found = az_cv.fit(posterior, scores=scores, family=family, check=False, progressbar=False)
    xr.testing.assert_identical(posterior, before)
    xr.testing.assert_identical(scores, scores_before)
    assert set(found.estimates.data_vars) == set(posterior.data_vars)
    plain = found.estimates.sel(summary="plain_mean")
    for name, values in posterior.items():
        own = found.estimates[name]
        assert set(own.dims) == {"summary", *values.dims} - {"chain", "draw"}
        assert own.dtype == float
        expected = values.astype(float).mean(["chain", "draw"])
        np.testing.assert_allclose(plain[name], expected.transpose(*plain[name].dims), rtol=1e-5)
        assert not np.shares_memory(own.values, values.values)


SCRIPT = """
import json, sys
import numpy as np
import az_cv
from az_cv.engine.engine import run_engine
rng = np.random.default_rng(3)
gamma = rng.gamma(3.0, size=(2, 60, 3))
x, s = np.log(gamma), 3.0 - gamma
numbers = []
for family, solver in [("kernel", "auto"), ("polynomial", az_cv.SGD(num_epochs=2, batch_size=16))]:
    found = run_engine(x, s, np.cos(x), family=family, solver=solver, random_seed=7).estimate
    numbers += [*found.mean, *found.mcse]
json.dump(numbers, sys.stdout)
"""


def _numbers(threads, hash_seed):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads)) | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return np.array(json.loads(done.stdout))


@pytest.mark.long
def test_a_seed_fixes_every_digit_in_any_process_and_nearly_all_with_more_threads():
    """Threads add numbers in another order, which moves the last digits."""
    first, second = _numbers(1, "1"), _numbers(1, "2")
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(_numbers(2, "1"), first, rtol=1e-6)
