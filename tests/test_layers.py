"""Which room may know which: imports point downwards, in no circle, and arrays know no labels."""

import ast
import graphlib
from pathlib import Path

import pytest

import az_cv

SOURCE = Path(az_cv.__file__).parent
# From the bottom to the top. A file may import from its own room and from rooms below.
ROOMS = [
    "version",
    "notices",
    "threads",
    "lapack",
    "families",
    "solvers",
    "engine",
    "containers",
    "sources",
    "testing",
    "datasets",
    "display",
    "labelled",
    "calls",
    "plots",
    "__init__",
    "cli",  # a user of the package like any other
    "__main__",
]
CALLS = (
    "summary",
    "fit",
    "covariance",
    "draws_needed",
    "log_mean_exp",
    "log_evidence",
    "bayes_factor",
    "temperature_ladder",
    "thermodynamic",
    "check_scores",
    "diagnostics",
    "structure",
    "quick",
    "stein_weights",
)
ARRAYS = ("threads", "lapack", "families", "solvers", "engine")
LABELS = ("xarray", "arviz", "arviz_base")


def modules():
    """Return every module with its syntax tree."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("az_cv", *path.relative_to(SOURCE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(tree):
    """Return (module, line, whether for type checkers alone) of every import, wherever it is."""
    typing = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typing
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno, id(node) in typing


def room(module):
    if module == "az_cv":
        return "__init__"
    name = module.split(".")[1]
    return "calls" if name in CALLS else name


def upward(tree, module):
    """Return the arrows of a module that point upwards."""
    own = ROOMS.index(room(module))
    return [
        f"{module}:{line} imports {target}: {room(module)} lies below {room(target)}"
        for target, line, _ in imports(tree)
        if target.partition(".")[0] == "az_cv" and ROOMS.index(room(target)) > own
    ]


def test_every_file_is_in_a_room():
    assert {room(name) for name in modules()} == set(ROOMS) | {"data"}


def test_no_import_points_upwards():
    wrong = [arrow for name, tree in modules().items() if room(name) != "data"
             for arrow in upward(tree, name)]  # fmt: skip
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("az_cv.engine.gaps", "from az_cv.labelled.result import ControlVariateResult"),
        ("az_cv.families.kernel", "def f():\n    import az_cv.engine.engine"),
        ("az_cv.summary", "import az_cv"),
        ("az_cv.sources.schema", "if TYPE_CHECKING:\n    from az_cv.fit import fit"),
    ],
)
def test_an_arrow_that_points_upwards_is_found(module, line):
    assert len(upward(ast.parse(line), module)) == 1


def test_there_is_no_circle():
    known = modules()
    graph = {
        name: {target for target, _, typing in imports(tree) if target in known and not typing}
        for name, tree in known.items()
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises with the circle


def test_arrays_know_nothing_of_labels():
    for name, tree in modules().items():
        for target, line, _ in imports(tree):
            if room(name) in ARRAYS:
                assert target.partition(".")[0] not in LABELS, f"{name}:{line} imports {target}"


def test_files_have_one_subject():
    lengths = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in SOURCE.rglob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > 350} == {}


def test_functions_have_few_arguments():
    """Public calls take the settings one by one; everything else takes them as one object."""
    many = []
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and room(name) not in ("calls", "plots"):
                arguments = node.args
                count = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs)
                if count > 12:
                    many.append(f"{name}.{node.name} has {count} arguments")
    assert not many, many
