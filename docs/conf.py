"""Configuration of the documentation."""

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

# Notebooks run beside whatever else the machine does: one thread of linear algebra is enough.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import az_cv

# Sphinx reads from one folder; the notebooks live where users look for them.
shutil.rmtree(HERE / "examples", ignore_errors=True)
(HERE / "examples").mkdir()
for notebook in sorted((HERE.parent / "examples").glob("*.ipynb")):
    shutil.copy(notebook, HERE / "examples")

project = "az_cv"
author = "The az_cv developers"
copyright = "2026, the az_cv developers"
version = release = az_cv.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = f"az_cv {release}"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "source_repository": "https://github.com/az-cv/az-cv/",
    "source_branch": "main",
    "source_directory": "docs/",
}

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 1200  # seconds for a cell; a busy machine has needed more than 300
nb_execution_raise_on_error = True
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"
