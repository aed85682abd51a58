"""Stan's flat order of parameters: draws read into it, repaired if rounded, dropped if bad.

Stan names each entry of a parameter, ``A.2.1`` for a matrix, ``z.real`` for a complex number and
``pair:2.1`` for an entry of the second member of a tuple, and lists them last index slowest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from az_cv.containers.idata import SAMPLE_DIMS
from az_cv.notices import notify
from az_cv.sources.edges import edge_attrs
from az_cv.sources.finite import NonFiniteScoresWarning
from az_cv.sources.schema import scores_dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import xarray as xr
    from jaxtyping import Bool, Float, Int

# Stan accepts a simplex whose sum is off by 1e-8. Draws printed with five digits or more are off
# by less than 1e-5; what is further off was never a simplex.
ACCURATE, ROUNDED = 1e-9, 1e-5

LOST_PART = (
    "is complex in the Stan model and real in group 'posterior': ArviZ's converter drops imaginary "
    "parts. Pass the fit itself, or az_cv.sources.read_cmdstan_scores(files), which keep them."
)


@dataclass(frozen=True)
class Variable:
    """Where the entries of one parameter sit in Stan's flat order.

    Attributes
    ----------
    name : str
        Name of the parameter, with its member for tuples: ``pairs:2``.
    positions : array of int
        Position of every entry, in the shape of the parameter. Complex ones have a last axis of
        length two.
    is_complex : bool
    """

    name: str
    positions: Int[np.ndarray, ...]
    is_complex: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter in the posterior."""
        return self.positions.shape[:-1] if self.is_complex else self.positions.shape


def parse_names(names: Sequence[str]) -> list[Variable]:
    """Group Stan's flat names by parameter.

    Examples
    --------
    >>> [(v.name, v.positions.tolist()) for v in parse_names(["a", "B.1.1", "B.2.1"])]
    [('a', 0), ('B', [[1], [2]])]
    """
    entries: dict[str, list[tuple[int, list[int]]]] = {}
    complex_names = set()
    for position, name in enumerate(names):
        base, *tokens = re.split(r"(?=[.:])", name)
        # An array of tuples interleaves indices and members: pairs.1:2.3 is pairs:2 at (1, 3).
        members = "".join(token for token in tokens if token[0] == ":")
        words = [token[1:] for token in tokens if token[0] == "."]
        if words and words[-1] in ("real", "imag"):
            complex_names.add(base + members)
            words[-1] = "1" if words[-1] == "real" else "2"
        entries.setdefault(base + members, []).append((position, [int(i) - 1 for i in words]))
    variables = []
    for name, found in entries.items():
        shape = np.max([index for _, index in found], axis=0, initial=0).astype(int) + 1
        positions = np.empty(shape, dtype=int)
        for position, index in found:
            positions[tuple(index)] = position
        variables.append(Variable(name, positions, name in complex_names))
    return variables


def flatten_draws(posterior: xr.Dataset, names: Sequence[str]) -> Float[np.ndarray, "chain draw p"]:
    """Arrange posterior draws in Stan's flat order.

    Parameters
    ----------
    posterior : Dataset
        Holds every parameter, under its name in the Stan program; members of tuples are variables
        of their own, ``pair:2``.
    names : sequence of str
        Stan's flat names.

    Raises
    ------
    ValueError
        If a parameter is missing or has another shape.
    """
    variables = parse_names(names)
    missing = [variable.name for variable in variables if variable.name not in posterior]
    if missing:
        raise ValueError(
            f"Parameters {missing} of the Stan model are not in group 'posterior', which has "
            f"{list(posterior.data_vars)}. Pass the model these draws came from."
        )
    flat = np.empty((posterior.sizes["chain"], posterior.sizes["draw"], len(names)))
    for variable in variables:
        values = posterior[variable.name].transpose(*SAMPLE_DIMS, ...).values
        if values.shape[2:] != variable.shape:
            raise ValueError(
                f"{variable.name!r} has shape {values.shape[2:]} in group 'posterior' and "
                f"{variable.shape} in the Stan model. Pass the model and the data these draws "
                "came from."
            )
        if variable.is_complex:
            if not np.iscomplexobj(values):
                raise ValueError(f"{variable.name!r} {LOST_PART}")
            values = np.stack([values.real, values.imag], axis=-1)
        flat[..., variable.positions] = values
    return flat


def repair_draws(
    draws: Float[np.ndarray, "chain draw p"],
    names: Sequence[str],
    unconstrained_names: Sequence[str],
) -> Float[np.ndarray, "chain draw p"]:
    """Put rounded draws of simplexes, correlation and Cholesky matrices back on their constraint.

    A parameter is taken for one of these when it has as many unconstrained entries as they have,
    and every draw satisfies the constraint to five digits. Warns if any draw was changed.
    """
    free = {variable.name: variable.positions.size for variable in parse_names(unconstrained_names)}
    repaired, changed = draws, {}
    for variable in parse_names(names):
        if variable.is_complex:  # of numbers that no constraint binds
            continue
        values = draws[..., variable.positions]
        projected = _project(values, free.get(variable.name, 0), variable.shape)
        if projected is None:
            continue
        error = float(np.abs(projected - values).max())
        if error > ACCURATE:
            repaired = repaired.copy() if repaired is draws else repaired
            repaired[..., variable.positions] = projected
            changed[variable.name] = error
    if changed:
        listed = ", ".join(f"{name} (by up to {error:.0e})" for name, error in changed.items())
        notify(
            f"Draws are rounded and do not satisfy their constraints; they were moved back: "
            f"{listed}. Sample with sig_figs=18 to keep every digit."
        )
    return repaired


def _project(
    values: Float[np.ndarray, ...], free: int, shape: tuple[int, ...]
) -> Float[np.ndarray, ...] | None:
    """Return the nearest values on the constraint `values` satisfy roughly, or None."""
    if not shape or not np.isfinite(values).all():
        return None
    size = int(np.prod(shape))
    vectors, width = size // shape[-1], shape[-1]
    candidates: list[Callable[[], Float[np.ndarray, ...]]] = []
    if free == size - vectors and width > 1:
        if values.min() >= 0:
            candidates.append(lambda: values / values.sum(axis=-1, keepdims=True))
        candidates.append(lambda: values - values.mean(axis=-1, keepdims=True))
    if len(shape) > 1 and shape[-2] == width and free == vectors * (width - 1) // 2:
        if not np.triu(values, 1).any():
            candidates.append(lambda: _normalised(values))
        candidates.append(lambda: _correlation(values))
    if free == size and width > 1:
        candidates.append(lambda: _normalised(values))
    scale = np.abs(values).max()
    for candidate in candidates:
        with np.errstate(divide="ignore", invalid="ignore"):
            projected = candidate()
        if np.abs(projected - values).max() <= ROUNDED * scale:
            return projected
    return None


def _normalised(values: Float[np.ndarray, ...]) -> Float[np.ndarray, ...]:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def _correlation(values: Float[np.ndarray, "... k k"]) -> Float[np.ndarray, "... k k"]:
    symmetric = (values + values.swapaxes(-1, -2)) / 2
    diagonal = np.arange(values.shape[-1])
    symmetric[..., diagonal, diagonal] = 1.0
    return symmetric


def label_parameters(
    draws: Float[np.ndarray, "chain draw p"],
    names: Sequence[str],
    unconstrained: Float[np.ndarray, "chain draw d"],
    unconstrained_names: Sequence[str],
) -> list[str]:
    """Return the names of the unconstrained parameters in the order of their values.

    Stan lists the names of a container last index slowest, as for constrained values, but keeps the
    unconstrained values of an array one element after the other, each matrix column-major. Names
    do not tell arrays from matrices: the order is taken under which unconstrained and constrained
    values rise and fall together.
    """
    labels = np.array(unconstrained_names, dtype=object)
    constrained = {variable.name: variable for variable in parse_names(names)}
    for free in parse_names(unconstrained_names):
        if len(free.shape) < 2 or free.is_complex:
            continue
        slots = np.sort(free.positions, axis=None)
        axes = tuple(range(free.positions.ndim))
        by_element, by_matrix = axes, (*axes[:-2], axes[-1], axes[-2])
        declared = constrained[free.name]
        chosen = by_element
        if declared.shape == free.shape:
            agreement = {}
            for order in (by_element, by_matrix):
                columns = declared.positions.transpose(order).ravel()
                agreement[order] = _agreement(draws[..., columns], unconstrained[..., slots])
            chosen = max(agreement, key=lambda order: agreement[order])
        labels[slots] = labels[free.positions.transpose(chosen).ravel()].tolist()
    return labels.tolist()


def _agreement(first: Float[np.ndarray, ...], second: Float[np.ndarray, ...]) -> float:
    """Return the mean absolute rank correlation of corresponding columns."""
    ranks = [
        values.reshape(-1, values.shape[-1])[:500].argsort(axis=0).argsort(axis=0)
        for values in (first, second)
    ]
    centred = [rank - rank.mean(axis=0) for rank in ranks]
    return float(np.abs((centred[0] * centred[1]).mean(axis=0)).mean())


def draw_unit_vector_lengths(
    unconstrained: Float[np.ndarray, "chain draw d"], unconstrained_names: Sequence[str]
) -> Float[np.ndarray, "chain draw d"]:
    """Give unconstrained unit vectors the length that the constrained draws have lost.

    Stan's unit vector is ``y / |y|`` with density ``exp(-|y|^2 / 2)`` on ``y``, so that ``|y|`` is
    independent of everything else and follows the chi distribution; going back from the unit vector
    gives ``|y| = 1``. The lengths are drawn anew, with a fixed seed.
    """
    rng = np.random.default_rng(20230717)
    result = unconstrained
    for variable in parse_names(unconstrained_names):
        if variable.is_complex or variable.shape == () or variable.shape[-1] < 2:
            continue
        # Stan keeps one vector of an array after the other, whatever the order of the names.
        positions = np.sort(variable.positions, axis=None).reshape(variable.shape)
        values = unconstrained[..., positions]
        # Only unit vectors have length one to every digit in every draw.
        if np.abs(np.linalg.norm(values, axis=-1) - 1).max() < ACCURATE:
            squares = rng.chisquare(variable.shape[-1], size=values.shape[:-1])
            result = result.copy() if result is unconstrained else result
            result[..., positions] = values * np.sqrt(squares)[..., None]
    return result


def assemble_scores(
    unconstrained: Float[np.ndarray, "chain draw d"],
    gradient: Float[np.ndarray, "chain draw d"],
    failures: Mapping[tuple[int, int], str],
    *,
    names: Sequence[str] | None,
    coords: Mapping[str, np.ndarray],
    source: str,
    log_density: Float[np.ndarray, "chain draw"] | None = None,
    edges: Sequence[str] = (),
    from_sampler: bool = False,
    restored: Bool[np.ndarray, "chain draw"] | None = None,
) -> xr.Dataset:
    """Assemble scores without the draws at which the model could not be evaluated.

    Parameters
    ----------
    unconstrained, gradient : array of shape (chain, draw, d)
    failures : mapping of (chain, draw) positions to Stan's message
    names : sequence of str or None
        Names of the unconstrained parameters.
    coords : mapping
        ``chain`` and ``draw`` labels.
    source : str
        Kept as an attribute.
    log_density : array of shape (chain, draw), optional
    edges : sequence of str
        Hard edges of the density, see :mod:`az_cv.sources.edges`.
    from_sampler : bool
        The sampler itself computed the gradients.
    restored : array of shape (chain, draw), optional
        Draws that are not where the posterior has them, see :mod:`az_cv.sources.rounded_draws`.
        Their log density is not comparable.

    Raises
    ------
    ValueError
        If more than half of the draws fail.
    """
    if log_density is not None and restored is not None:
        log_density = np.where(restored, np.nan, log_density)
    failed = dict(failures)
    finite = np.isfinite(unconstrained).all(axis=-1) & np.isfinite(gradient).all(axis=-1)
    for chain, draw in np.argwhere(~finite).tolist():
        failed.setdefault((chain, draw), "the gradient is not finite")
    keep = np.ones(unconstrained.shape[1], dtype=bool)
    keep[[draw for _, draw in failed]] = False
    if failed:
        (chain, draw), message = min(failed.items())
        labels = np.asarray(coords["draw"])[~keep].tolist()
        report = (
            f"{len(failed)} of {finite.size} draws could not be evaluated by the Stan model. "
            f"First: chain {coords['chain'][chain]}, draw {coords['draw'][draw]}: {message.strip()}"
        )
        if 2 * len(failed) > finite.size:
            raise ValueError(f"{report}\nCheck that model and data are those the draws came from.")
        shown = str(labels) if len(labels) <= 10 else f"{labels[:10]} and {len(labels) - 10} more"
        notify(f"{report}\nDropped from every chain: draws {shown}.", NonFiniteScoresWarning)
    return scores_dataset(
        unconstrained[:, keep],
        gradient[:, keep],
        log_density=None if log_density is None else log_density[:, keep],
        parameter_names=names,
        coords={"chain": coords["chain"], "draw": np.asarray(coords["draw"])[keep]},
        attrs={
            "source": source,
            "dropped_draws": int((~keep).sum()),
            **edge_attrs(edges),
            **({"gradients": "sampler"} if from_sampler else {}),
            **({"restored_share": float(restored.mean())} if restored is not None else {}),
        },
    )
