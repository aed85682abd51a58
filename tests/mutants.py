"""Do the tests notice? One small change at a time to the array layer, and the tests run on each.

    python tests/mutants.py [--number 150] [--seed 0] [--modules delta_method gaps]

A mutant is the package with one operator, comparison, constant or choice of `min` and `max`
changed. A sample of all mutants is drawn with a seed. The tests that belong to the module run on
each until one fails: then the mutant is killed. Those that survive are
listed, to be explained: either the change makes no difference, or a test is missing.

Every mutant is a process of its own, which starts with all other libraries loaded (needs ``fork``).
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/az_cv")
FAMILIES = (
    "tests/families/test_operators.py",
    "tests/families/test_coordinates.py",
    "tests/families/test_features.py",
)
SYSTEMS = ("tests/solvers/test_leave_out.py", "tests/solvers/test_judging.py")
TESTS = {
    "families/polynomial.py": FAMILIES,
    "families/radial.py": FAMILIES,
    "families/inner_product.py": FAMILIES,
    "families/operators.py": FAMILIES,
    "families/anova.py": ("tests/families/test_anova.py", *FAMILIES),
    "engine/whitening.py": ("tests/engine/test_whitening.py",),
    "engine/quantiles.py": ("tests/engine/test_quantiles.py", "tests/test_beyond_the_mean.py"),
    "engine/errors.py": ("tests/engine/test_combination.py", "tests/engine/test_witnesses.py"),
    "engine/gaps.py": ("tests/engine/test_gaps.py",),
    "engine/delta_method.py": ("tests/engine/test_combination.py", "tests/test_beyond_the_mean.py"),
    "engine/effective_size.py": ("tests/engine/test_effective_size.py",),
    "solvers/linear/dual_system.py": SYSTEMS,
    "solvers/linear/primal_system.py": SYSTEMS,
    "solvers/linear/linear_fit.py": (*SYSTEMS, "tests/solvers/test_extremes.py"),
    "solvers/linear/inverse.py": SYSTEMS,
}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
TIMES = 1.5  # by which a number with a point changes


@dataclass(frozen=True)
class Mutant:
    """One change to a module: the n-th of those that are possible."""

    module: str
    number: int
    line: int
    what: str
    source: str


class Mutator(ast.NodeTransformer):
    """Count what can be changed, and change the one with the number that is asked for."""

    def __init__(self, chosen: int | None = None) -> None:
        self.chosen, self.count = chosen, 0
        self.found: list[tuple[int, str]] = []

    def _is_next(self, line: int, what: str) -> bool:
        self.found.append((line, what))
        self.count += 1
        return self.count - 1 == self.chosen

    def _swap(self, operator: ast.AST, line: int) -> ast.AST:
        other = SWAPS.get(type(operator))
        if other is None:
            return operator
        what = f"{type(operator).__name__} to {other.__name__}"
        return other() if self._is_next(line, what) else operator

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.op = self._swap(node.op, node.lineno)
        return node

    visit_BoolOp = visit_AugAssign = visit_BinOp

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        node.ops = [self._swap(operator, node.lineno) for operator in node.ops]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        is_taken = self._is_next(node.lineno, f"{type(node.op).__name__} dropped")
        return node.operand if is_taken else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        value = node.value
        if isinstance(value, bool):
            other: object = not value
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, float):
            other = value * TIMES or TIMES
        else:
            return node
        is_taken = self._is_next(node.lineno, f"{value} to {other}")
        return ast.copy_location(ast.Constant(other), node) if is_taken else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in NAMES and self._is_next(node.lineno, f"{node.attr} to {NAMES[node.attr]}"):
            node.attr = NAMES[node.attr]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in NAMES and self._is_next(node.lineno, f"{node.id} to {NAMES[node.id]}"):
            return ast.copy_location(ast.Name(NAMES[node.id], node.ctx), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(statement) for statement in node.body]
        node.args.defaults = [self.visit(default) for default in node.args.defaults]
        return node  # annotations and decorators stay

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node  # what a message says

    def visit_If(self, node: ast.If) -> ast.AST:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return node if is_for_types else self.generic_visit(node)


def mutants_of(module: str) -> list[Mutant]:
    """Return every mutant of a module."""
    source = (ROOT / PACKAGE / module).read_text()
    everything = Mutator()
    everything.visit(ast.parse(source))
    made = []
    for number, (line, what) in enumerate(everything.found):
        tree = Mutator(number).visit(ast.parse(source))
        changed = ast.unparse(ast.fix_missing_locations(tree))
        made.append(Mutant(module, number, line, what, changed))
    return made


def is_killed(mutant: Mutant, copy: Path, limit: int) -> str | None:
    """Run the tests on a mutant, and return how it died, or None if it did not."""
    target = copy / PACKAGE / mutant.module
    original = target.read_text()
    target.write_text(mutant.source)
    try:
        child = os.fork()
        if not child:
            run_tests(mutant.module, copy, limit)  # does not return
        _, status = os.waitpid(child, 0)
    finally:
        target.write_text(original)
    if os.WIFSIGNALED(status):
        return "time" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "crash"
    return "test" if os.waitstatus_to_exitcode(status) else None


def run_tests(module: str, copy: Path, limit: int) -> None:
    """Run the tests of a module in this process, and end it: status 0 if they pass."""
    import resource

    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 10))
    log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(copy)
    sys.path.insert(0, str(copy / "src"))
    files = [str(PACKAGE / module), *TESTS[module]]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not long and not pymc and not stan"]
    status = 1
    try:
        status = int(pytest.main([*options, *files]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def load_libraries() -> None:
    """Import once what every child needs, all but the package itself."""
    import arviz_stats  # noqa: F401
    import jax  # noqa: F401
    import optax  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import xarray  # noqa: F401


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, help="processor seconds for each")
    parser.add_argument("--modules", nargs="+", default=[Path(name).stem for name in TESTS])
    options = parser.parse_args()
    chosen = [module for module in TESTS if Path(module).stem in options.modules]
    everyone = [mutant for module in chosen for mutant in mutants_of(module)]
    sample = random.Random(options.seed).sample(everyone, min(options.number, len(everyone)))
    survivors, began = [], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        # What the tests compile is the same for all mutants.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(copy / "compiled")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        load_libraries()
        for part in ("src", "tests", "pyproject.toml", "README.md", "examples"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part)
            else:
                shutil.copy(source, copy / part)
        for k, mutant in enumerate(sample):
            death = is_killed(mutant, copy, options.limit)
            line = f"{mutant.module}:{mutant.line} {mutant.what}"
            print(f"{k + 1} {'killed by ' + death if death else 'SURVIVED'} {line}", flush=True)
            if death is None:
                survivors.append(line)
    print(f"{len(sample) - len(survivors)} of {len(sample)} killed; {len(everyone)} are possible,")
    print(f"{time.perf_counter() - began:.0f} s. Survivors:", *sorted(survivors), sep="\n")


if __name__ == "__main__":
    main()
