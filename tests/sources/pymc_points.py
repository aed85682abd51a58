"""Points on the unconstrained scale of a PyMC model, and its own gradient there."""

import numpy as np
import xarray as xr

RNG = np.random.default_rng(7)
COORDS = {"row": range(6), "column": ["a", "b"], "school": list("ABCDEFGH")}


def build(builder):
    """Build a model from a function that declares its variables."""
    import pymc as pm

    with pm.Model(coords=COORDS) as model:
        builder()
    return model


def python_mode():
    from pytensor.compile.mode import Mode

    return Mode(linker="py", optimizer="fast_compile")


def random_points(model, num_chains=2, num_draws=5):
    """Draw unconstrained points and map them back with PyMC's own graph of the model."""
    import pytensor

    with pytensor.config.change_flags(cxx=""):
        initial = model.initial_point(0)
        backward = pytensor.function(
            model.value_vars,
            model.replace_rvs_by_values(model.free_RVs),
            mode=python_mode(),
            on_unused_input="ignore",
        )
        points, constrained = [], []
        for _ in range(num_chains * num_draws):
            point = {
                value.name: np.asarray(initial[value.name])
                if value.dtype.startswith("int")
                else initial[value.name] + RNG.normal(size=np.shape(initial[value.name]))
                for value in model.value_vars
            }
            points.append(point)
            constrained.append(backward(*point.values()))

    def stack(rows):
        array = np.stack([np.asarray(row) for row in rows])
        return array.reshape(num_chains, num_draws, *array.shape[1:])

    posterior = {
        rv.name: stack([draw[i] for draw in constrained]) for i, rv in enumerate(model.free_RVs)
    }
    values = {name: stack([point[name] for point in points]) for name in points[0]}
    return as_tree(posterior), values, points


def as_tree(variables):
    """Return draws with dims (chain, draw, ...) as a tree with a posterior."""
    posterior = xr.Dataset(
        {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))), values)
            for name, values in variables.items()
        }
    )
    sizes = posterior.sizes
    posterior = posterior.assign_coords(chain=range(sizes["chain"]), draw=range(sizes["draw"]))
    return xr.DataTree.from_dict({"posterior": posterior})


def reference_gradients(model, points):
    """Return PyMC's own gradient at unconstrained points, one row each."""
    import pytensor

    with pytensor.config.change_flags(cxx=""):
        gradient = model.compile_dlogp(mode=python_mode())
        return np.array([gradient(point) for point in points])


def relative_error(gradient, expected):
    """Return the largest error, relative where the gradient is large."""
    return np.max(np.abs(gradient - expected) / np.maximum(1, np.abs(expected)))
