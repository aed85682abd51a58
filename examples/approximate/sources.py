"""Are errors right for the approximations that libraries make? Each source, against known answers.

    python examples/approximate/sources.py [--replications 50] [--sources advi smc ...]

Two regressions with known answers (`posteriors.py`): logistic with three coefficients, Poisson with
four; for CmdStan a linear trend (`trend.py`), 50 replications by default in all. Every replication
runs the approximation anew, with a seed of its own, and corrects its draws with gradients from the
target's formulas.
z is (estimate - truth) / reported error over coordinates, replications and both models; "error" is
the root mean square error of means in posterior sds, beside that of the draws' plain average.
"""

import argparse
import functools
import time
import warnings

import numpy as np
from against_nuts import pymc_model
from against_nuts import targets as pymc_targets
from posteriors import Regression, is_refusal
from trend import Trend

import az_cv

TARGETS = {
    "logistic, d = 3": Regression("logistic", 3, 60, 1),
    "Poisson, d = 4": pymc_targets(None)["Poisson, d = 4"],
}
TREND = {"trend, d = 4": Trend()}  # what CmdStan's executable in prophet's wheel can do
DRAWS = 400


@functools.cache
def jax_density(name):
    """Return a target as a log density in JAX."""
    import jax.numpy as jnp

    target = TARGETS[name]
    design, y = jnp.asarray(target.design), jnp.asarray(target.y)

    def log_density(x):
        eta = design @ x
        spread = jnp.logaddexp(0, eta) if target.kind == "logistic" else jnp.exp(eta)
        return (eta * y - spread).sum() - 0.5 * (x**2).sum() / target.prior_sd**2

    return log_density


@functools.cache
def model_of(name):
    """Return a target as a model of PyMC."""
    return pymc_model(TARGETS[name])


@functools.cache
def numpyro_model(name):
    """Return a target as a model of NumPyro."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    target = TARGETS[name]

    def model():
        x = numpyro.sample("x", dist.Normal(0, target.prior_sd).expand([target.d]).to_event(1))
        eta = target.design @ x
        is_logistic = target.kind == "logistic"
        outcome = dist.Bernoulli(logits=eta) if is_logistic else dist.Poisson(jnp.exp(eta))
        numpyro.sample("y", outcome, obs=target.y)

    return model


def laplace(name, seed):
    """Draw from the Gaussian at the mode, of a JAX log density."""
    start = np.zeros(TARGETS[name].d)
    data = az_cv.sources.laplace_draws(
        jax_density(name), start=start, num_draws=DRAWS, random_seed=seed
    )
    return data, {"log_weights": "psis"}


def pymc_laplace(name, seed):
    """Draw from the Gaussian at the mode, of a PyMC model."""
    data = az_cv.sources.laplace_draws(model_of(name), num_draws=DRAWS, random_seed=seed)
    return data, {"log_weights": "psis"}


def blackjax_pathfinder(name, seed):
    """Run BlackJAX's Pathfinder."""
    start = np.random.default_rng(seed).normal(size=TARGETS[name].d)
    data = az_cv.sources.pathfinder_draws(
        jax_density(name), start, num_draws=DRAWS, random_seed=seed
    )
    return data, {"log_weights": "psis"}


def variational(method, name, seed):
    """Fit PyMC's ADVI."""
    import pymc as pm

    with model_of(name):
        fit = pm.fit(
            5000,
            method=method,
            obj_optimizer=pm.adam(learning_rate=0.02),
            random_seed=seed,
            progressbar=False,
        )
        data = fit.sample(DRAWS, random_seed=seed)
    return data, {"draws": "approximate"}


def smc(name, seed):
    """Run PyMC's sequential Monte Carlo, whose particles are resampled."""
    import pymc as pm

    with model_of(name):
        data = pm.sample_smc(
            draws=500,
            chains=2,
            cores=1,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return data, {}


def extras_laplace(name, seed):
    """Run pymc-extras' Laplace approximation."""
    import pymc_extras

    with model_of(name):
        data = pymc_extras.fit_laplace(draws=DRAWS, random_seed=seed, progressbar=False)
    return data, {"draws": "approximate"}


def extras_pathfinder(name, seed):
    """Run pymc-extras' Pathfinder, which resamples by importance weights."""
    import pymc_extras

    with model_of(name):
        data = pymc_extras.fit_pathfinder(num_draws=DRAWS, random_seed=seed, progressbar=False)
    return data, {"draws": "approximate"}


def guide(kind, name, seed):
    """Fit one of NumPyro's guides."""
    import jax
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    own = getattr(autoguide, kind)(numpyro_model(name))
    run = SVI(numpyro_model(name), own, numpyro.optim.Adam(0.02), Trace_ELBO()).run(
        jax.random.key(seed), 5000, progress_bar=False
    )
    data = az_cv.sources.guide_draws(own, run.params, num_draws=DRAWS, random_seed=seed)
    return data, {"draws": "approximate"}


def cmdstan(kind, name, seed):
    """Run one of CmdStan's approximations."""
    import xarray as xr

    draws = TREND[name].approximated(kind, DRAWS, seed)
    coords = {dim: range(size) for dim, size in zip(("chain", "draw"), draws.shape)}
    posterior = xr.Dataset({"x": (("chain", "draw", "row"), draws)}, coords)
    return xr.DataTree.from_dict({"posterior": posterior}), {"draws": "approximate"}


SOURCES = {
    "laplace": laplace,
    "pymc-laplace": pymc_laplace,
    "pathfinder": blackjax_pathfinder,
    "advi": functools.partial(variational, "advi"),
    "fullrank-advi": functools.partial(variational, "fullrank_advi"),
    "auto-normal": functools.partial(guide, "AutoNormal"),
    "auto-multivariate-normal": functools.partial(guide, "AutoMultivariateNormal"),
    "smc": smc,
    "extras-laplace": extras_laplace,
    "extras-pathfinder": extras_pathfinder,
    "cmdstan-laplace": functools.partial(cmdstan, "laplace"),
    "cmdstan-pathfinder": functools.partial(cmdstan, "pathfinder"),
    "cmdstan-variational": functools.partial(cmdstan, "variational"),
}


def targets_of(source):
    """Return the posteriors, by name, that a source is run on."""
    return TREND if source.startswith("cmdstan") else TARGETS


def scores_of(target, posterior):
    """Return log densities and gradients from the target's own formulas, compiled nowhere."""
    draws = posterior["x"].transpose("chain", "draw", ...)
    points = draws.values.reshape(-1, target.d)
    return az_cv.scores_dataset(
        draws.values,
        target.score(points).reshape(draws.shape),
        log_density=target.log_density(points).reshape(draws.shape[:2]),
        coords={dim: draws[dim].values for dim in ("chain", "draw")},
    )


def replicate(source, name, seed):
    """Return errors in sds with reported ones for means and sds, or None where it was refused."""
    data, options = SOURCES[source](name, seed)
    target = targets_of(source)[name]
    mean, sd, _ = target.answer
    posterior = data["posterior"] if hasattr(data, "children") else data.posterior
    plain = np.asarray(posterior["x"].mean(("chain", "draw")))
    if "cv_scores" not in getattr(data, "children", ()):
        options["scores"] = scores_of(target, posterior)
    try:
        result = az_cv.fit(data, var_names=["x"], progressbar=False, **options)
    except ValueError as refusal:
        if not is_refusal(refusal):
            raise
        return None
    found = result.estimates["x"]
    rows = {of: found.sel(summary=of).values for of in ("mean", "sd", "mcse_mean", "mcse_sd")}
    return {
        "mean": ((rows["mean"] - mean) / sd, rows["mcse_mean"] / sd),
        "sd": ((rows["sd"] - sd) / sd, rows["mcse_sd"] / sd),
        "plain": (plain - mean) / sd,
    }


def line(source, replications, first):
    """Return one row of the table for means, and one for sds."""
    started = time.perf_counter()
    found = [
        replicate(source, name, seed)
        for seed in range(first, first + replications // len(targets_of(source)))
        for name in targets_of(source)
    ]
    kept = [one for one in found if one is not None]
    for of in ("mean", "sd"):
        cells = [source, of, f"{len(found) - len(kept)} of {len(found)}"]
        if not kept:
            yield [*cells, *["–"] * 5]
            continue
        error = np.concatenate([one[of][0] for one in kept])
        z = error / np.concatenate([one[of][1] for one in kept])
        plain = np.concatenate([one["plain"] for one in kept])
        yield [
            *cells,
            f"{np.sqrt((plain**2).mean()):.1e}" if of == "mean" else "–",
            f"{np.sqrt((error**2).mean()):.1e}",
            f"{np.sqrt((z**2).mean()):.2f}",
            f"{(np.abs(z) < 1.96).mean():.0%}",
            f"{np.abs(z).max():.1f}",
        ]
    print(f"{source}: {time.perf_counter() - started:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=50, help="of each source")
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    columns = "source|of|refused|plain average|error|RMS z|within 95%|worst z".split("|")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for source in options.sources:
        for cells in line(source, options.replications, options.first):
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
