"""The ways to evaluate the gradient of a PyMC model."""

import re

import numpy as np
import pytest
import scipy.special
from pymc_points import (
    as_tree,
    build,
    random_points,
    reference_gradients,
    relative_error,
)

from az_cv.sources import batches, pymc_gradient
from az_cv.sources.batches import Compiled, map_chunks
from az_cv.sources.pymc_graph import Graph, gradient_graph, log_density_graph
from az_cv.sources.pymc_model import pymc_scores

pm = pytest.importorskip("pymc")

pytestmark = [
    pytest.mark.pymc,
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
]
RNG = np.random.default_rng(7)


def two_discrete_variables():
    switch = pm.DiscreteUniform("switch", 0, 5)
    rates = pm.Exponential("rates", 1.0, shape=2)
    label = pm.Bernoulli("label", 0.4, shape=3)
    noise = pm.Normal("noise", label.sum(), 1.0)
    rate = pm.math.switch(switch > np.arange(6), rates[0], rates[1])
    pm.Poisson("y", rate * pm.math.exp(noise), observed=[1, 0, 2, 3, 5, 4])


@pytest.mark.parametrize(
    "prepare",
    [pymc_gradient.with_jax, pymc_gradient.vectorised, pymc_gradient.compiled_loop],
    ids=lambda function: function.__name__,
)
def test_every_way_to_evaluate_gives_the_same_gradient(prepare):
    model = build(two_discrete_variables)
    _, values, points = random_points(model)
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(model, [row.shape[1:] for row in rows])
    continuous = [variable.name for variable in model.continuous_value_vars]

    argnums = [list(values).index(name) for name in continuous]
    compiled = prepare(gradient_graph(graph, argnums), rows)
    arrays = map_chunks(compiled.function, rows, chunk_size=compiled.chunk_size)

    gradient = np.concatenate([array.reshape(10, -1) for array in arrays], axis=1)
    assert relative_error(gradient, reference_gradients(model, points)) < 1e-10


def test_few_points_of_a_small_model_leave_jax_alone(monkeypatch):
    model = build(two_discrete_variables)
    _, values, _ = random_points(model)
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(model, [row.shape[1:] for row in rows])
    asked = []
    monkeypatch.setattr(pymc_gradient, "with_jax", lambda *_: asked.append("jax"))
    compiled, backend = pymc_gradient.first_that_compiles(graph, rows, points=20)
    assert backend == "vectorised" and not asked
    one = [row[:1] for row in rows]
    assert compiled.at(one)[0] == pytest.approx(compiled.at(rows)[0][:1])
    pymc_gradient.first_that_compiles(graph, rows, points=10**12)
    assert asked == ["jax"]


def test_a_graph_that_overflows_is_simplified():
    """The derivative of log(1 - sigmoid(x)) is infinity times zero unless PyTensor cancels both."""
    import pytensor
    import pytensor.tensor as pt

    x = pt.scalar("x")
    graph = Graph([x], [pytensor.grad(pt.log1p(-pt.sigmoid(x)), x)])
    for at, expected in ((1.5, -scipy.special.expit(1.5)), (45.0, -1.0)):
        rows = [np.full(4, at)]
        compiled, _ = pymc_gradient.first_that_compiles(graph, rows, points=100)
        np.testing.assert_allclose(compiled.at(rows)[0], expected, rtol=1e-12)


def test_pytensor_takes_over_where_jax_fails_and_a_compiled_loop_where_python_is_slow(
    eight_schools, monkeypatch
):
    data, values, _ = random_points(eight_schools)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)

    def without_jax(*args, **kwargs):
        raise NotImplementedError("No JAX conversion for the given Op")

    monkeypatch.setattr(pymc_gradient, "with_jax", without_jax)
    python = pymc_scores(data, model=eight_schools, progressbar=False)
    marker = np.full(10, 0.5)
    monkeypatch.setattr(
        pymc_gradient, "compiled_loop", lambda *args: Compiled(lambda *chunk: [marker, marker], 10)
    )
    monkeypatch.setattr(pymc_gradient.vectorised, "__kwdefaults__", {"patience": 0.0})
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(eight_schools, [row.shape[1:] for row in rows])
    slow = pymc_gradient.model_gradients(graph, rows, argnums=[0, 1, 2])

    assert python.gradient_backend == "vectorised"
    np.testing.assert_allclose(python.gradient, expected.gradient, rtol=1e-12, atol=1e-12)
    assert slow.backend == "loop"
    np.testing.assert_array_equal(slow.arrays[0], marker)


def test_what_was_tried_in_vain_is_told_and_other_errors_are_not_caught(eight_schools, monkeypatch):
    _, values, _ = random_points(eight_schools)
    rows = [value.reshape(10, *value.shape[2:]) for value in values.values()]
    graph = log_density_graph(eight_schools, [row.shape[1:] for row in rows])

    def fail(error):
        def prepare(*args):
            raise error

        return prepare

    monkeypatch.setattr(pymc_gradient, "with_jax", fail(NotImplementedError("no conversion")))
    monkeypatch.setattr(pymc_gradient, "vectorised", fail(ValueError("no batching")))
    monkeypatch.setattr(pymc_gradient, "compiled_loop", fail(TypeError("no compiler")))
    with pytest.raises(TypeError, match="no compiler") as caught:
        pymc_gradient.model_gradients(graph, rows, argnums=[0])
    notes = "\n".join(caught.value.__notes__)
    assert "jax evaluation failed: NotImplementedError: no conversion" in notes
    assert "vectorised evaluation failed: ValueError: no batching" in notes
    monkeypatch.setattr(pymc_gradient, "with_jax", fail(ZeroDivisionError("in the user's op")))
    with pytest.raises(ZeroDivisionError, match="in the user's op"):
        pymc_gradient.model_gradients(graph, rows, argnums=[0])


def test_cost_is_split_into_compilation_and_evaluation(eight_schools, caplog, capsys):
    data, _, _ = random_points(eight_schools)
    with caplog.at_level("INFO"):
        scores = pymc_scores(data, model=eight_schools, progressbar=True)
    pattern = r"Gradients of 10 draws \(jax\): compiled in .* s, evaluated in .* s; draws unconst"
    assert re.search(pattern, caplog.text)
    assert re.search(pattern, " ".join(capsys.readouterr().out.split()))
    assert scores.compile_seconds > scores.evaluate_seconds > 0
    pymc_scores(data, model=eight_schools, progressbar=False)
    assert "Gradients" not in capsys.readouterr().out


def test_chunks_of_bounded_memory_change_nothing(eight_schools, monkeypatch):
    data, _, _ = random_points(eight_schools)
    expected = pymc_scores(data, model=eight_schools, progressbar=False)

    monkeypatch.setattr(batches, "CHUNK_BYTES", 4 * 2000)
    chunked = pymc_scores(data, model=eight_schools, progressbar=True)

    np.testing.assert_allclose(chunked.gradient, expected.gradient, rtol=1e-12, atol=1e-12)


def test_precision_of_jax_is_left_as_it_was(eight_schools):
    import jax

    before = jax.config.jax_enable_x64
    data, _, _ = random_points(eight_schools)
    scores = pymc_scores(data, model=eight_schools, progressbar=False)

    assert jax.config.jax_enable_x64 == before
    assert scores.gradient_backend == "jax"


def test_a_derivative_that_depends_on_no_draw_is_repeated_for_all(monkeypatch):
    with pm.Model() as model:
        pm.Flat("flat")
        pm.Potential("slope", 2.0 * model["flat"])
        pm.Flat("free", shape=2)
    data = as_tree({"flat": RNG.normal(size=(2, 5)), "free": RNG.normal(size=(2, 5, 2))})
    for evaluate in (pymc_gradient.with_jax, None):
        if evaluate is None:
            monkeypatch.setattr(pymc_gradient, "with_jax", None)
        scores = pymc_scores(data, model=model, progressbar=False)
        np.testing.assert_array_equal(scores.gradient, np.tile([2.0, 0.0, 0.0], (2, 5, 1)))
