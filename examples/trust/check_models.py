"""Wrong models must be refused and right ones pass, by the log densities that samplers store.

    python examples/trust/check_models.py --pymc 70 --numpyro 70
    python examples/trust/check_models.py --stan 60 --executable ./regression_model

For each library: draws of a regression with stored log densities, twelve models that are easily
taken for it, and as many right models as asked, each with data, size and seed of its own. Stan's
program is ``tests/stan/programs/regression.stan``, compiled by CmdStan.
"""

import argparse
import copy
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from models import RIGHT, numpyro_model, pymc_model, regression_data, wrong_kinds

import az_cv


def pymc_draws(data, knobs, seed):
    """Sample with PyMC; return the trace and a function to summarise it under another model."""
    import pymc as pm

    with pymc_model(data, **knobs):
        trace = pm.sample(
            draws=250, tune=300, chains=4, cores=1, random_seed=seed, progressbar=False
        )
    return lambda other, changed: summarise(trace, model=pymc_model(other, **(knobs | changed)))


def numpyro_draws(data, knobs, seed):
    """Sample with NumPyro."""
    from arviz_base import from_numpyro
    from numpyro.infer import MCMC, NUTS

    mcmc = MCMC(
        NUTS(numpyro_model),
        num_warmup=300,
        num_samples=250,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    arguments = (data["X"], data["y"], RIGHT | knobs)
    mcmc.run(jax.random.key(seed), *arguments, extra_fields=("potential_energy",))
    trace = from_numpyro(mcmc)

    def check(other, changed):
        # A run knows its model through the arguments it had.
        model = copy.copy(mcmc)
        model._args = (other["X"], other["y"], RIGHT | knobs | changed)
        return summarise(trace, model=model)

    return check


def stan_draws(executable):
    """Return the function that samples with an executable of CmdStan's."""
    import cmdstanpy

    def stan_data(data, knobs):
        rows, columns = data["X"].shape
        return {"N": rows, "K": columns, **data, **RIGHT, **knobs}

    def sample(data, knobs, seed):
        folder = Path(tempfile.mkdtemp(prefix="az_cv-trust-"))
        file = folder / "data.json"
        cmdstanpy.write_stan_json(file, stan_data(data, knobs))
        fit = cmdstanpy.CmdStanModel(exe_file=executable).sample(
            data=str(file),
            chains=4,
            iter_sampling=250,
            iter_warmup=300,
            seed=seed + 1,
            # The default, six digits, and all of them.
            sig_figs=(None, 6, 18)[seed % 3],
            output_dir=folder,
            show_progress=False,
        )

        def check(other, changed):
            wrong = folder / "other.json"
            cmdstanpy.write_stan_json(wrong, stan_data(other, knobs | changed))
            scores = az_cv.sources.cmdstan_scores(fit, data_file=wrong, route="executable")
            return summarise(fit, scores=scores)

        return check

    return sample


def summarise(data, **source):
    """Return what the check says: the footer, or the refusal."""
    try:
        table = az_cv.summary(data, family="polynomial", attach=False, progressbar=False, **source)
    except ValueError as refusal:
        return f"REFUSED {refusal}"
    return table.attrs["provenance"]


def settings_of(seed):
    """Return data and knobs of a right model."""
    rng = np.random.default_rng(seed)
    data = regression_data(
        seed, rows=int(rng.choice([10, 60, 300])), columns=int(rng.integers(1, 6))
    )
    knobs = {
        "prior_sd": float(rng.choice([0.5, 1.0, 10.0])),
        "nu": float(rng.choice([0.0, 4.0])),
        "sigma_sd": float(rng.choice([1.0, 5.0])),
    }
    return data, knobs


def study(name, sample, count):
    """Print what became of twelve wrong models and of `count` right ones."""
    started = time.process_time()
    data = regression_data()
    check = sample(data, {}, 0)
    print(f"{name}, the right model: {check(data, {})}", flush=True)
    refused = 0
    for kind, (other, knobs) in wrong_kinds(data).items():
        answer = check(other, knobs)
        refused += answer.startswith("REFUSED The model passed is not the one that was sampled")
        print(f"  {kind}: {answer[:300]}", flush=True)
    print(f"{name}: {refused} of {len(wrong_kinds(data))} wrong models refused", flush=True)
    passed, confirmed = 0, 0
    for seed in range(1, count + 1):
        data, knobs = settings_of(seed)
        answer = sample(data, knobs, seed)(data, {})
        confirmed += answer.startswith("the model's log density is the sampler's")
        passed += not answer.startswith("REFUSED")
        if answer.startswith("REFUSED"):
            print(f"  seed {seed}: {answer[:400]}", flush=True)
        if seed % 10 == 0:
            print(f"  {passed} of {seed} right models passed", flush=True)
            jax.clear_caches()  # a hundred models' compiled code is more than a process may map
    seconds = time.process_time() - started
    print(
        f"{name}: {passed} of {count} right models passed, {confirmed} confirmed; {seconds:.0f} s",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for library in ("pymc", "numpyro", "stan"):
        parser.add_argument(f"--{library}", type=int, metavar="N", help="right models to try")
    parser.add_argument("--x64", action="store_true", help="NumPyro in double precision")
    parser.add_argument("--executable", help="of regression.stan, compiled by CmdStan")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.pymc is not None:
        study("PyMC", pymc_draws, given.pymc)
    if given.numpyro is not None:
        if given.x64:
            import numpyro

            numpyro.enable_x64()
        study("NumPyro", numpyro_draws, given.numpyro)
    if given.stan is not None:
        study("Stan", stan_draws(given.executable), given.stan)


if __name__ == "__main__":
    main()
