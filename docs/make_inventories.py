"""Write the inventories that links to other projects fall back to without a network.

    python docs/make_inventories.py

A build with a network reads the whole inventory of each project instead. Each line below is a name
that our pages and docstrings link to, with its place in the documentation of its project.
"""

import zlib
from pathlib import Path

HERE = Path(__file__).parent
ADDRESSES = {
    "arviz": "https://python.arviz.org/en/stable/",
    "jax": "https://docs.jax.dev/en/latest/",
    "matplotlib": "https://matplotlib.org/stable/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "pymc": "https://www.pymc.io/projects/docs/en/stable/",
    "xarray": "https://docs.xarray.dev/en/stable/",
}
NAMES = {
    "arviz": {
        "arviz.InferenceData": ("class", "api/generated/arviz.InferenceData.html"),
        "arviz.ess": ("function", "api/generated/arviz.ess.html"),
        "arviz.rhat": ("function", "api/generated/arviz.rhat.html"),
        "arviz.summary": ("function", "api/generated/arviz.summary.html"),
    },
    "jax": {
        "jax.grad": ("function", "_autosummary/jax.grad.html"),
    },
    "matplotlib": {
        "matplotlib.axes.Axes": ("class", "api/_as_gen/matplotlib.axes.Axes.html"),
    },
    "numpy": {
        "numpy.ndarray": ("class", "reference/generated/numpy.ndarray.html"),
        "numpy.random.Generator": ("class", "reference/random/generator.html"),
    },
    "pandas": {
        "pandas.DataFrame": ("class", "reference/api/pandas.DataFrame.html"),
    },
    "pymc": {
        "pymc.model.core.Model": ("class", "api/model/generated/pymc.model.core.Model.html"),
        "pymc.sample": ("function", "api/generated/pymc.sample.html"),
    },
    "xarray": {
        "xarray.DataArray": ("class", "generated/xarray.DataArray.html"),
        "xarray.DataTree": ("class", "generated/xarray.DataTree.html"),
        "xarray.Dataset": ("class", "generated/xarray.Dataset.html"),
    },
}


def inventory(project: str) -> bytes:
    """Return the inventory of one project, in the second version of the format."""
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n"
        "# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    lines = [f"{name} py:{kind} 1 {place}#$ -\n" for name, (kind, place) in NAMES[project].items()]
    return head.encode() + zlib.compress("".join(lines).encode())


def main() -> None:
    for project in NAMES:
        (HERE / "inventories" / f"{project}.inv").write_bytes(inventory(project))


if __name__ == "__main__":
    main()
