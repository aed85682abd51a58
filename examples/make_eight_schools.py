"""Make the eight schools draws and scores that ship with az_cv.

    python examples/make_eight_schools.py src/az_cv/data/eight_schools.npz

Needs PyMC. Samples the non-centered model and evaluates the gradient of the log density, Jacobian
included, at every draw.
"""

import argparse

import numpy as np
import pymc as pm

import az_cv

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    output = parser.parse_args().output
    with pm.Model():
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        theta_tilde = pm.Normal("theta_tilde", 0, 1, shape=8)
        pm.Normal("y", mu + tau * theta_tilde, ERROR, observed=EFFECT)
        data = pm.sample(
            draws=1000, tune=2000, chains=4, cores=1, target_accept=0.95, random_seed=2026
        )
        scores = az_cv.scores(data)
    np.savez_compressed(
        output,
        unconstrained_draw=scores["unconstrained_draw"].values,
        gradient=scores["gradient"].values,
    )


if __name__ == "__main__":
    main()
