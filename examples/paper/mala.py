"""Metropolis-adjusted Langevin chains, adapted to the covariance of the posterior."""

import numpy as np

TARGET_ACCEPTANCE = 0.57


def sample(log_density, start, *, num_warmup, num_draws, thin=1, random_seed=0):
    """Return draws and scores of shape (chain, draw, d).

    Parameters
    ----------
    log_density : callable of one point, in JAX
    start : array of shape (chain, d)
    num_warmup : int
        Steps in which step size and covariance are adapted; none of them is kept.
    num_draws, thin : int
        Every `thin`-th of ``num_draws * thin`` further steps is kept.
    random_seed : int
    """
    import jax
    import jax.numpy as jnp

    d = start.shape[1]

    def step(state, key, size, factor):
        x, logp, gradient = state
        noise, accept = jax.random.split(key)
        covariance = factor @ factor.T

        def drift(x, gradient):
            return x + 0.5 * size**2 * covariance @ gradient

        proposal = drift(x, gradient) + size * factor @ jax.random.normal(noise, (d,))
        new_logp, new_gradient = jax.value_and_grad(log_density)(proposal)

        def transition(to, origin, slope):
            z = jax.scipy.linalg.solve_triangular(factor, to - drift(origin, slope), lower=True)
            return -0.5 * (z @ z) / size**2

        ratio = new_logp - logp
        ratio += transition(x, proposal, new_gradient) - transition(proposal, x, gradient)
        ratio = jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)
        taken = jnp.log(jax.random.uniform(accept)) < ratio
        new = (proposal, new_logp, new_gradient)
        state = jax.tree.map(lambda a, b: jnp.where(taken, a, b), new, state)
        return state, jnp.minimum(1.0, jnp.exp(ratio))

    def run(states, key, size, factor, count):
        def one(states, key):
            keys = jax.random.split(key, len(start))
            states, accepted = jax.vmap(lambda s, k: step(s, k, size, factor))(states, keys)
            return states, (states[0], states[2], accepted.mean())

        return jax.lax.scan(one, states, jax.random.split(key, count))

    with jax.enable_x64(True):
        compiled = jax.jit(run, static_argnames="count")
        x = jnp.asarray(start)
        logp, gradient = jax.vmap(jax.value_and_grad(log_density))(x)
        states, size, factor = (x, logp, gradient), 0.5, np.diag(np.full(d, 0.1))
        rounds = 10
        for k in range(rounds):
            key = jax.random.key(1000 * random_seed + k)
            states, (xs, _, accepted) = compiled(
                states, key, size, factor, count=num_warmup // rounds
            )
            size *= float(np.exp(accepted.mean() - TARGET_ACCEPTANCE))
            if k >= 2:
                recent = np.asarray(xs)[len(xs) // 2 :].reshape(-1, d)
                covariance = np.cov(recent.T).reshape(d, d)
                factor = np.linalg.cholesky(
                    covariance + 1e-6 * np.diag(np.maximum(np.diag(covariance), 1e-12))
                )
        key = jax.random.key(1000 * random_seed + rounds)
        _, (xs, gradients, _) = compiled(states, key, size, factor, count=num_draws * thin)
        kept = slice(thin - 1, None, thin)
        return tuple(np.moveaxis(np.asarray(a[kept]), 0, 1) for a in (xs, gradients))
