"""Every constant behind an error bar, by name, with its reason and the experiment that set it.

``python examples/calibration/ablation.py`` switches the rules off one by one; the page on
calibration has the table.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf


@dataclass(frozen=True)
class ErrorModel:
    """How much of what an estimate does not tell counts as its error.

    Attributes
    ----------
    run_times : float
        Runs that are left out are so many autocorrelation times long: the draws on either side of
        a shorter one know its residuals. RMS z of eight schools, 4 x 1000 NUTS draws: 1.21 with
        shorter runs, 1.08 with these.
    runs_per_chain : int
        A chain has at least so many runs: fits without one of fewer say little about the whole.
    visits_per_chain : int
        No autocorrelation time is longer than one of so many parts of a chain, whatever its
        estimate says.
    independence : float
        An autocorrelation time below this counts as independence. Effective sizes of independent
        draws scatter by a third.
    efficiency : float
        Residuals count as at most so many independent draws each: there is no credit for negative
        autocorrelation, whose estimate is noise where most of the output is explained.
    largest : int
        Residuals in which heavy tails show; the error beyond the draws counts as far as it exceeds
        what they tell.
    level : float
        Level of the interval that Student's t widens when few residuals carry the variance.
    outermost : tuple of int
        Runs that count as outermost in one, in two, and in more dimensions, where they lie in many
        directions.
    outermost_share : tuple of int
        No more than one of so many draws is outermost, in one and two dimensions and in more: most
        of what a larger part changes is scatter, and counted already.
    visits_needed : int
        Where a chain pays so many visits to its regions, a visit is a run of draws. Fewer make
        single draws the better guess. RMS z of the banana under NUTS: 2.9 without runs, 1.1 with.
    few : int
        The shift of the estimate without so many outermost runs counts in full.
    discount : tuple of float
        Weight of the shift that more of them cause together, in one and in more dimensions. Chosen
        from 0.5, 0.7 and 1 on logistic regression, banana and 20 LIDAR chains; judged on LIDAR
        chains of other data, see the page on calibration.
    many : int
        From this dimension on draws lie at one distance, nearly all of them are outermost in some
        direction, and what k of them change together is known up to one in the root of k: that
        part counts. Six classes of models with 61 to 105 parameters, NUTS 4 x 1000: without any
        shift RMS z of means is 0.89 to 1.09 and of squares 0.96 to 1.16, with the discount 0.78 to
        1.06 and 0.76 to 1.15 at half of the gain of squares. The root was judged on two others.
    quadrature : float
        The Gaussian process error with the amplitude of the outermost draws counts where it is by
        this factor above the scatter, and by this factor, since four draws are few. In many
        dimensions it counts as it is.
    incredible : tuple of float
        How many plain errors an estimate may be away from the plain average, for loose and for
        close fits: where chains missed a tail the plain error is too small.
    incredible_alone : tuple of float
        In one dimension: so many plain errors, and sds of the output.
    close : float
        Residual sd of a close fit, in units of the output's.
    comparable : float
        Fits whose errors lie within this factor ought to agree.
    unlikely : float
        They do within so many standard errors of their difference; of many comparisons some reach
        two or three.
    judged : float
        Fits whose error is by this factor above that of the estimate are judged by it. If they are
        farther away than their errors say, the error of the estimate is widened by that factor:
        what the draws hide from all of them shows in the worse ones. Settled on nine targets at 4 x
        100 and 4 x 250 draws. RMS z of second moments of Student's t in five dimensions, 4 x 100
        draws: 3.3 without, 0.9 with; the funnel, 4 x 250 NUTS draws: 2.0 and 1.0.
    judged_draws : int
        With more draws than this errors were right without, and such fits take too long.
    judged_parts : int
        Fits to single chains are judged likewise; with fewer chains than this, to parts of them.
        What they lack together, as a root mean square over the parts, counts, and no less than
        what half of the posterior's own variables and squares lack. A mixture of two normals, 4 x
        250 NUTS draws: RMS z 1.8 without, 1.2 with.
    judged_least : int
        Parts have at least so many draws.
    hopeless : float
        A member whose error is so many times that of the best cannot help. Without it the weights
        are badly determined when a kernel reaches ten digits and a polynomial two.
    exact : float
        Residual sd, in units of the output's, that only rounding explains.
    unresolved : float
        In one dimension, away from valleys, a gap between draws counts where the step in log
        density across it is more uncertain than this.
    side : int
        So many draws on either side make it a gap. Fewer are outskirts, and judged as such.
    largest_step : float
        Largest step in log density: beyond it shares change no more, and exponentials stay finite.
    most_modes : int
        No more modes are told apart in two and more dimensions.
    mode_guesses : int
        So many outlying draws are tried as the first of a second mode.
    mode_spreads : tuple of float
        The places where draws and scores see a peak are so many times farther apart than they
        scatter: in the larger part if all else speaks for a Gaussian, and in either part if it does
        not. The larger the harder to find.
    mode_variances : tuple of float
        Least and largest variance of a mode, in units of the average one.
    mode_gaussian : float
        Peaks of the draws of a Gaussian scatter by less than this, those of one with tails by more:
        Student's t with ten degrees of freedom by 0.24.
    beside_gaussian, beside_other : tuple
        What speaks for a mode of few draws, where the peaks of the other draws scatter by noise
        alone, and where they scatter more. The modes are at least so many sds apart, and so many
        times the spread of the peaks of the few. Their scores point to the other mode by no more
        than the larger of so many sds and this share of the distance, and by so many sds at most.
        In a tail they do so by more: Student's t with 30 degrees of freedom by 1.4 times the
        distance, one with few by 1.3 sds. A lone draw of a mode four sds away, 2.4 sds beyond its
        centre, was missed with a largest rise of 2, and draws between the modes with a distance
        of 2 (`examples/calibration/rare_modes.py`; `one_mode.py` has what else is found).
    mode_noise : float
        What counts as noise, in units of that of Gaussian draws.
    mode_draws : int
        Where the larger part is no Gaussian so many draws are needed.
    mode_falling : float
        At so many of them the density falls towards the other mode. One half is expected.
    mode_explained : tuple of float
        Least and largest covariance of their scatter and their scores. One is expected; parts of a
        tail have next to nothing, or a multiple.
    mode_tail : tuple of float
        Draws are no mode but a tail where the scores of the outermost other draws point inwards by
        so many sds, and their own by what is between this share of it and its inverse. Draws of
        the posterior are not asked that: a lone draw of a narrow mode may look like it.
    mode_support : float
        Draws for each coefficient that averages in modes are computed with.
    mode_matters : float
        Modes are mentioned where their shares make up this part of an error.

    Examples
    --------
    >>> ErrorModel(run_times=20).run_times, ERROR_MODEL.run_times
    (20, 10)
    >>> ErrorModel(), ErrorModel(run_times=20)
    (ErrorModel(), ErrorModel(run_times=20))
    """

    run_times: float = 10
    runs_per_chain: int = 8
    visits_per_chain: int = 5
    independence: float = 4 / 3
    efficiency: float = 1.0
    largest: int = 32
    level: float = 0.975
    outermost: tuple[int, int, int] = (8, 16, 32)
    outermost_share: tuple[int, int] = (4, 16)
    visits_needed: float = 32
    few: int = 4
    discount: tuple[float, float] = (0.5, 0.7)
    many: int = 20
    quadrature: float = 2.0
    incredible: tuple[float, float] = (4.0, 20.0)
    incredible_alone: tuple[float, float] = (5.0, 0.4)
    close: float = 0.01
    comparable: float = 3.0
    unlikely: float = 4.0
    judged: float = 2.0
    judged_draws: int = 1500
    judged_parts: int = 4
    judged_least: int = 50
    hopeless: float = 10.0
    exact: float = 1e-10
    unresolved: float = 0.1
    side: int = 8
    largest_step: float = 50.0
    most_modes: int = 8
    mode_guesses: int = 3
    mode_spreads: tuple[float, float] = (8.0, 5.0)
    mode_variances: tuple[float, float] = (0.1, 10.0)
    mode_gaussian: float = 0.2
    beside_gaussian: tuple[float, float, tuple[float, float, float]] = (1.5, 2.0, (0.0, 0.8, 3.0))
    beside_other: tuple[float, float, tuple[float, float, float]] = (2.0, 3.0, (1.0, 0.15, 2.0))
    mode_noise: float = 2.0
    mode_draws: int = 4
    mode_falling: float = 0.2
    mode_explained: tuple[float, float] = (0.25, 2.5)
    mode_tail: tuple[float, float] = (inf, 0.8)
    mode_support: float = 3.0
    mode_matters: float = 0.5

    def __repr__(self) -> str:
        given = [(field.name, getattr(self, field.name), field.default) for field in fields(self)]
        changed = [f"{name}={value!r}" for name, value, default in given if value != default]
        return f"{type(self).__name__}({', '.join(changed)})"


ERROR_MODEL = ErrorModel()
