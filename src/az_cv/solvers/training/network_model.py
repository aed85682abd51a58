"""Networks as models, and the regression that training starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from az_cv.families.neural import NeuralNetwork

if TYPE_CHECKING:
    from jaxtyping import Float

    from az_cv.families.neural import TrainedFamily

    Matrix = Float[np.ndarray, "n d"]
    Constants = dict[str, Any]
    Params = dict[str, Any]

SKIP_DRAWS = 20_000  # enough to fit d coefficients


@dataclass
class NetworkModel:
    """A network, or any other family with ``init`` and ``apply``.

    Parameters
    ----------
    family : TrainedFamily
    d, q : int
    learning_rate : float
        Peak rate of Adam.
    """

    family: TrainedFamily
    d: int
    q: int
    learning_rate: float | None
    float64: bool = False

    @property
    def columns(self) -> int:
        """Number of control variates trained together."""
        return self.q

    def prepare(
        self,
        x: Matrix,
        s: Matrix,
        outputs: Float[np.ndarray, "n q"],
        num_draws: int | None = None,
    ) -> Constants:
        """Fit the linear skip term exactly: training starts where order 1 ends."""
        rows = slice(None, None, -(-len(x) // SKIP_DRAWS))
        x, s, f = x[rows], s[rows], outputs[rows]
        skip = _regress(s, f)
        residual = f - s @ skip
        constants: Constants = {"skip": skip, "learning_rate": self.learning_rate}
        if isinstance(self.family, NeuralNetwork) and self.family.pairs_squares:
            squares, partners = find_squares(f)
            directions = _regress(x, f[:, partners])
            along = (skip[:, partners] * directions).sum(axis=0)
            g = (x @ directions) * (s @ skip)[:, partners] + along
            factors = _slopes(g, residual[:, squares])
            residual[:, squares] -= factors * g
            constants |= {
                "pairs": {"directions": directions, "squares": squares, "partners": partners},
                "factors": factors,
            }
        if self._has_skip:
            constants["start"] = residual.mean(axis=0)
        else:
            constants["start"] = f.mean(axis=0)
        return _as_float32(constants)

    def init(self, rng_key: Any, constants: Constants) -> Params:
        """Return the family's parameters and an intercept."""
        import jax.numpy as jnp

        params = self.family.init(rng_key, self.d, self.q)
        for name in ("skip", "factors"):
            if name in constants and self._has_skip:
                params[name] = jnp.asarray(constants[name])
        return {**params, "intercept": jnp.asarray(constants["start"])}

    def predict(self, params: Params, constants: Constants, x: Any, s: Any) -> Any:
        """Return the family's control variates."""
        family_params = {name: value for name, value in params.items() if name != "intercept"}
        if isinstance(self.family, NeuralNetwork) and "pairs" in constants:
            return self.family.apply_paired(family_params, x, s, constants["pairs"])
        return self.family.apply(family_params, x, s)

    @property
    def _has_skip(self) -> bool:
        return isinstance(self.family, NeuralNetwork) and self.family.skip

    def penalty(self, params: Params, constants: Constants) -> Any:
        """Return nothing: weights decay in the optimiser."""
        return 0.0

    def precondition(self, gradient: Params, constants: Constants) -> Params:
        """Return the gradient as it is."""
        return gradient


def find_squares(
    outputs: Float[np.ndarray, "n q"], least: float = 0.9
) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that are squares of other columns, and those columns.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(500, 2))
    >>> find_squares(np.column_stack([x, x**2]))
    (array([2, 3]), array([0, 1]))
    """

    def standardised(a: np.ndarray) -> np.ndarray:
        centred = a - a.mean(axis=0)
        sd = centred.std(axis=0)
        return centred / np.where(sd > 0, sd, 1.0)

    correlation = standardised(standardised(outputs) ** 2).T @ standardised(outputs) / len(outputs)
    # A square is no partner of its own square.
    np.fill_diagonal(correlation, -1.0)
    partners = np.argmax(correlation, axis=0)
    squares = np.flatnonzero(correlation[partners, np.arange(outputs.shape[1])] > least)
    return squares, partners[squares]


def _regress(features: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Return coefficients of a linear regression with intercept."""
    centred = features - features.mean(axis=0)
    normal = centred.T @ centred
    normal[np.diag_indices_from(normal)] += 1e-6 * np.trace(normal) / len(normal)
    moments = centred.T @ (outputs - outputs.mean(axis=0))
    return scipy.linalg.solve(normal, moments, assume_a="pos")


def _slopes(g: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Return the coefficient of each column of `f` on the same column of `g`."""
    g = g - g.mean(axis=0)
    return (g * f).sum(axis=0) / np.maximum((g * g).sum(axis=0), np.finfo(float).tiny)


def _as_float32(tree: Any) -> Any:
    import jax

    def convert(leaf: Any) -> Any:
        floating = isinstance(leaf, np.ndarray) and leaf.dtype == np.float64
        return leaf.astype(np.float32) if floating else leaf

    return jax.tree.map(convert, tree)
