"""Two posteriors in many dimensions, with NUTS draws that are made once and kept.

    python examples/benchmarks/posteriors.py [--directory DIR]

* ``logistic``: logistic regression, 208 rows, intercept and 60 covariates, prior N(0, 1);
* ``hierarchical``: 40 groups of 12 observations, an intercept and a slope in each, normal with
  unknown means and sds, unknown noise sd: 85 parameters.

The data are simulated, seeds 0, 1 and 2. Needs numpyro.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np

DIRECTORY = pathlib.Path(tempfile.gettempdir()) / "az_cv_benchmark_draws"
SEEDS = (0, 1, 2)
CHAINS, DRAWS = 4, 1000


def logistic_data(seed, rows=208, d=61):
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(rows), rng.normal(size=(rows, d - 1))])
    probability = 1 / (1 + np.exp(-design @ rng.normal(size=d)))
    return design, (rng.uniform(size=rows) < probability).astype(float)


def logistic_log_density(seed):
    import jax.numpy as jnp

    design, y = logistic_data(seed)

    def log_density(x):
        logits = design @ x
        return logits @ y - jnp.logaddexp(0.0, logits).sum() - 0.5 * x @ x

    return log_density, 61


def hierarchical_data(seed, groups=40, observations=12):
    rng = np.random.default_rng(seed)
    covariate = rng.normal(size=(groups, observations))
    intercept = 1.0 + 0.7 * rng.normal(size=(groups, 1))
    slope = -0.5 + 0.4 * rng.normal(size=(groups, 1))
    return covariate, intercept + slope * covariate + 0.6 * rng.normal(size=covariate.shape)


def hierarchical_log_density(seed):
    import jax.numpy as jnp

    covariate, y = hierarchical_data(seed)
    groups = len(y)

    def log_density(x):
        means, log_sds, effects = x[:2], x[2:5], x[5:].reshape(2, groups)
        sd_effects, sd_noise = jnp.exp(log_sds[:2]), jnp.exp(log_sds[2])
        prior = -0.5 * (means @ means) / 25 - 0.5 * (jnp.exp(2 * log_sds)).sum() + log_sds.sum()
        deviations = (effects - means[:, None]) / sd_effects[:, None]
        population = -0.5 * (deviations**2).sum() - groups * log_sds[:2].sum()
        residuals = (y - effects[0][:, None] - effects[1][:, None] * covariate) / sd_noise
        return prior + population - 0.5 * (residuals**2).sum() - y.size * log_sds[2]

    return log_density, 5 + 2 * groups


POSTERIORS = {"logistic": logistic_log_density, "hierarchical": hierarchical_log_density}


def load_draws(name, seed, directory=DIRECTORY):
    """Return draws and scores of shape (chain, draw, d), sampled on the first call."""
    path = pathlib.Path(directory) / f"{name}_{seed}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        x, s = sample(*POSTERIORS[name](seed), seed)
        np.savez(path, x=x, s=s)
    stored = np.load(path)
    return stored["x"], stored["s"]


def sample(log_density, d, seed):
    import jax
    import numpyro.infer

    with jax.enable_x64(True):
        kernel = numpyro.infer.NUTS(potential_fn=lambda x: -log_density(x))
        mcmc = numpyro.infer.MCMC(
            kernel,
            num_warmup=1000,
            num_samples=DRAWS,
            num_chains=CHAINS,
            chain_method="sequential",
            progress_bar=False,
        )
        start = 0.1 * np.random.default_rng(seed).normal(size=(CHAINS, d))
        mcmc.run(jax.random.key(seed), init_params=start)
        x = mcmc.get_samples(group_by_chain=True)
        s = jax.jit(jax.vmap(jax.vmap(jax.grad(log_density))))(x)
    return np.asarray(x), np.asarray(s)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=pathlib.Path, default=DIRECTORY)
    args = parser.parse_args()
    for name in POSTERIORS:
        for seed in SEEDS:
            start = time.perf_counter()
            x, _ = load_draws(name, seed, args.directory)
            print(f"{name} {seed}: {x.shape}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
