"""Answers that the plain average of the same draws contradicts are named."""

import numpy as np
import pytest
import scipy.stats

import az_cv
from az_cv.engine.errors import plain_standard_error
from az_cv.engine.plain_check import LEVEL, apart


def chains(rng, memory, q, shape=(4, 250)):
    """Return autoregressive chains of mean zero and variance one."""
    noise = rng.normal(size=(*shape, q))
    x = noise.copy()
    for i in range(1, shape[1]):
        x[:, i] = memory * x[:, i - 1] + np.sqrt(1 - memory**2) * noise[:, i]
    return x


@pytest.mark.parametrize(("memory", "shape"), [(0.0, (4, 250)), (0.9, (4, 250)), (0.5, (1, 100))])
def test_right_answers_are_hardly_ever_apart(memory, shape):
    """The truth is zero. Each quantity is judged as if it were the only one of a call."""
    x = chains(np.random.default_rng(1), memory, 2000, shape)
    mean, mcse, sd = x.mean(axis=(0, 1)), plain_standard_error(x), x.std(axis=(0, 1))
    warned = sum(
        bool(np.greater(*apart(np.zeros(1), *(part[k : k + 1] for part in (mean, mcse, sd)))))
        for k in range(2000)
    )
    # Two expected; the average of a chain with memory is known less well than its error says.
    assert warned <= scipy.stats.poisson.isf(1e-4, 3 * 2000 * LEVEL)


def test_many_quantities_are_allowed_more():
    plain = (np.zeros(1000), np.full(1000, 0.02), np.ones(1000))
    distance, explained = apart(np.full(1000, 0.08), *plain)
    assert not (distance > explained).any()
    assert np.greater(*apart(*(part[:1] for part in (np.full(1000, 0.08), *plain))))


def truncated_draws(limit):
    """Return draws of a standard normal variable below a limit, evenly spread."""
    u = (np.random.default_rng(0).permutation(2000) + 0.5) / 2000
    return scipy.stats.norm.ppf(u * scipy.stats.norm.cdf(limit)).reshape(4, 500, 1)


@pytest.mark.parametrize("call", [az_cv.summary, az_cv.fit])
def test_an_answer_that_the_draws_contradict_is_named(call):
    """Gradients say that the mean is zero, and know nothing of an edge at one."""
    draws = truncated_draws(1.0)
    scores = az_cv.scores_dataset(draws, -draws)
    data = {"x": draws, "even": np.cos(draws)}
    with pytest.warns(UserWarning, match=r"means of .*x\[0\].* plain errors.*an edge or a jump"):
        found = call(data, scores=scores, family="polynomial", check=False, progressbar=False)
    said = found.warnings if call is az_cv.fit else found.attrs["warnings"]
    assert sum("One of the two is wrong" in text for text in said) == 1
