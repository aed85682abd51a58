"""The table of many quantities at once is that of the installed ArviZ, of either generation."""

import numpy as np
import pytest

from az_cv.containers.idata import plain_summary
from az_cv.labelled import plain_columns
from az_cv.labelled.plain_columns import DIAGNOSTICS, plain_table


def quantities(rng, shape):
    matrix = rng.normal(size=(*shape, 12))
    matrix[..., 1] = matrix[..., 1].cumsum(axis=1)
    matrix[..., 2] = np.round(matrix[..., 2], 1) + 0.3  # draws that are equal
    matrix[..., 3] = matrix[..., 3] > 1.6
    matrix[..., 4] = 7.0
    matrix[0, 0, 5] = np.nan
    matrix[0, :, 6] += 3.0
    matrix[..., 7] = np.round(matrix[..., 7]) / 10
    return matrix


@pytest.mark.parametrize("shape", [(4, 250), (3, 101), (1, 60)])
def test_diagnostics_are_those_of_arviz(shape, rng):
    matrix = quantities(rng, shape)
    expected, kind, probability = plain_summary(matrix, None, None)
    table, *rest = plain_table(matrix, None, None)
    assert list(table.columns) == list(expected.columns)
    assert rest == [kind, probability]
    np.testing.assert_allclose(table[DIAGNOSTICS], expected[DIAGNOSTICS], rtol=1e-10)


def test_arviz_answers_where_its_definitions_are_others(rng, monkeypatch):
    matrix = quantities(rng, (4, 50))
    monkeypatch.setattr(plain_columns, "tail_values", lambda chains: np.zeros((2, 12)))
    expected, _, _ = plain_summary(matrix, None, None)
    np.testing.assert_array_equal(plain_table(matrix, None, None)[0], expected)
