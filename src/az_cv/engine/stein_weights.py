"""Weights with which any average of the draws is a kernel estimate of its expectation.

A kernel fit ``f = c + Psi b + K a`` is linear in ``f``: its constant is ``sum w_i f(x_i)``, with
weights that depend on draws and scores alone. They sum to one, make averages of Stein features
zero, and may be negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from az_cv.engine.whitening import fit_whitening
from az_cv.families import Kernel, Polynomial
from az_cv.solvers.linear.dual_system import DualSystem, factorise_dual
from az_cv.solvers.linear.inverse import assemble_gram
from az_cv.solvers.linear.search import representatives
from az_cv.threads import considerate

if TYPE_CHECKING:
    from jaxtyping import Float

    Matrix = Float[np.ndarray, "n d"]

RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
SEARCH_DRAWS = 400


@considerate
def stein_weights(x: Matrix, s: Matrix) -> Float[np.ndarray, " n"]:
    """Return the weights of distinct draws.

    Length scale and ridge are those whose fits, to coordinates and their squares, miss least at
    draws that were left out.

    Parameters
    ----------
    x, s : arrays of shape (n, d)
        Unconstrained draws, and scores of the posterior.

    Examples
    --------
    The posterior is N(1/2, I), the draws are from N(0, I):

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 2))
    >>> weights = stein_weights(x, -(x - 0.5))
    >>> np.round(weights @ x, 6) + 0.0
    array([0.5, 0.5])
    """
    whitening = fit_whitening(x)
    z, scores = whitening.draws(x), whitening.scores(s)
    rows, _ = representatives(z, SEARCH_DRAWS)
    few, few_scores = z[rows], scores[rows]
    guide = np.concatenate([few, few**2], axis=1)
    guide = (guide - guide.mean(axis=0)) / guide.std(axis=0)
    best, least = None, np.inf
    for kernel in Kernel().variants(z, scores):
        for ridge in RIDGES:
            system = _system(kernel, few, few_scores, ridge)
            if system is None:
                continue
            (found, *_) = system.fit(guide)
            missed = float(np.log((found.residual**2).mean(axis=0) + 1e-30).mean())
            if missed < least:
                best, least = (kernel, ridge), missed
    if best is None:
        raise ValueError("No kernel system could be solved: the draws may all be equal.")
    kernel, ridge = best
    for larger in (ridge, *(r for r in RIDGES if r > ridge), 1.0):
        system = _system(kernel, z, scores, larger)
        if system is not None:
            part = system.parts[0]
            return scipy.linalg.cho_solve((part.factor, True), part.solved.T)[0]
    raise ValueError("The kernel system of the draws cannot be solved.")


def _system(kernel: Kernel, x: Matrix, s: Matrix, ridge: float) -> DualSystem | None:
    features = Polynomial(order=1, degree_scale=1.0).features(x, s)
    singly = [np.array([i]) for i in range(len(x))]
    gram = assemble_gram(kernel.gram, x, s)
    # Without the features where they are collinear with the constant.
    return factorise_dual(gram, singly, ridge=ridge, exact_features=(features, None))
