"""What is trained: a family turned into parameters and a prediction, for one training set.

A model has three parts. ``prepare`` looks at the training draws once, in NumPy, and returns the
constants of that training set; ``init`` and ``predict`` are JAX functions of parameters and those
constants, so that one compilation serves every fold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.linalg

from az_cv.families.ensemble import Ensemble
from az_cv.families.kernel import Kernel
from az_cv.families.neural import NeuralNetwork
from az_cv.families.polynomial import Polynomial
from az_cv.families.traced import kernel_hyper, polynomial_features, stein_kernel
from az_cv.solvers.preconditioner import fit_preconditioner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.families.base import LinearFamily
    from az_cv.families.neural import TrainedFamily

    Matrix = Float[np.ndarray, "n d"]
    Constants = dict[str, Any]
    Params = dict[str, Any]

SKIP_DRAWS = 20_000  # enough to fit d coefficients


class Model(Protocol):
    """What the training loop needs to know."""

    float64: bool
    learning_rate: float | None

    @property
    def columns(self) -> int:
        """Number of control variates trained together."""
        ...

    def prepare(self, x: Matrix, s: Matrix, outputs: Float[np.ndarray, "n q"]) -> Constants:
        """Return the constants of a training set; ``learning_rate`` is among them."""
        ...

    def init(self, rng_key: Any, constants: Constants) -> Params:
        """Return initial parameters, ``intercept`` among them."""
        ...

    def predict(self, params: Params, constants: Constants, x: Any, s: Any) -> Any:
        """Return the control variates, of shape (n, columns)."""
        ...

    def penalty(self, params: Params, constants: Constants) -> Any:
        """Return the penalty on the parameters, one number per column."""
        ...

    def precondition(self, gradient: Params, constants: Constants) -> Params:
        """Return the direction to move in."""
        ...


@dataclass
class LinearModel:
    """A linear family; every output once for each strength of the ridge.

    Parameters
    ----------
    family : Polynomial, Kernel or Ensemble of them
    d, q : int
    strengths : sequence of float
        Ridges, relative to the average variance of the family.
    batch_size : int
    num_centres : int
        Draws that carry sections of a kernel that does not name its own.
    preconditioned : bool
    train_hyper : bool
        Train the kernels' parameters too.
    pool : callable
        Averages features over runs when the objective does.
    """

    family: LinearFamily
    d: int
    q: int
    strengths: Sequence[float]
    batch_size: int
    num_centres: int
    preconditioned: bool
    train_hyper: bool
    pool: Callable[[np.ndarray], np.ndarray]
    float64: bool = True
    learning_rate: float | None = None
    _members: list[LinearFamily] = field(default_factory=list)
    _polynomials: dict[int, Callable[[Any, Any], Any]] = field(default_factory=dict)
    _rotated: bool = False
    _evaluate: Callable[..., list[Any]] | None = None

    @property
    def columns(self) -> int:
        """Number of control variates trained together."""
        return self.q * len(self.strengths)

    def prepare(self, x: Matrix, s: Matrix, outputs: Float[np.ndarray, "n q"]) -> Constants:
        """Choose centres, and the preconditioner from a subsample."""
        family = _middle_variant(self.family, x, s)
        members = list(family.members) if isinstance(family, Ensemble) else [family]
        sizes = [self._block(k, member, x, s) for k, member in enumerate(members)]
        variances = (
            family.variances
            if isinstance(family, Ensemble) and family.variances is not None
            else (1.0,) * len(members)
        )
        self._members = [member for member, _, _ in sizes]
        constants: Constants = {
            "centres": [centres for _, centres, _ in sizes],
            "hyper": [
                kernel_hyper(member) if isinstance(member, Kernel) else {}
                for member in self._members
            ],
            "transforms": [
                transform / variance**0.5 for (_, _, transform), variance in zip(sizes, variances)
            ],
        }
        subsample = self._subsample(x, s, constants)
        found = fit_preconditioner(
            subsample,
            np.asarray(self.strengths),
            num_draws=len(x),
            batch_size=self.batch_size,
            enabled=self.preconditioned,
        )
        self._rotated = found.rotation is not None
        if found.rotation is not None:
            widths = [transform.shape[-1] for transform in constants["transforms"]]
            parts = np.split(found.rotation, np.cumsum(widths)[:-1])
            constants["transforms"] = [
                transform @ part if transform.ndim == 2 else transform[:, None] * part
                for transform, part in zip(constants["transforms"], parts)
            ]
        constants["scales"] = np.repeat(found.scales, self.q, axis=1)
        constants["penalties"] = np.repeat(found.penalties, self.q)
        constants["learning_rate"] = self.learning_rate or found.learning_rate
        constants["start"] = np.tile(outputs.mean(axis=0), len(self.strengths))
        return constants

    def init(self, rng_key: Any, constants: Constants) -> Params:
        """Start from zero coefficients."""
        import jax.numpy as jnp

        p = constants["scales"].shape[0]
        params: Params = {
            "coefficients": jnp.zeros((p, self.columns)),
            "intercept": jnp.asarray(constants["start"]),
        }
        if self.train_hyper:
            params["hyper"] = [
                {name: jnp.asarray(value, jnp.float64) for name, value in hyper.items()}
                for hyper in constants["hyper"]
            ]
        return params

    def predict(self, params: Params, constants: Constants, x: Any, s: Any) -> Any:
        """Return features times coefficients."""
        hyper = params["hyper"] if self.train_hyper else constants["hyper"]
        blocks = self._feature_blocks(hyper, constants, x, s)
        coefficients = params["coefficients"]
        if self._rotated:
            return sum(blocks) @ coefficients
        ends = np.cumsum([block.shape[1] for block in blocks])
        return sum(
            block @ coefficients[end - block.shape[1] : end] for block, end in zip(blocks, ends)
        )

    def penalty(self, params: Params, constants: Constants) -> Any:
        """Return half the ridge penalty."""
        return 0.5 * constants["penalties"] * (params["coefficients"] ** 2).sum(axis=0)

    def precondition(self, gradient: Params, constants: Constants) -> Params:
        """Divide by the curvature of each rotated direction."""
        return {**gradient, "coefficients": gradient["coefficients"] * constants["scales"]}

    def _block(
        self, k: int, member: LinearFamily, x: Matrix, s: Matrix
    ) -> tuple[LinearFamily, np.ndarray, np.ndarray]:
        """Return a member with its centres, and the map to features with a unit ridge.

        A map is a matrix, or a vector of factors.
        """
        if isinstance(member, Polynomial):
            if k not in self._polynomials:
                self._polynomials[k] = polynomial_features(member, self.d)
            return member, np.zeros((0, 2, self.d)), np.ones(member.num_features(self.d))
        if not isinstance(member, Kernel):
            raise TypeError(
                f"SGD trains Polynomial, Kernel, Ensemble and networks; it cannot take {member!r}. "
                "Use solver=Exact()."
            )
        centres = member.centres
        if not isinstance(centres, np.ndarray):
            # As many in every fold, so that one compilation serves them all.
            count = self.num_centres = min(self.num_centres, len(x))
            rows = np.unique(np.linspace(0, len(x) - 1, count).astype(int))
            centres = np.stack([x[rows], s[rows]], axis=1)
        y, t = centres[:, 0], centres[:, 1]
        inner = member.gram(y, t, y, t)
        inner[np.diag_indices_from(inner)] += 1e-12 * np.trace(inner) / len(inner)
        factor = scipy.linalg.cholesky(inner, lower=True)
        # Nystrom: the ridge on these coefficients is the norm of the kernel's own space.
        transform = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True).T
        return member, centres, transform

    def _feature_blocks(self, hyper: Any, constants: Constants, x: Any, s: Any) -> list[Any]:
        """Return the mapped features of each member, in the rotated basis if there is one."""
        blocks = []
        for k, member in enumerate(self._members):
            if isinstance(member, Kernel):
                y, t = constants["centres"][k][:, 0], constants["centres"][k][:, 1]
                raw = stein_kernel(member, hyper[k], x, s, y, t)
            else:
                raw = self._polynomials[k](x, s)
            transform = constants["transforms"][k]
            blocks.append(raw @ transform if transform.ndim == 2 else raw * transform)
        return blocks

    def _subsample(self, x: Matrix, s: Matrix, constants: Constants) -> np.ndarray:
        """Return features at enough draws to see their spectrum, members side by side."""
        import jax

        if self._evaluate is None:
            self._evaluate = jax.jit(self._feature_blocks)
        p = sum(transform.shape[-1] for transform in constants["transforms"])
        count = min(len(x), max(4 * p, 2000))
        # Runs of draws, so that averages over runs stay averages over runs.
        x, s = (_spread_runs(a, count, self.batch_size) for a in (x, s))
        blocks = self._evaluate(constants["hyper"], constants, x, s)
        return self.pool(np.hstack([np.asarray(block) for block in blocks]))


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

    def prepare(self, x: Matrix, s: Matrix, outputs: Float[np.ndarray, "n q"]) -> Constants:
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


def _middle_variant(family: LinearFamily, x: Matrix, s: Matrix) -> Any:
    if isinstance(family, Ensemble) and family.semi_exact:
        raise TypeError(
            "SGD penalises every member and cannot be exact on the polynomials. "
            "Use solver=Exact() for semi_exact=True."
        )
    variants = family.variants(x, s)
    return variants[len(variants) // 2]


def _spread_runs(rows: np.ndarray, count: int, run: int) -> np.ndarray:
    """Return about `count` rows in evenly spaced runs."""
    if count >= len(rows):
        return rows
    starts = np.linspace(0, len(rows) - run, max(1, count // run)).astype(int)
    return rows[(starts[:, None] + np.arange(run)).ravel()]
