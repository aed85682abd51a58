"""Why gradients do not belong to draws: each mistake breaks the identities in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.optimize
import scipy.stats

from az_cv.engine.identities import identities, z_scores

if TYPE_CHECKING:
    from jaxtyping import Float

    Chains = Float[np.ndarray, "chain draw d"]

# Probability, over all identities together, that correct gradients are doubted.
DOUBTFUL = 1e-4


def likeliest_cause(x: Chains, s: Chains, overall_slope: float, names: list[str]) -> str:
    """Name what is most probably wrong, given that an identity is broken."""
    if overall_slope > 0.5:
        return "Their sign is flipped: E[(x - E x) s'] is +1 where -1 is expected. Negate them."
    permutation = _column_permutation(x, s)
    if permutation is not None:
        moved = [j for j, k in enumerate(permutation) if j != k]
        pairs = ", ".join(f"{names[permutation[j]]} under {names[j]}" for j in moved[:4])
        return f"Their columns are in another order: the gradient of {pairs}. Reorder them."
    order = _chain_order(x, s)
    if order is not None:
        return f"Chains are in another order: the gradients are those of chains {order}."
    if abs(overall_slope) < 0.3:
        return (
            "They are unrelated to the draws at the same place (E[(x - E x) s'] is near 0 where -1 "
            "is expected): gradients of other draws, or of draws in another order."
        )
    chain = _odd_chain(x, s)
    if chain is not None:
        return (
            f"Chain {chain} alone breaks the identities: it has not converged, or its gradients "
            "come from elsewhere."
        )
    shifted = _constant_shift(x, s, names)
    if shifted:
        return (
            f"The mean score of {', '.join(shifted)} is off by one: the log Jacobian of a log "
            "transform is missing. Gradients must be of the unconstrained log density."
        )
    return (
        "E[s] = 0 or E[(x - E x) s'] = -I fails: they come from another model or other data, lack "
        "the Jacobian of a transform, or the chains have not converged."
    )


def _column_permutation(x: Chains, s: Chains) -> list[int] | None:
    """Return which parameter each gradient column belongs to, if that is not its own."""
    d = x.shape[2]
    centred = (x - x.mean(axis=(0, 1))).reshape(-1, d)
    flat = s.reshape(-1, d)
    slope = centred.T @ flat / len(flat)
    if d < 2 or not np.isfinite(slope).all():
        return None
    noise = centred.std(axis=0)[:, None] * flat.std(axis=0) / np.sqrt(len(flat))
    evidence = np.clip(slope, -1.5, 0) / np.maximum(noise, 1e-12)
    parameter, column = scipy.optimize.linear_sum_assignment(evidence)
    belongs = np.empty(d, dtype=int)
    belongs[column] = parameter
    right = np.abs(slope[belongs, np.arange(d)] + 1) < 0.4
    if (belongs == np.arange(d)).all() or right.mean() < 0.9:
        return None
    return belongs.tolist()


def _chain_order(x: Chains, s: Chains) -> list[int] | None:
    """Return the chain each chain's gradients belong to, if that is not its own."""
    chains = len(x)
    if chains < 2:
        return None
    scale = x.std(axis=(0, 1))
    scale = np.where(scale > 0, scale, 1.0)
    centred = (x - x.mean(axis=(0, 1))) / scale
    slope = np.array([[(a * b * scale).mean() for b in s] for a in centred])
    belongs = scipy.optimize.linear_sum_assignment(slope)[1]
    if (belongs == np.arange(chains)).all() or not (
        np.abs(slope[np.arange(chains), belongs] + 1) < 0.4
    ).all():
        return None
    return np.argsort(belongs).tolist()


def _odd_chain(x: Chains, s: Chains) -> int | None:
    """Return the one chain without which the identities hold, if there is exactly one."""
    if len(x) < 3:
        return None
    odd = []
    for chain in range(len(x)):
        rest = [k for k in range(len(x)) if k != chain]
        mean, error, slope, slope_error, freedom = identities(x[rest], s[rest])
        deviations = np.concatenate([mean, (slope + np.eye(len(mean))).ravel()])
        z = z_scores(deviations, np.concatenate([error, slope_error.ravel()]), freedom)
        if 2 * scipy.stats.norm.sf(np.abs(z).max()) * len(z) > DOUBTFUL:
            odd.append(chain)
    return odd[0] if len(odd) == 1 else None


def _constant_shift(x: Chains, s: Chains, names: list[str]) -> list[str]:
    """Return the parameters whose mean score is off by one while everything else is right."""
    mean, error, _, _, _ = identities(x, s)
    off = np.abs(mean) > 3 * error
    by_one = np.abs(np.abs(mean) - 1) < np.maximum(2 * error, 0.05)
    return (
        [name for name, a, b in zip(names, off, by_one) if a and b] if (by_one | ~off).all() else []
    )
