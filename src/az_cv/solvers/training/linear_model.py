"""Linear families as models: features, centres and a preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import scipy.linalg

from az_cv.families.ensemble import Ensemble
from az_cv.families.kernel import Kernel
from az_cv.families.polynomial import Polynomial
from az_cv.families.traced import (
    called_back,
    has_closed_form,
    kernel_hyper,
    polynomial_features,
    stein_kernel,
)
from az_cv.solvers.training.preconditioner import fit_preconditioner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from az_cv.families.base import LinearFamily

    Matrix = Float[np.ndarray, "n d"]
    Constants = dict[str, Any]
    Params = dict[str, Any]


@dataclass
class LinearModel:
    """A linear family; every output once for each strength of the ridge.

    Parameters
    ----------
    family : LinearFamily
        Polynomials and kernels are compiled; others are called back in NumPy.
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
    _features: dict[int, Callable[[Any, Any], Any]] = field(default_factory=dict)
    _rotated: bool = False
    _evaluate: Callable[..., list[Any]] | None = None

    @property
    def columns(self) -> int:
        """Number of control variates trained together."""
        return self.q * len(self.strengths)

    def prepare(
        self,
        x: Matrix,
        s: Matrix,
        outputs: Float[np.ndarray, "n q"],
        num_draws: int | None = None,
    ) -> Constants:
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
                kernel_hyper(member) if _is_compiled(member) else {} for member in self._members
            ],
            "transforms": [
                transform / variance**0.5 for (_, _, transform), variance in zip(sizes, variances)
            ],
        }
        subsample = self._subsample(x, s, constants)
        found = fit_preconditioner(
            subsample,
            np.asarray(self.strengths),
            num_draws=num_draws or len(x),
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
        count = member.num_features(self.d)
        if count is not None and not isinstance(member, Kernel):
            if k not in self._features:
                self._features[k] = (
                    polynomial_features(member, self.d)
                    if isinstance(member, Polynomial)
                    else called_back(member.features, count)
                )
            return member, np.zeros((0, 2, self.d)), np.ones(count)
        centres = getattr(member, "centres", None)
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
            y, t = constants["centres"][k][:, 0], constants["centres"][k][:, 1]
            if k in self._features:
                raw = self._features[k](x, s)
            elif _is_compiled(member):
                raw = stein_kernel(member, hyper[k], x, s, y, t)
            else:
                raw = called_back(member.gram, len(y))(x, s, y, t)
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


def _is_compiled(member: LinearFamily) -> TypeGuard[Kernel]:
    """Tell whether a member is a kernel that traced code computes."""
    return isinstance(member, Kernel) and has_closed_form(member)


def _middle_variant(family: LinearFamily, x: Matrix, s: Matrix) -> Any:
    if isinstance(family, Ensemble):  # "auto" leaves it to the solver whether to penalise
        family = replace(family, semi_exact=False)
    variants = family.variants(x, s)
    return variants[len(variants) // 2]


def _spread_runs(rows: np.ndarray, count: int, run: int) -> np.ndarray:
    """Return about `count` rows in evenly spaced runs."""
    if count >= len(rows):
        return rows
    starts = np.linspace(0, len(rows) - run, max(1, count // run)).astype(int)
    return rows[(starts[:, None] + np.arange(run)).ravel()]
