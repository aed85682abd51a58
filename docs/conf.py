"""Configuration of the documentation."""

import functools
import inspect
import os
import pydoc
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

# Notebooks run beside whatever else the machine does: one thread of linear algebra is enough.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What rich prints in a notebook fits the page.
os.environ.setdefault("JUPYTER_COLUMNS", "84")
# So do figures, on phones too. They have two pixels for each that is shown, and stay sharp.
SETTINGS = HERE / "_build" / "settings"
for name, line in {
    "matplotlibrc": "figure.figsize: 4.6, 3.4",
    "profile_default/ipython_kernel_config.py": 'c.InlineBackend.figure_formats = ["retina"]',
}.items():
    (SETTINGS / name).parent.mkdir(parents=True, exist_ok=True)
    (SETTINGS / name).write_text(line + "\n", encoding="utf-8")
os.environ["MATPLOTLIBRC"] = os.environ["IPYTHONDIR"] = str(SETTINGS)

from docutils import nodes
from make_inventories import ADDRESSES
from numpydoc.xref import DEFAULT_LINKS
from sphinx import addnodes

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
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "mathml",
]
html_math_renderer = "mathml"
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
html_theme = "furo"
html_title = f"az_cv {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_favicon = "_static/favicon.svg"
html_theme_options = {
    "source_repository": "https://github.com/az-cv/az-cv/",
    "source_branch": "main",
    "source_directory": "docs/",
}

# The whole inventory of each project; without a network, the few names that are used here.
intersphinx_mapping = {
    name: (address, (None, str(HERE / "inventories" / f"{name}.inv")))
    for name, address in ADDRESSES.items()
}
intersphinx_timeout = 5

# Types of parameters are phrases. Only names that readers may want to look up become links; the
# words that numpydoc would link by itself stand for themselves.
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {word: word for word in DEFAULT_LINKS} | {
    "Axes": "matplotlib.axes.Axes",
    "DataArray": "xarray.DataArray",
    "DataFrame": "pandas.DataFrame",
    "DataTree": "xarray.DataTree",
    "Dataset": "xarray.Dataset",
    "InferenceData": "arviz.InferenceData",
    "ControlVariateResult": "az_cv.ControlVariateResult",
    "pandas.DataFrame": ":class:`pandas.DataFrame`",
    "numpy.random.Generator": ":class:`numpy.random.Generator`",
    "pymc.Model": ":class:`pymc.Model <pymc.model.core.Model>`",
}

templates_path = ["_templates"]
autosummary_generate = True


def computed_attributes() -> dict[str, list[str]]:
    """Return the names of the public properties of each class; it describes its fields itself."""
    names = re.findall(
        r"^   ([\w.]+)$", (HERE / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    described = {f"az_cv.{name}": pydoc.locate(f"az_cv.{name}") for name in names}
    return {
        name: [
            attribute
            for attribute, value in inspect.getmembers_static(one)
            if isinstance(value, property | functools.cached_property) and attribute[0] != "_"
        ]
        for name, one in described.items()
        if inspect.isclass(one)
    }


autosummary_context = {"computed_attributes": computed_attributes()}
autodoc_typehints = "none"
numpydoc_show_class_members = False

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_timeout = 1200  # seconds for a cell; a busy machine has needed more than 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # no page shows a widget, and these would come from elsewhere
copybutton_exclude = ".linenos, .gp, .go"


# Texts in which every letter counts.
CODE = (nodes.FixedTextElement, nodes.literal, nodes.math)
# Texts that may be no more than one long name, and where such a name may break.
NAMES = (nodes.title, addnodes.desc_addname, addnodes.desc_name)
WORDS = r"(?<=[a-z0-9][._])(?<!\baz_)(?=\w)"
BREAK = nodes.raw("", "<wbr>", format="html")


def find_source(app, pagename, templatename, context, doctree) -> None:
    """Let links to the source of a page lead to where it is in the repository, if it is there."""
    if pagename.startswith("examples/"):
        context["theme_source_directory"] = ""
    elif pagename.startswith("generated/"):
        context["page_source_suffix"] = ""


def keep_whole(app, doctree, docname) -> None:
    """Let no line end within 2e-15, d = 3 or 4 × 250, within 2.3 s in a table, or within --json."""
    for entry in doctree.findall(nodes.entry):
        if re.fullmatch(r"\S{1,12}|d = \d+|\d+ × [\d,]+|[\d.,]+ \S{1,2}", entry.astext()):
            entry["classes"].append("whole")
    for literal in doctree.findall(nodes.literal):
        if re.fullmatch(r"--\S{1,18}|.{1,10}", literal.astext()):
            literal["classes"].append("whole")
    # Numbers such as 2e-15, d = 3 and 4 × 250 in longer texts; code is left as it is.
    for text in list(doctree.findall(nodes.Text)):
        pieces = re.split(r"([\d.]+e-\d+|\bd = \d+|\d+ × \d+(?:,\d{3})*)", text)
        if len(pieces) == 1 or isinstance(text.parent, CODE):
            continue
        parts = [
            nodes.inline("", piece, classes=["whole"]) if position % 2 else nodes.Text(piece)
            for position, piece in enumerate(pieces)
            if piece
        ]
        text.parent.replace(text, parts)


def break_names(app, doctree, docname) -> None:
    """Let names in titles and signatures, and long calls in sentences, break between words."""
    for node in doctree.findall(lambda n: isinstance(n, NAMES)):
        add_breaks(node, WORDS)
    for node in doctree.findall(nodes.literal):
        if max(map(len, node.astext().split()), default=0) > 24:
            add_breaks(node, r"(?<=[a-z][.(])(?=[a-z])")


def break_neighbours(app, pagename, templatename, context, doctree) -> None:
    """Let the names of the next and of the previous page break where titles do."""
    for page in filter(None, (context.get("prev"), context.get("next"))):
        if "<" not in page["title"]:
            page["title"] = re.sub(WORDS, "<wbr>", page["title"])


def add_breaks(node, places: str) -> None:
    """Allow lines to end at these places, a pattern, in the texts of a node."""
    for text in list(node.findall(nodes.Text)):
        pieces = re.split(places, text)
        parts = [part for piece in pieces for part in (BREAK.deepcopy(), nodes.Text(piece))]
        text.parent.replace(text, parts[1:])


def setup(app) -> None:
    app.connect("html-page-context", find_source)
    app.connect("html-page-context", break_neighbours)
    app.connect("doctree-resolved", keep_whole)
    app.connect("doctree-resolved", break_names)
