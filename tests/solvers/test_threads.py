"""Threads change the time, not the numbers."""

import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose
from threadpoolctl import threadpool_limits

from az_cv import Exact, Kernel
from az_cv.solvers.threads import num_threads, run_in_threads


def test_answers_do_not_depend_on_the_number_of_threads():
    x = np.random.default_rng(0).normal(size=(300, 3))
    f = np.sin(x)
    answers, choices = [], []
    for count in (1, 3):
        with threadpool_limits(limits=count, user_api="blas"):
            systems = Exact(ridge=1e-6, search_draws=100).systems(
                Kernel(), x, -x, [np.arange(300)[:30]]
            )
            choices.append([(s.family.length_scale, s.ridge) for s in systems.settings])
            answers.append([fit.intercept for _, fit in systems.fit(f)])
    assert choices[0] == choices[1]
    assert_allclose(*answers, rtol=1e-6)


def test_threads_within_threads_are_one():
    seen = []

    def task(_):
        run_in_threads(lambda _: seen.append((threading.get_ident(), num_threads())), range(3))

    with threadpool_limits(limits=2, user_api="blas"):
        run_in_threads(task, range(4))
        assert num_threads() == 2
    assert len(seen) == 12
    assert {count for _, count in seen} == {1}


def test_error_of_a_task_is_raised():
    def task(number):
        if number == 2:
            raise ValueError("two")

    with (
        threadpool_limits(limits=2, user_api="blas"),
        pytest.raises(ValueError, match="two"),
    ):
        run_in_threads(task, range(4))
