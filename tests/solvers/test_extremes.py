"""Where outputs are most extreme is found once for all families."""

import numpy as np

from az_cv.engine.engine import Engine
from az_cv.solvers.error_model import ERROR_MODEL
from az_cv.solvers.linear.extremes import Extremes
from az_cv.solvers.linear.linear_fit import find_outskirts


def test_a_variable_and_its_square_share_their_extreme_draws(rng):
    x = rng.normal(size=(400, 3))
    centred = x - x.mean(axis=0)
    outputs = np.hstack([centred, centred**2])
    outermost = find_outskirts(x, 1, ERROR_MODEL).outermost
    found = Extremes().of(outputs, outermost)
    assert len(found.sets) == 3
    np.testing.assert_array_equal(found.sets[found.set_of], found.rows)
    np.testing.assert_array_equal(found.rows, outermost(np.abs(outputs - outputs.mean(axis=0))))


def test_other_outputs_are_looked_at_anew(rng):
    x = rng.normal(size=(400, 3))
    outermost, known = find_outskirts(x, 1, ERROR_MODEL).outermost, Extremes()
    first = known.of(x, outermost)
    assert known.of(x, outermost) is first
    assert known.of(x**3, outermost) is not first
    known.forget()
    assert known.of(x, outermost) is not first


def test_all_families_of_a_question_look_once(rng, monkeypatch):
    x = rng.gamma(3.0, size=(4, 150, 6))
    found, of = [], Extremes.of

    def remembered(self, outputs, outermost):
        found.append(of(self, outputs, outermost))
        return found[-1]

    monkeypatch.setattr(Extremes, "of", remembered)
    engine = Engine(np.log(x), 3.0 - x)
    engine.estimate(np.sqrt(x))
    assert len(engine.members) > 2
    # Errors are judged by fits to typical functions and to single chains, which look by themselves.
    asked = [one for one in found if one.outputs.shape == (600, 6)]
    assert len(asked) >= len(engine.members)
    assert all(one is asked[0] for one in asked)
