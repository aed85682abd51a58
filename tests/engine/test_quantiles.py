"""Quantiles move to where the corrected distribution function has their level."""

import numpy as np
import pytest
import scipy.stats

from az_cv.engine.engine import Engine
from az_cv.engine.quantiles import corrected_quantiles


def test_a_second_look_is_taken_where_the_first_is_precise(rng, monkeypatch):
    """In one dimension indicators gain much; noise gains nothing, and one look is enough."""
    x = rng.normal(size=(4, 100, 1))
    noise = rng.normal(size=(4, 100, 1))
    engine = Engine(x, -x, guide=x)
    asked = []
    estimate = engine.estimate

    def count(outputs, *, steps):
        asked.append(outputs.shape[2])
        return estimate(outputs, steps=steps)

    monkeypatch.setattr(engine, "estimate", count)
    levels = np.array([0.1, 0.1])
    found = corrected_quantiles(engine, np.concatenate([x, noise], axis=2), levels)
    assert asked == [2, 1]
    assert found.mcse[0] < 0.5 * found.plain_mcse[0]
    truth = scipy.stats.norm.ppf(0.1)
    assert abs(found.value[0] - truth) < 4 * found.mcse[0]
    # The second quantile is the plain one.
    assert found.value[1] == pytest.approx(found.plain_value[1], abs=1e-2)
