"""`log_evidence`: the marginal likelihood of a model by bridge sampling with control variates."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from az_cv.containers.idata import as_idata, model_of
from az_cv.engine.bridge_sampling import bridge_sampling
from az_cv.engine.settings import Settings
from az_cv.labelled.evidence import Evidence
from az_cv.labelled.pipeline import matched_scores
from az_cv.notices import collected_notices
from az_cv.solvers import Exact
from az_cv.sources.dispatch import log_density_of
from az_cv.sources.schema import DRAW, GRADIENT

if TYPE_CHECKING:
    from collections.abc import Callable

    import xarray as xr
    from jaxtyping import Float

    from az_cv.engine.choices import Family, FamilyName, SolverName
    from az_cv.solvers import SGD
    from az_cv.solvers.folds import FoldChoice

    Chains = Float[np.ndarray, "chain draw d"]

PROPOSALS = ("auto", "gaussian", "warped", "mixture")
# The functions in a bridge are smooth, and few draws tell the hyper-parameters for them.
SEARCH_DRAWS = 300
# Draws at which the derivative of the log density is compared with the scores, the step in
# standard deviations, and the relative difference that single precision explains.
COMPARED, STEP, TOLERANCE = 16, 1e-3, 1e-2


def log_evidence(
    data: Any,
    *,
    model: Any = None,
    scores: xr.Dataset | None = None,
    proposal: Literal["auto", "gaussian", "warped", "mixture"] = "auto",
    family: Family | FamilyName = "auto",
    solver: Exact | SGD | SolverName = "auto",
    folds: FoldChoice = "auto",
    attach: bool = True,
    check: bool = True,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> Evidence:
    """Estimate the log evidence of a model from the draws of its posterior.

    The evidence, or marginal likelihood, is the integral of the joint density of data and
    parameters. Bridge sampling finds it from draws of the posterior and of a proposal close to it,
    and both of its expectations are estimated with control variates. Half of the draws choose and
    fit the proposal, the other half meet it; then they change places. Costs a few evaluations of
    the log density for each draw.

    Parameters
    ----------
    data : InferenceData, DataTree, NumPyro's MCMC, or what ``arviz_base`` converts
        Holds the group ``posterior``.
    model : optional
        ``pymc.Model`` (default: the model on the context stack), ``bridgestan.StanModel``,
        ``numpyro.infer.MCMC``, or a JAX log density with every constant. Fits of CmdStan and PyStan
        are refused: their log densities lack the constants of ``~`` statements.
    scores : Dataset, optional
        As from :func:`az_cv.scores`; computed from `model` when not given.
    proposal : {"auto", "gaussian", "warped", "mixture"}
        ``"auto"`` tries Gaussians, Gaussians warped in skewness and tails, and mixtures, and takes
        the one that bridges best to draws that it was not fitted to.
    family, solver, folds, check, progressbar
        As in :func:`az_cv.summary`.
    attach : bool
        Add the result to `data` as the group ``cv_evidence``, where it is InferenceData or a
        DataTree.
    random_seed : int, optional
        Seed of the draws of the proposal, 0 when not given, and of stochastic solvers.

    Returns
    -------
    Evidence
        With ``log_evidence``, ``mcse``, the gain ``vrf`` over plain bridge sampling, Pareto k of
        both sides, and the overlap of posterior and proposal.

    Warns
    -----
    UserWarning
        If proposal and posterior hardly overlap, or both halves disagree.

    Raises
    ------
    TypeError, ValueError
        If the model drops constants of its density, has an improper prior or discrete variables,
        if the draws are not its own, or no proposal meets the posterior.

    See Also
    --------
    az_cv.bayes_factor : Two evidences compared.

    Notes
    -----
    The prior is part of what is measured: a flat or careless prior makes the evidence meaningless,
    whatever its error. What a model does not say is not in its density: a Stan program with
    ``real<lower=0> tau`` and ``tau ~ normal(0, 5)`` lacks the factor 2 of PyMC's ``HalfNormal``.

    References
    ----------
    Meng and Wong (1996), Statistica Sinica 6, 831-860. Gronau et al. (2017),
    doi:10.1016/j.jmp.2017.09.005.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> import az_cv
    >>> draws = np.random.default_rng(1).normal(2.0, 0.5, size=(4, 250, 1))
    >>> model = lambda x: -2 * jnp.sum((x - 2) ** 2)  # the integral is sqrt(pi / 2)
    >>> found = az_cv.log_evidence({"x": draws}, model=model, progressbar=False)
    >>> bool(abs(found.log_evidence - 0.5 * np.log(np.pi / 2)) < 1e-9)
    True
    """
    if proposal not in PROPOSALS:
        raise ValueError(f"proposal {proposal!r} is unknown. Choose from {list(PROPOSALS)}.")
    is_auto = isinstance(solver, str) and solver == "auto"
    chosen = Exact(search_draws=SEARCH_DRAWS) if is_auto else solver
    settings = Settings(family, chosen, folds, random_seed, progressbar, check)
    idata, model = as_idata(data), model_of(data, model)
    with collected_notices() as notices:
        # First: what refuses a model is cheaper than its gradients.
        log_density = log_density_of(idata, model=model)
        found_scores, _, _ = matched_scores(idata, model, scores, settings)
        x = np.asarray(found_scores[DRAW], dtype=float)
        s = np.asarray(found_scores[GRADIENT], dtype=float)
        if check:
            require_own_scores(x, s, log_density)
        found = bridge_sampling(
            x, s, log_density, settings, proposal=None if proposal == "auto" else proposal
        )
    chains, draws = x.shape[:2]
    used = dict.fromkeys(found.proposals)
    result = Evidence(
        log_evidence=found.value,
        mcse=found.mcse,
        plain_log_evidence=found.plain_value,
        plain_mcse=found.plain_mcse,
        diagnostics={
            "pareto_k_posterior": found.pareto_k[0],
            "pareto_k_proposal": found.pareto_k[1],
            "overlap": found.overlap,
        },
        settings={
            "method": "bridge sampling",
            "proposal": " and ".join(used),
            "draws": f"{chains} x {draws} draws",
        },
    )
    result = replace(result, warnings=tuple(notice.message for notice in notices))
    if attach:
        result.attach(idata)
    return result


def require_own_scores(
    x: Chains, s: Chains, log_density: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Refuse a log density whose derivatives are not the scores: it is that of another model."""
    d = x.shape[2]
    flat, scores = x.reshape(-1, d), s.reshape(-1, d)
    rows = np.linspace(0, len(flat) - 1, min(COMPARED, len(flat))).astype(int)
    steps = STEP * np.random.default_rng(0).choice([-1.0, 1.0], size=(len(rows), d)) * flat.std(0)
    # Values far apart, as of another parametrisation, may be infinite.
    with np.errstate(invalid="ignore"):
        change = log_density(flat[rows] + steps) - log_density(flat[rows] - steps)
    expected = 2 * (steps * scores[rows]).sum(axis=1)
    scale = 2 * np.sqrt(((steps * scores.std(0)) ** 2).sum(axis=1)) + np.abs(expected)
    wrong = ~(np.abs(change - expected) <= TOLERANCE * scale)
    if wrong.mean() > 0.5:
        raise ValueError(
            f"At {int(wrong.sum())} of {len(rows)} draws the log density of the model changes "
            "otherwise than the scores say. Pass the model, with the data, that draws and scores "
            "came from."
        )
