"""Every block of Python in the README, the texts beside it and the documentation runs, in order."""

import ast
import doctest
import functools
import importlib.util
import inspect
import os
import re
import runpy
import shutil
import sys
import warnings
import zlib
from pathlib import Path

import pytest

import az_cv

ROOT = Path(__file__).parents[1]
# Pages of the documentation that only include a text of the root hold no blocks of their own.
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# Blocks that are shown, and cells that are executed when the documentation is built.
BLOCK = re.compile(
    r"^```(?:python|\{code-cell\} python)\n(?:(?::[^\n]*\n)+\n)?(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
NEEDS = ("pymc", "numpyro", "cmdstanpy", "bridgestan", "matplotlib", "arviz")


SAMPLED = ("README.md", "precision.md")  # with blocks that run every front end's sampler


def blocks(document):
    """Return the blocks of a document with the line on which each begins."""
    text = document.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in BLOCK.finditer(text)]


def executed(document):
    """Tell whether the build of the documentation executes a page, and fails with it."""
    return "file_format: mystnb" in document.read_text(encoding="utf-8")


def stan_files(folder):
    """Put a compiled Stan model and its data where the documents expect those of the reader."""
    import cmdstanpy
    import numpy as np

    prophet = Path(importlib.util.find_spec("prophet").origin).parent / "stan_model"
    (folder / "model").symlink_to(prophet / "prophet_model.bin")
    shutil.copy(prophet / "prophet.stan", folder / "model.stan")
    t = np.linspace(0, 1, 60)
    data = {
        "T": 60,
        "K": 1,
        "S": 1,
        "t": t,
        "cap": np.zeros(60),
        "y": 1 + t + 0.1 * np.random.default_rng(0).normal(size=60),
        "t_change": np.array([0.5]),
        "X": np.sin(6 * t)[:, None],
        "sigmas": np.ones(1),
        "tau": 0.5,
        "trend_indicator": 0,
        "s_a": np.ones(1),
        "s_m": np.zeros(1),
    }
    cmdstanpy.write_stan_json(folder / "data.json", data)


def draw_a_quarter(monkeypatch, code):
    """Let samplers draw a quarter of what they are asked for, or of the thousand of a default."""
    samplers = {
        "pymc": lambda module: (module, "sample", "draws"),
        "numpyro": lambda module: (module.infer.MCMC, "__init__", "num_samples"),
        "cmdstanpy": lambda module: (module.CmdStanModel, "sample", "iter_sampling"),
    }
    for name, where in samplers.items():
        if re.search(rf"^import {name}\b", code, re.MULTILINE):
            owner, method, argument = where(importlib.import_module(name))
            monkeypatch.setattr(owner, method, quartered(getattr(owner, method), argument))


def quartered(function, argument):
    """Return the function with a quarter of what an argument of it says."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.arguments[argument] = given.arguments.get(argument, 1000) // 4
        return function(*given.args, **given.kwargs)

    return call


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            document,
            id=document.relative_to(ROOT).as_posix(),
            marks=[pytest.mark.long] if document.name in SAMPLED else [],
        )
        for document in DOCUMENTS
        if blocks(document) and not executed(document)
    ],
)
def test_blocks_run(document, tmp_path, monkeypatch):
    code = "\n".join(block for _, block in blocks(document))
    for name in NEEDS:
        if re.search(rf"^\s*(import|from) {name}", code, re.MULTILINE):
            if importlib.util.find_spec(name) is None and os.environ.get("AZ_CV_REQUIRE_ALL_DEPS"):
                pytest.fail(f"needs {name}")
            pytest.importorskip(name)
    if "cmdstanpy" in code:
        stan_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    # A quarter of the draws everywhere: whether a block runs does not depend on their number.
    load = az_cv.load_eight_schools
    monkeypatch.setattr(az_cv, "load_eight_schools", lambda: load().isel(draw=slice(None, 250)))
    namespace = {"__name__": "document"}
    with warnings.catch_warnings():
        # Samplers warn about short runs; the numbers here are for show.
        warnings.simplefilter("default")
        draw_a_quarter(monkeypatch, code)
        for line, block in blocks(document):
            # Blank lines in front, so that tracebacks name the line of the document.
            exec(compile("\n" * line + block, str(document), "exec"), namespace)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def test_the_documents_hold_code():
    assert sum(len(blocks(document)) for document in DOCUMENTS) >= 10


def test_every_block_is_in_one_document():
    found = [block for document in DOCUMENTS for block in {text for _, text in blocks(document)}]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", ["CHANGELOG.md", "CONTRIBUTING.md"])
def test_texts_of_the_root_are_pages_of_the_documentation(name):
    page = (ROOT / "docs" / name.lower()).read_text(encoding="utf-8")
    assert page == f"```{{include}} ../{name}\n```\n"


def test_blocks_fit_the_page():
    for document in DOCUMENTS:
        for line, block in blocks(document):
            long = [
                number
                for number, text in enumerate(block.splitlines(), line + 1)
                if len(text) > 100
            ]
            assert not long, f"{document.name}, lines {long}"


TOP = [name for name in az_cv.__all__ if not name.startswith("__")]
MODULES = [name for name in TOP if inspect.ismodule(getattr(az_cv, name))]


@pytest.mark.parametrize("name", sorted(set(TOP) - set(MODULES)))
def test_public_names_are_documented_with_an_example(name):
    text = inspect.getdoc(getattr(az_cv, name)) or ""
    assert "Examples\n" in text
    assert "See Also\n" in text
    listed = re.findall(r"^   (\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert name in listed


LISTED = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)


def of_the_reference(name):
    room, _, last = f"az_cv.{name}".rpartition(".")
    return getattr(importlib.import_module(room), last)


def test_every_name_of_the_reference_says_what_to_see_also():
    assert len(LISTED) > 70
    for name in LISTED:
        assert "See Also\n" in (inspect.getdoc(of_the_reference(name)) or ""), name


def used_unbound(statements):
    """Return the names that statements, one after the other, use before they are bound."""
    bound, unbound = set(), set()
    for statement in statements:
        nodes = list(ast.walk(ast.parse(statement)))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        unbound |= {node.id for node in nodes if isinstance(node, ast.Name)} - bound
    return unbound


@pytest.mark.parametrize(
    ("text", "unbound"),
    [
        (">>> Kernel(nu=3.5).nu\n", {"Kernel"}),
        (">>> from az_cv import Kernel\n>>> Kernel(nu=3.5).nu\n", set()),
        (">>> import az_cv\n>>> found = az_cv.Kernel(nu=3.5)\n>>> found.nu\n", set()),
        (">>> x = Kernel()\n>>> from az_cv import Kernel\n", {"Kernel"}),
        (">>> import az_cv.families as f\n>>> az_cv.families, f\n", {"az_cv"}),
        (">>> import az_cv.families\n>>> [k + 1 for k in (lambda y: y)(az_cv)]\n", set()),
        (">>> def half(x):\n...     return x / 2\n>>> half(data)\n", {"data"}),
    ],
)
def test_names_that_are_used_unbound_are_found(text, unbound):
    examples = doctest.DocTestParser().get_examples(text)
    assert used_unbound(example.source for example in examples) == unbound


def test_examples_of_the_reference_can_be_pasted():
    """What a module has is no name yet where its example is pasted."""
    wrong = {}
    for name in LISTED:
        documented = of_the_reference(name)
        known = {"az_cv", *vars(sys.modules[documented.__module__])} - {"__builtins__"}
        for example in doctest.DocTestFinder().find(documented, name):
            if found := used_unbound(one.source for one in example.examples) & known:
                wrong[example.name] = sorted(found)
    assert not wrong, wrong


@pytest.mark.parametrize("module", MODULES)
def test_names_of_public_modules_are_documented(module):
    room = getattr(az_cv, module)
    for name in set(room.__all__) - set(az_cv.__all__):
        assert inspect.getdoc(getattr(room, name)), name


def test_every_notebook_has_a_card_with_a_picture():
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    notebooks = sorted(path.stem for path in (ROOT / "examples").glob("*.ipynb"))
    assert sorted(re.findall(r'href="examples/(\w+)\.html"', page)) == notebooks
    for name in notebooks:
        assert f"_static/notebook_{name}.png" in page


def test_inventories_are_those_that_the_script_writes():
    script = runpy.run_path(str(ROOT / "docs" / "make_inventories.py"))
    assert set(script["NAMES"]) == set(script["ADDRESSES"])
    for project in script["NAMES"]:
        stored = (ROOT / "docs" / "inventories" / f"{project}.inv").read_bytes()
        # What zlib makes of a text may differ from version to version.
        stored, made = (
            zlib.decompress(content.split(b"zlib.\n", 1)[1])
            for content in (stored, script["inventory"](project))
        )
        assert stored == made
