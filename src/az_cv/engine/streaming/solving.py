"""Features of pieces, and the way from their sums to what fits leave of any outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from az_cv.engine.combination import PLAIN
from az_cv.engine.streaming.adjust import Residuals, merge_residuals, residuals_of
from az_cv.engine.streaming.design import NEGLIGIBLE, Design, sections_at
from az_cv.engine.streaming.gram import Functions, Sample, Work, merge_sums, sums_of
from az_cv.engine.streaming.graph import map_reduce
from az_cv.engine.streaming.kernels import choose_kernel
from az_cv.engine.streaming.solve import MANY_DRAWS, NEGLIGIBLE_OF_MANY, solve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float

    from az_cv.engine.streaming.pieces import Segment
    from az_cv.engine.streaming.plan import Plan
    from az_cv.engine.streaming.whitening import Standardising
    from az_cv.solvers.training.plan import TrainingRecord

    Rows = Float[np.ndarray, "n k"]


@dataclass
class Solving:
    """Features of a stream and the way to coefficients, whatever the outputs.

    Attributes
    ----------
    whitening : Standardising
    design : Design
    sample : Sample
        The draws that fits are made to.
    segments : list of Segment
    plan : Plan
    ridges : sequence of float
    keeps : bool
        Whether products of features will be wanted again.
    run : callable
        Applies a function to all segments and merges what it returns, as
        :func:`az_cv.engine.streaming.graph.map_reduce` does.
    grams : dict of fold to array of shape (p, p)
        Products of features, once they are known and wanted again.
    """

    whitening: Standardising
    design: Design
    sample: Sample
    segments: list[Segment]
    plan: Plan
    ridges: Sequence[float]
    keeps: bool = False
    run: Callable[..., dict[int, Any]] = map_reduce
    grams: dict[int, np.ndarray] = field(default_factory=dict)

    def residuals(
        self, functions: Functions, seconds: float = math.inf
    ) -> tuple[dict[int, Residuals], list[str], np.ndarray, list[TrainingRecord]]:
        """Return what fits to the other folds leave of each, and label and tail of each fit."""
        plan = self.plan
        work = Work(
            self.whitening,
            self.design,
            functions,
            plan.block,
            gram=not self.grams,
            sample=self.sample,
        )
        folds = sorted({segment.fold for segment in self.segments})
        sums = self.run(
            sums_of, dict.fromkeys(folds, work), self.segments, merge_sums, plan.workers
        )
        grams = self.grams or {
            fold: part.gram for fold, part in sums.items() if part.gram is not None
        }
        solution = solve(grams, sums, self.design, self.ridges, plan.workers)
        del sums  # their memory is wanted
        self.grams = grams if self.keeps else {}
        del grams
        works = {
            fold: replace(work, coefficients=found, batch=plan.batch)
            for fold, found in solution.coefficients.items()
        }
        parts = self.run(residuals_of, works, self.segments, merge_residuals, plan.workers)
        names = [*self.design.labels(), PLAIN]
        return parts, [names[choice] for choice in solution.chosen], solution.beyond, []


def design_for(plan: Plan, x: Rows, s: Rows, guide: Rows) -> Design:
    """Place the sections of the kernel, if there is one.

    Parameters
    ----------
    plan : Plan
    x, s : arrays of shape (n, d)
        Some of the draws, whitened, and their scores.
    guide : array of shape (n, g)
        Standardised functions for which the length of the kernel is chosen.
    """
    d = x.shape[1]
    if plan.kernel is None:
        return Design(d, plan.order, plan.interactions)
    kernel = choose_kernel(replace(plan.kernel, centres=None), x, s, guide)
    rows = np.unique(np.linspace(0, len(x) - 1, min(plan.sections, len(x))).astype(int))
    negligible = NEGLIGIBLE_OF_MANY if plan.load.draws >= MANY_DRAWS else NEGLIGIBLE
    sections = sections_at(kernel, x[rows], s[rows], negligible)
    return Design(d, plan.order, plan.interactions, sections)


def sample_for(plan: Plan, x: Rows) -> Sample:
    """Return which draws to fit to: half of them the farthest of all, as far as a few tell."""
    far = plan.fitted // 2
    every = round((plan.load.draws - far) / (plan.fitted - far))
    if every < 2:
        return Sample()
    squares = np.einsum("nd,nd->n", x, x)
    return Sample(float(np.quantile(squares, 1 - far / plan.load.draws)), every)
