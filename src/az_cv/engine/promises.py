"""Which members of the default are fitted: those that cost much must promise something first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from az_cv.engine.choices import HIERARCHY_DIMENSION, is_sum, on_trial
from az_cv.engine.combination import combine
from az_cv.families import HierarchicalKernel
from az_cv.solvers.base import Foreseeing, Witnessing
from az_cv.solvers.linear.search import typical_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float

    from az_cv.engine.choices import Family
    from az_cv.solvers.base import Fitter, Member
    from az_cv.solvers.error_model import ErrorModel

    PerFunction = Float[np.ndarray, " g"]

# A sum over coordinates is fitted where it promises errors below those of the other kernels by this
# factor, for half of the typical functions.
SUM = 1.2
# A kernel of distances is not fitted where one that follows a hierarchy promises errors below its
# own by this factor for every typical function: it would get no weight. The second round of the
# search tells: in the first, fits that leave polynomials unpenalised are not seen, and the kernel
# of distances may catch up with more draws.
OUTDONE = 2.0
# So many indicators are many: kernels are fitted to all of them only if they lower the variances of
# typical ones by this share, on average. Often polynomials take all the weight.
MANY_STEPS = 50
STEPS_GAIN = 0.01


def worth_fitting(
    members: Sequence[Family], fitters: Sequence[Fitter], shape: tuple[int, int]
) -> list[bool]:
    """Tell which members of the default promise enough, judged on few draws.

    Parameters
    ----------
    members, fitters : sequences of the same length
    shape : (n, d)
        Number of draws, and of parameters.
    """
    trials = on_trial(members, *shape)
    if not any(trials):
        return [True] * len(members)
    is_led = [
        isinstance(member, HierarchicalKernel)
        and isinstance(fitter, Witnessing)
        and fitter.has_witnesses
        for member, fitter in zip(members, fitters)
    ]

    def behind(one: Fitter, rivals: Sequence[Fitter], *, chosen: bool) -> PerFunction | None:
        """Return by how much the logarithms of the promised errors are larger than of rivals."""
        own, *others = (_errors(fitter, chosen=chosen) for fitter in (one, *rivals))
        known = [errors for errors in others if errors is not None]
        return None if own is None or not known else own - np.min(known, axis=0)

    def is_worth_it(member: Family, fitter: Fitter) -> bool:
        if is_sum(member):
            rivals = [f for f, m in zip(fitters, members) if not is_sum(m)]
            excess = behind(fitter, rivals, chosen=False)
            return excess is None or bool(np.median(excess) < -np.log(SUM))
        # The kernel of distances may be the only one that errors can be judged by.
        leading = [f for f, led in zip(fitters, is_led) if led]
        excess = behind(fitter, leading, chosen=True)
        return excess is None or not bool(excess.min() > np.log(OUTDONE))

    each = zip(trials, members, fitters)
    return [not trial or is_worth_it(member, fitter) for trial, member, fitter in each]


def _errors(fitter: Fitter, *, chosen: bool) -> PerFunction | None:
    if not isinstance(fitter, Foreseeing):
        return None
    return fitter.errors_of_guide(chosen=chosen)


def serving_steps(fitters: Sequence[Fitter], worth_it: Sequence[bool], d: int) -> list[bool]:
    """Tell which members of the default are fitted to indicators.

    They are all alike, and one kernel of the default is nearly as good for them as several.
    """
    if d < HIERARCHY_DIMENSION:
        return list(worth_it)
    foreseen = [
        fitter.error_of_steps() if worth and isinstance(fitter, Foreseeing) else None
        for worth, fitter in zip(worth_it, fitters)
    ]
    least = min((error for error in foreseen if error is not None), default=None)
    return [worth and (error is None or error == least) for worth, error in zip(worth_it, foreseen)]


def serving_many_steps(
    fitters: Sequence[Fitter],
    serves: Sequence[bool],
    typical: Float[np.ndarray, "n g"],
    evaluated: Callable[[Float[np.ndarray, "n m"]], Float[np.ndarray, "chain draw m"]],
    d: int,
    errors: ErrorModel,
) -> list[bool]:
    """Tell which of the members that serve indicators are worth it where there are many of those.

    Parameters
    ----------
    fitters, serves : sequences of the same length
    typical : array of shape (n, g)
        Functions whose tails make typical indicators.
    evaluated : callable
        Returns the draws that fits are judged on, by chain.
    d : int
        Number of parameters.
    errors : ErrorModel
    """
    able = [serving and isinstance(f, Foreseeing) for f, serving in zip(fitters, serves)]
    is_kernel = [
        isinstance(f, Foreseeing) and one and f.error_of_steps() is not None
        for f, one in zip(fitters, able)
    ]
    if not any(is_kernel):
        return list(serves)
    steps = typical_steps(typical)
    kernels: list[Member] = []
    others: list[Member] = []
    for fitter, one, kernel in zip(fitters, able, is_kernel):
        if one:
            (kernels if kernel else others).extend(fitter.fit(steps, steps=True).members)
    outputs = evaluated(steps)
    with_kernels, without = (
        combine(outputs, members, d, errors).mcse for members in (others + kernels, others)
    )
    gain = np.mean(1 - (with_kernels / without) ** 2)
    return [serving and (gain > STEPS_GAIN or not one) for serving, one in zip(serves, is_kernel)]
