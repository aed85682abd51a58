"""Products and factors in place, of blocks of larger arrays, and while other threads run."""

import threading

import numpy as np
import pytest

from az_cv.lapack import (
    factorise,
    invert_triangle,
    multiply_triangle,
    row_products,
    solve_triangle,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def block_of_larger(rng, rows, columns):
    """Return a block in Fortran order whose columns are farther apart than it is high."""
    larger = np.asfortranarray(rng.normal(size=(rows + 7, columns + 5)))
    return larger[3 : 3 + rows, 2 : 2 + columns]


def triangle(rng, size):
    lower = block_of_larger(rng, size, size)
    lower[np.diag_indices(size)] = 3.0 + rng.random(size)
    return lower


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_products_of_rows_are_added_to_a_block(rng, order):
    rows = rng.normal(size=(6, 30))
    rows = rows[:, ::3] if order == "strided" else np.asarray(rows, order=order)
    total = block_of_larger(rng, 6, 6)
    before = total.copy()
    assert row_products(rows, total) is total
    np.testing.assert_allclose(np.tril(total), np.tril(before + rows @ rows.T), rtol=1e-14)
    np.testing.assert_array_equal(np.triu(total, 1), np.triu(before, 1))


def test_products_of_rows_without_a_total(rng):
    rows = rng.normal(size=(5, 8))
    np.testing.assert_allclose(row_products(rows), np.tril(rows @ rows.T), rtol=1e-14)


def test_a_factor_replaces_the_matrix_and_has_zeros_above_its_diagonal(rng):
    rows = rng.normal(size=(300, 400))
    whole = rows @ rows.T
    matrix = np.asfortranarray(np.tril(whole) + np.triu(rng.normal(size=whole.shape), 1))
    assert factorise(matrix)
    np.testing.assert_array_equal(matrix, np.tril(matrix))
    np.testing.assert_allclose(matrix @ matrix.T, whole, atol=1e-10)


def test_an_indefinite_matrix_has_no_factor():
    assert not factorise(np.asfortranarray(np.diag([1.0, -1.0])))


def test_a_triangle_of_a_larger_array_is_inverted(rng):
    lower = triangle(rng, 9)
    expected, above = np.linalg.inv(np.tril(lower)), np.triu(lower, 1)
    invert_triangle(lower)
    np.testing.assert_allclose(np.tril(lower), expected, atol=1e-12)
    np.testing.assert_array_equal(np.triu(lower, 1), above)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_blocks_are_multiplied_by_triangles(rng, side, transposed):
    lower = triangle(rng, 6)
    columns = block_of_larger(rng, *((6, 4) if side == "left" else (4, 6)))
    matrix = np.tril(lower).T if transposed else np.tril(lower)
    expected = -2 * (matrix @ columns if side == "left" else columns @ matrix)
    multiply_triangle(lower, columns, side=side, transposed=transposed, factor=-2.0)
    np.testing.assert_allclose(columns, expected, atol=1e-12)


@pytest.mark.parametrize("transposed", [False, True])
def test_equations_of_a_triangle_are_solved_in_blocks(rng, transposed):
    lower, columns = triangle(rng, 6), block_of_larger(rng, 6, 3)
    right = columns.copy()
    solve_triangle(lower, columns, transposed=transposed)
    matrix = np.tril(lower).T if transposed else np.tril(lower)
    np.testing.assert_allclose(matrix @ columns, right, atol=1e-12)


@pytest.mark.parametrize(
    "wrong", [np.eye(3)[:, ::-1], np.ones((3, 4)), np.asfortranarray(np.eye(3, dtype="float32"))]
)
def test_other_orders_and_types_are_refused(wrong):
    with pytest.raises(TypeError, match="not float64 in Fortran order"):
        factorise(wrong)


def test_other_threads_run_while_a_product_is_made(rng):
    ticks, done = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not done.wait(1e-4):
            ticks += 1

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        # A call that held the lock would show one or two, however long it took.
        for size in (500, 1000, 2000, 4000):
            rows = rng.normal(size=(size, 2000))
            before = ticks
            row_products(rows)
            if ticks - before > 20:
                break
    finally:
        done.set()
        clock.join()
    assert ticks - before > 20
