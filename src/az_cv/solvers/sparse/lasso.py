"""The lasso: few features for each output, as many as left-out draws ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse

from az_cv.families.base import BalancedFamily, LinearFamily
from az_cv.families.description import describe
from az_cv.solvers.base import Fitted, Member
from az_cv.solvers.linear.exact import MIN_DRAWS, tail_error
from az_cv.solvers.linear.linear_fit import find_outskirts
from az_cv.solvers.linear.primal_system import factorise_primal
from az_cv.solvers.sparse.lasso_path import Moments, lasso_path, least_squares
from az_cv.solvers.sparse.splits import Split, make_splits
from az_cv.threads import lapack_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float, Int

    from az_cv.solvers.base import Task

    Outputs = Float[np.ndarray, "n q"]
    Rows = Int[np.ndarray, " b"]

SMALLEST = 1e-4  # penalty, in units of the largest that makes sense
STEP_PENALTIES = 8  # for indicators, which are worth little time
# Draws for each feature of a fit without penalty.
DRAWS_PER_FEATURE = 10
# The error beyond the draws is that of so many features at most, with next to no ridge.
TAIL_FEATURES, TAIL_RIDGE = 100, 1e-10
# Variance, of features scaled to have one, that is only rounding.
CONSTANT = 1e-14


@dataclass(frozen=True)
class Lasso:
    """Least squares with a penalty on the sum of absolute coefficients, for few features of many.

    Every output has its own features and its own penalty. Fits without a group of draws are judged
    on that group. The penalty of each of these fits is chosen by what the others leave, so that the
    draws that judge a fit had no say in its penalty. A second member is the relaxed lasso: least
    squares on the features that the lasso found, which is exact where they are enough.

    Parameters
    ----------
    penalty : float or "auto"
        Penalty in units of the smallest one that leaves every feature out; 0 is least squares.
        ``"auto"`` is chosen by cross-validation for each output.
    num_penalties : int
        To choose from, between 1 and 1e-4.
    num_folds : int
        Into how many groups the draws are put; the runs that the folds of the call leave out stay
        together.
    max_features : int
        A fit does not go on with more features than this, nor with more than a quarter of its
        draws. Functions that need more are served better by :class:`Exact`.

    See Also
    --------
    az_cv.Polynomial : The family it is made for.
    az_cv.solvers.RandomSubsets : Another way with more features than draws.
    az_cv.Exact : The default solver.

    Examples
    --------
    >>> import numpy as np
    >>> from az_cv.engine.engine import run_engine
    >>> from az_cv.families import Polynomial
    >>> from az_cv.solvers import Lasso
    >>> x = np.random.default_rng(0).normal(size=(4, 50, 30))
    >>> found = run_engine(x, -x, x[..., :1] ** 2, family=Polynomial(2), solver=Lasso())
    >>> np.allclose(found.estimate.mean, 1)
    True
    """

    penalty: float | Literal["auto"] = "auto"
    num_penalties: int = 25
    num_folds: int = 5
    max_features: int = 200

    def __post_init__(self) -> None:
        value = self.penalty
        if value != "auto" and not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(f"penalty must be 'auto' or from 0 to 1; it is {value!r}.")
        for name, least in (("num_penalties", 2), ("num_folds", 2), ("max_features", 1)):
            number = getattr(self, name)
            if not isinstance(number, int) or number < least:
                raise ValueError(f"{name} must be an integer from {least} on; it is {number!r}.")

    def accepts(self, family: Any) -> bool:
        """Tell whether a family has a finite number of features, all of them penalised."""
        return has_features(family)

    def prepare(self, family: LinearFamily, task: Task) -> Selection:
        """Return the features of the family on these draws, to be selected for any outputs."""
        require_features(self, family)
        return Selection(self, family, task)


def has_features(family: Any) -> bool:
    """Tell whether a family has a finite number of features, none of them without penalty."""
    return (
        isinstance(family, LinearFamily)
        and not getattr(family, "semi_exact", False)
        and family.num_features(1) is not None
    )


def require_features(solver: Any, family: Any) -> None:
    """Refuse families without a finite number of features."""
    if not has_features(family):
        raise TypeError(
            f"{type(solver).__name__} selects features, and {type(family).__name__} has no finite "
            "set of them, or keeps some without penalty. Use solver=Exact() or SGD(...)."
        )


class Selection:
    """Features on given draws, ready for any outputs."""

    def __init__(self, solver: Lasso, family: LinearFamily, task: Task) -> None:
        self.solver, self.family, self.task = solver, family, task
        self.choosing, self.reported = make_splits(task.folds, len(task.x), solver.num_folds)
        rows = np.unique(np.concatenate([split.trained for split in self.choosing]))
        if isinstance(family, BalancedFamily):
            family = family.balanced(task.s)
        # A prior scale is for a ridge; a penalty on single features finds those that count.
        variant = family.variants(task.x[rows], task.s[rows])[-1]
        features = variant.features(task.x, task.s)
        spread = features[rows].std(axis=0)
        self.features = features / np.where(spread > 0, spread, 1.0)

    def fit(self, outputs: Outputs, *, steps: bool = False) -> Fitted:
        """Select features for each output, and fit them with and without penalty."""
        splits = list(dict.fromkeys([*self.choosing, *self.reported]))
        if min(len(split.trained) for split in splits) < MIN_DRAWS:
            return Fitted([])
        with lapack_first():
            paths = {split: self._paths(split, outputs, steps=steps) for split in splits}
            kinds = list(paths[splits[0]])
            if self.task.folds.in_sample:
                everything = Split(np.arange(len(outputs)), np.array([], dtype=int))
                paths[everything] = self._paths(everything, outputs, steps=steps)
            return Fitted(
                [
                    self._member(
                        kind, {split: found[kind] for split, found in paths.items()}, outputs
                    )
                    for kind in kinds
                ]
            )

    def _paths(self, split: Split, outputs: Outputs, *, steps: bool) -> dict[str, Path]:
        """Return the fits to what a split sees, along the penalties, with and without penalty."""
        moments, mean, scale = self._moments(split, outputs)
        centre = outputs[split.trained].mean(axis=0)
        judged, judging = outputs[split.judged], self.features[split.judged]

        def errors_of(chosen: Rows, coefficients: Any) -> Float[np.ndarray, " k"]:
            left = judged[:, chosen] - centre[chosen] - (judging - mean) @ coefficients
            return (left**2).sum(axis=0)

        nothing = scipy.sparse.csc_array(moments.right.shape)
        start = errors_of(np.arange(outputs.shape[1]), nothing)
        paths = {"lasso": Path(nothing, start)}
        if self.solver.penalty != 0 and not steps:
            paths["relaxed lasso"] = Path(nothing, start)
        for chosen, found in self._fits(moments, steps=steps):
            for kind, path in paths.items():
                own, coefficients = chosen, found
                if kind == "relaxed lasso":
                    few = np.count_nonzero(found, axis=0) <= moments.draws // DRAWS_PER_FEATURE
                    own = chosen[few]
                    coefficients = least_squares(moments, own, found[:, few] != 0)
                sparse = scipy.sparse.csc_array(coefficients / scale[:, None])
                path.add(own, sparse, errors_of(own, sparse))
        return paths

    def _fits(self, moments: Moments, *, steps: bool) -> Iterator[tuple[Rows, Any]]:
        """Yield outputs and coefficients for falling penalties, or for the one that is given."""
        solver = self.solver
        if solver.penalty == 0:
            outputs = np.arange(moments.right.shape[1])
            if moments.draws <= len(moments.right):
                raise ValueError(
                    f"penalty=0 is least squares and needs more draws than features; fits see "
                    f"{moments.draws} draws of {len(moments.right)} features. Use penalty='auto'."
                )
            return iter(
                [(outputs, least_squares(moments, outputs, moments.right == moments.right))]
            )
        number = STEP_PENALTIES if steps else solver.num_penalties
        if solver.penalty == "auto":
            most = min(solver.max_features, max(moments.draws // 4, 1))
            return lasso_path(moments, np.geomspace(1, SMALLEST, number)[1:], max_features=most)
        penalties = np.geomspace(1, solver.penalty, number)[1:]
        return lasso_path(moments, penalties, tolerance=1e-6)

    def _member(self, kind: str, paths: dict[Split, Path], outputs: Outputs) -> Member:
        """Return what fits with penalties chosen by cross-validation contribute."""
        folds, shape = self.task.folds, self.task.shape
        length = max(len(path) for path in paths.values())
        errors = {split: path.errors(length) for split, path in paths.items()}
        total = np.sum([errors[split] for split in self.choosing], axis=0)
        adjusted = outputs.copy()
        used = np.zeros((self.features.shape[1], outputs.shape[1]))
        for split in self.reported:
            # Draws that judge a fit have no say in its penalty.
            others = total - errors[split] if split in self.choosing else total
            coefficients = paths[split].coefficients(self._best(others))
            adjusted[split.judged] -= self.features[split.judged] @ coefficients
            used += np.abs(coefficients)
        chains = adjusted.reshape(*shape, -1)[:, folds.first_draw :]
        label, mean = f"{describe(self.family)}, {kind}", chains.mean(axis=(0, 1))
        tail = self._tail(outputs, used)
        if folds.in_sample:
            everything = next(split for split in paths if not len(split.judged))
            coefficients = paths[everything].coefficients(self._best(total))
            estimate = (outputs - self.features @ coefficients).mean(axis=0)
            return Member(label, estimate, chains, np.hypot(tail, mean - estimate))
        return Member(label, mean, chains, tail)

    def _best(self, errors: Float[np.ndarray, "l q"]) -> Int[np.ndarray, " q"]:
        if self.solver.penalty != "auto":
            return np.full(errors.shape[1], len(errors) - 1)
        return np.argmin(errors, axis=0)

    def _tail(self, outputs: Outputs, used: Float[np.ndarray, "p q"]) -> Float[np.ndarray, " q"]:
        """Return the error beyond the draws of least squares on the features that count most."""
        task, n = self.task, len(outputs)
        outskirts = find_outskirts(task.x, task.folds.visit, task.errors)
        singles = list(np.arange(n)[:, None])
        most = min(TAIL_FEATURES, max(n // DRAWS_PER_FEATURE, 1))
        tail = np.zeros(outputs.shape[1])
        for output, sizes in enumerate(used.T):
            rows = np.argsort(-sizes)[:most]
            rows = np.sort(rows[sizes[rows] > 0])
            system = factorise_primal(self.features[:, rows], singles, ridge=TAIL_RIDGE)
            if len(rows) and system is not None:
                (fit,) = system.fit(outputs[:, output : output + 1], outskirts=outskirts)
                tail[output] = tail_error(fit, task.errors, task.x.shape[1])[0]
        return tail

    def _moments(
        self, split: Split, outputs: Outputs
    ) -> tuple[Moments, Float[np.ndarray, " p"], Float[np.ndarray, " p"]]:
        """Return the moments of what a split sees, and means and sds of its features."""
        kept = self.task.kept.get((self, split))
        if kept is None:
            kept = self._correlations(split)
            self.task.kept.put((self, split), kept, lasting=True)
        n = len(split.trained)
        seen = outputs[split.trained] - outputs[split.trained].mean(axis=0)
        right = self.features[split.trained].T @ seen / n / kept.scale[:, None]
        variance = (seen**2).mean(axis=0)
        return Moments(kept.matrix, right, variance, n), kept.mean, kept.scale

    def _correlations(self, split: Split) -> Correlations:
        """Return the correlations of features, from those of all draws less what is left out."""
        n, features = len(split.trained), self.features
        rest = np.setdiff1d(np.arange(len(features)), split.trained)
        mean = features[split.trained].mean(axis=0)
        if len(rest) < n:
            matrix = self._products - features[rest].T @ features[rest]
        else:
            matrix = features[split.trained].T @ features[split.trained]
        matrix /= n
        matrix -= np.multiply.outer(mean, mean)
        variance = np.diag(matrix).copy()
        # What is constant but for rounding has no correlation with anything.
        moving = variance > CONSTANT
        scale = np.sqrt(np.where(moving, variance, 1.0))
        matrix /= np.multiply.outer(scale, scale)
        matrix[~moving] = matrix[:, ~moving] = 0.0
        matrix[np.diag_indices_from(matrix)] = 1.0
        return Correlations(matrix, mean, np.where(moving, scale, np.inf))

    @cached_property
    def _products(self) -> Float[np.ndarray, "p p"]:
        return self.features.T @ self.features


@dataclass(frozen=True)
class Correlations:
    """Correlations of features, with their means and sds; infinite where they are constant."""

    matrix: Float[np.ndarray, "p p"]
    mean: Float[np.ndarray, " p"]
    scale: Float[np.ndarray, " p"]

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self.matrix.nbytes


class Path:
    """Fits of all outputs along the penalties, with their errors on draws left out.

    Parameters
    ----------
    coefficients : sparse array of shape (p, q)
        Where the path starts.
    errors : array of shape (q,)
        Sums of squares there.
    """

    def __init__(self, coefficients: Any, errors: Float[np.ndarray, " q"]) -> None:
        self._steps = [(np.arange(len(errors)), coefficients)]
        self._source, self._errors = [np.zeros(len(errors), dtype=int)], [errors]

    def add(self, outputs: Rows, coefficients: Any, errors: Float[np.ndarray, " k"]) -> None:
        """Go one step further; outputs that are not among these stay where they are."""
        source, total = self._source[-1].copy(), self._errors[-1].copy()
        source[outputs], total[outputs] = len(self._steps), errors
        self._steps.append((outputs, coefficients))
        self._source.append(source)
        self._errors.append(total)

    def __len__(self) -> int:
        return len(self._steps)

    def errors(self, length: int) -> Float[np.ndarray, "l q"]:
        """Return sums of squares at each of so many steps; where the path ends it stays."""
        return np.stack([*self._errors, *[self._errors[-1]] * (length - len(self))])

    def coefficients(self, chosen: Int[np.ndarray, " q"]) -> Float[np.ndarray, "p q"]:
        """Return the coefficients of each output at the step chosen for it."""
        reached = np.minimum(chosen, len(self) - 1)
        sources = np.stack(self._source)[reached, np.arange(len(chosen))]
        found = np.zeros((self._steps[0][1].shape[0], len(chosen)))
        for step in np.unique(sources):
            outputs, coefficients = self._steps[step]
            wanted = np.flatnonzero(sources == step)
            found[:, wanted] = coefficients[:, np.searchsorted(outputs, wanted)].toarray()
        return found
