"""One regression and twelve models that are easily taken for it, in PyMC and in NumPyro.

Stan's version is ``tests/stan/programs/regression.stan``, which has the same knobs.
"""

import numpy as np

RIGHT = {
    "prior_mean": 0.0,
    "prior_sd": 1.0,
    "sigma_sd": 2.0,
    "factor": 1.0,
    "nu": 0.0,
    "jacobian": 1.0,
}


def regression_data(seed=0, rows=60, columns=3):
    """Return simulated data of the regression."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(rows, columns))
    return {"X": design, "y": design @ np.linspace(-1, 1, columns) + rng.normal(size=rows)}


def wrong_kinds(data):
    """Return (data, knobs) of each wrong model, by what is wrong with it."""
    design, y = data["X"], data["y"]
    other = regression_data(seed=99, rows=len(y), columns=design.shape[1])
    moved = y.copy()
    moved[0] += 0.01
    swapped = y.copy()
    swapped[:2] = y[1::-1]
    typo = design.copy()
    typo[5, 0] *= 1.05
    return {
        "prior sd off by 1%": (data, {"prior_sd": 1.01}),
        "prior mean off by a hundredth of an sd": (data, {"prior_mean": 0.01}),
        "prior of sigma off by 1%": (data, {"sigma_sd": 2.02}),
        "one observation dropped": ({"X": design[1:], "y": y[1:]}, {}),
        "one observation twice": ({"X": np.r_[design, design[:1]], "y": np.r_[y, y[:1]]}, {}),
        "one observation off by 0.01": ({"X": design, "y": moved}, {}),
        "two observations swapped": ({"X": design, "y": swapped}, {}),
        "one entry of the design off by 5%": ({"X": typo, "y": y}, {}),
        "likelihood scale off by 1%": (data, {"factor": 1.01}),
        "another seed's data": (other, {}),
        "a missing Jacobian": (data, {"jacobian": 0.0}),
        "Student's t for a normal likelihood": (data, {"nu": 50.0}),
    }


def pymc_model(data, **knobs):
    """Build the regression in PyMC."""
    import pymc as pm

    knobs = RIGHT | knobs
    design, y = data["X"], data["y"]
    with pm.Model() as model:
        b = pm.Normal("b", knobs["prior_mean"], knobs["prior_sd"], shape=design.shape[1])
        sigma = pm.HalfNormal("sigma", knobs["sigma_sd"])
        scale = knobs["factor"] * sigma
        if knobs["nu"]:
            pm.StudentT("y", nu=knobs["nu"], mu=design @ b, sigma=scale, observed=y)
        else:
            pm.Normal("y", design @ b, scale, observed=y)
        if knobs["jacobian"] != 1:
            pm.Potential("taken_out", (knobs["jacobian"] - 1) * pm.math.log(sigma))
    return model


def numpyro_model(design, y, knobs):
    """Build the regression in NumPyro."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    prior = dist.Normal(knobs["prior_mean"], knobs["prior_sd"])
    b = numpyro.sample("b", prior.expand([design.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(knobs["sigma_sd"]))
    scale = knobs["factor"] * sigma
    if knobs["nu"]:
        numpyro.sample("y", dist.StudentT(knobs["nu"], design @ b, scale), obs=y)
    else:
        numpyro.sample("y", dist.Normal(design @ b, scale), obs=y)
    numpyro.factor("taken_out", (knobs["jacobian"] - 1) * jnp.log(sigma))
