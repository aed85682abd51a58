"""Experiment 4: posterior means of a Lotka-Volterra model from MALA output.

    python examples/paper/lotka_volterra.py [--quick] [--repetitions 20] [--output DIR]

Data are simulated: x' = a x - b x y, y' = d x y - c y from (1, 1) on [0, 25], parameters
(0.67, 1.33, 1, 1), normal noise of sd 0.2; the posterior is that of the logarithms, with standard
normal priors. A repetition is one MALA chain; half of its n draws train. Ground truth: a polynomial
of order 4, solved for on the draws of all chains together.
"""

import numpy as np
from experiment import (
    Sample,
    arguments,
    compare,
    default,
    paper_methods,
    plain,
    standardise,
    tuned_kernel,
    write,
)
from mala import sample

from az_cv import Exact, NeuralNetwork, Polynomial
from az_cv.engine.engine import run_engine

PARAMETERS = {"alpha": 0.67, "beta": 1.33, "gamma": 1.0, "delta": 1.0}
END, STEPS, NOISE = 25.0, 500, 0.2
OBSERVE_EVERY = 2
SIZES = (100, 200, 500, 1000)
LONGEST = 2000


def solve(log_parameters):
    """Return prey and predators at the observation times, by Runge-Kutta steps."""
    import jax
    import jax.numpy as jnp

    a, b, c, d = jnp.exp(log_parameters)
    h = END / STEPS

    def slope(u):
        return jnp.stack([a * u[0] - b * u[0] * u[1], d * u[0] * u[1] - c * u[1]])

    def step(u, _):
        k1 = slope(u)
        k2 = slope(u + 0.5 * h * k1)
        k3 = slope(u + 0.5 * h * k2)
        k4 = slope(u + h * k3)
        u = u + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return u, u

    _, path = jax.lax.scan(step, jnp.ones(2), None, length=STEPS)
    return path[OBSERVE_EVERY - 1 :: OBSERVE_EVERY]


def posterior():
    """Return the log density of the log parameters, and where the data were simulated."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        truth = np.log(list(PARAMETERS.values()))
        path = np.asarray(solve(jnp.asarray(truth)))
    data = path + NOISE * np.random.default_rng(0).normal(size=path.shape)

    def log_density(x):
        return -0.5 * ((solve(x) - data) ** 2).sum() / NOISE**2 - 0.5 * x @ x

    return log_density, truth


def main(argv=None):
    options = arguments(__doc__.splitlines()[0], argv)
    sizes, longest = (SIZES, LONGEST) if not options.quick else ((100,), 200)
    log_density, truth = posterior()
    start = truth + 0.01 * np.random.default_rng(1).normal(size=(options.repetitions, 4))
    x, s = sample(
        log_density, start, num_warmup=1000 if options.quick else 2000, num_draws=longest, thin=2
    )
    f = np.exp(x)
    pooled = run_engine(x, s, f, family=Polynomial(4), solver=Exact()).estimate
    print("truth", pooled.mean, "+-", pooled.mcse)
    rows = []
    for n in sizes:
        every = longest // n
        samples = [
            Sample(*(a[k : k + 1, ::every] for a in (x, s, f)), pooled.mean)
            for k in range(options.repetitions)
        ]
        tuned = tuned_kernel(standardise(samples[0])[0], 0.5)
        network = NeuralNetwork(widths=(20,) * 6)
        methods = {"plain": plain, "default": default}
        methods |= paper_methods(tuned, 0.5, network=network)
        cases = [f"{name}, n = {n}" for name in PARAMETERS]
        rows += compare("lotka_volterra", samples, methods, cases, options)
    return write(rows, "lotka_volterra", options.output)


if __name__ == "__main__":
    main()
