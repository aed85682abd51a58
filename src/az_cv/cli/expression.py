"""Expressions in the posterior's variables, for the command line.

The grammar is a small part of Python's: names of variables, numbers, arithmetic, comparisons,
``and``, ``or``, ``not``, indexing by label, and the functions listed here. The text is parsed and
the tree is walked; nothing of it is ever executed as Python.
"""

from __future__ import annotations

import ast
import operator
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special
import xarray as xr

from az_cv.containers.idata import SAMPLE_DIMS

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_LENGTH = 1000
MAX_DEPTH = 100

BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.Mod: operator.mod,
}
COMPARISON: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "cos": np.cos,
    "exp": np.exp,
    "expit": scipy.special.expit,
    "log": np.log,
    "log1p": np.log1p,
    "logit": scipy.special.logit,
    "normal_cdf": scipy.special.ndtr,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
PAIRWISE: dict[str, Callable[..., Any]] = {"maximum": np.maximum, "minimum": np.minimum}
REDUCTIONS = ("all", "any", "max", "mean", "min", "prod", "sum")


class ExpressionError(ValueError):
    """An expression that is not in the grammar, or does not fit the posterior."""


def parse_expression(text: str) -> Callable[[xr.Dataset], xr.DataArray]:
    """Return the function of the posterior that an expression stands for.

    ``theta["Choate"]`` or ``theta[Choate]`` picks an element by its label, as the rows of a summary
    are named; ``max(theta)`` reduces over all dimensions but chain and draw, ``max(theta, school)``
    over one. Comparisons give probabilities, and count as 0 and 1 in sums. A name that is no
    Python identifier is quoted: ``"pair:1" > 0``, ``"lambda" / 2``.

    Parameters
    ----------
    text : str

    Returns
    -------
    callable
        From the posterior ``Dataset`` to a ``DataArray``.

    Raises
    ------
    ExpressionError
        With the part of the text that is not understood.

    See Also
    --------
    az_cv.summary : Takes what it returns as ``fn``.

    Examples
    --------
    >>> import az_cv
    >>> from az_cv.cli.expression import parse_expression
    >>> posterior = az_cv.load_eight_schools()["posterior"].to_dataset()
    >>> best = parse_expression("theta[Choate] == max(theta)")(posterior)
    >>> best.dims, best.dtype.kind
    (('chain', 'draw'), 'b')
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"The expression has {len(text)} characters; at most {MAX_LENGTH} are read."
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it cannot be parsed"
        raise ExpressionError(
            f"{text!r} is not an expression: {reason}. Names that are no plain words are quoted, "
            'such as "lambda" or "pair:1".'
        ) from None

    try:
        deep = _depth(tree) > MAX_DEPTH
    except RecursionError:
        deep = True
    if deep:
        raise ExpressionError(f"{text[:50]!r}... is nested too deeply.")

    def evaluate(posterior: xr.Dataset) -> xr.DataArray:
        # Overflow and invalid arguments show as inf and nan, which the summary reports.
        with np.errstate(all="ignore"):
            value = _Walker(text.strip(), posterior).value(tree)
        if not isinstance(value, xr.DataArray):
            raise ExpressionError(
                f"{text!r} uses no variable of the posterior. Available: {_names(posterior)}."
            )
        return value

    evaluate.__name__ = text
    return evaluate


def _depth(node: ast.AST) -> int:
    return 1 + max((_depth(child) for child in ast.iter_child_nodes(node)), default=0)


class _Walker:
    """Evaluates the nodes of the grammar on a posterior and refuses all others."""

    def __init__(self, text: str, posterior: xr.Dataset) -> None:
        self.text = text
        self.posterior = posterior

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool()):
                raise self._refuse(node, "numbers are written in digits")
            case ast.Constant(value=int() | float()):
                return self._number(node, node.value)
            case ast.Name(id=name) | ast.Constant(value=str() as name):
                return self._variable(node, name)
            case ast.BinOp() if type(node.op) in BINARY:
                return BINARY[type(node.op)](self._numeric(node.left), self._numeric(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return -self._numeric(node.operand)
            case ast.UnaryOp(op=ast.UAdd()):
                return self._numeric(node.operand)
            case ast.UnaryOp(op=ast.Not()):
                return self._truth(node.operand) == False  # noqa: E712  elementwise
            case ast.BoolOp():
                combine = operator.and_ if isinstance(node.op, ast.And) else operator.or_
                result = self._truth(node.values[0])
                for part in node.values[1:]:
                    result = combine(result, self._truth(part))
                return result
            case ast.Compare():
                return self._comparison(node)
            case ast.Subscript():
                return self._element(node)
            case ast.Call():
                return self._call(node)
            case _:
                raise self._refuse(node, "it is not part of the grammar")

    def _number(self, node: ast.expr, value: Any) -> np.float64:
        try:
            return np.float64(value)
        except OverflowError:
            raise self._refuse(node, "the number is too large") from None

    def _numeric(self, node: ast.expr) -> Any:
        """Return a value with comparisons as 0 and 1: NumPy takes their sum for `or`."""
        value = self.value(node)
        return value * np.float64(1) if _is_boolean(value) else value

    def _variable(self, node: ast.expr, name: str) -> xr.DataArray:
        found = _entry(name, list(self.posterior.data_vars))
        if found is None:
            raise self._refuse(
                node, f"there is no such variable. Available: {_names(self.posterior)}"
            )
        return self.posterior[found]

    def _truth(self, node: ast.expr) -> Any:
        value = self.value(node)
        if not _is_boolean(value):
            raise self._refuse(node, "and, or, not take comparisons such as tau > 1")
        return value

    def _comparison(self, node: ast.Compare) -> Any:
        values = [self.value(part) for part in (node.left, *node.comparators)]
        result: Any = True
        for comparison, left, right in zip(node.ops, values, values[1:]):
            if type(comparison) not in COMPARISON:
                raise self._refuse(node, "comparisons are < <= > >= == !=")
            result = result & COMPARISON[type(comparison)](left, right)
        return result

    def _element(self, node: ast.Subscript) -> xr.DataArray:
        value = self.value(node.value)
        if not isinstance(value, xr.DataArray):
            raise self._refuse(node, "only variables have elements")
        dims = [str(dim) for dim in value.dims if dim not in SAMPLE_DIMS]
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) > len(dims):
            raise self._refuse(node, f"it has {len(dims)} dimensions besides chain and draw")
        for dim, part in zip(dims, parts):
            index = value.get_index(dim)
            label = _entry(self._label(part), list(index))
            if label is None:
                label = self._label(part)
                known = ", ".join(str(entry) for entry in index[:10])
                more = ", ..." if len(index) > 10 else ""
                raise self._refuse(
                    node, f"{dim!r} has no label {label!r}. Its labels: {known}{more}"
                )
            places = np.flatnonzero(index == label)
            if len(places) > 1:
                raise self._refuse(node, f"{dim!r} has the label {label!r} {len(places)} times")
            value = value.isel({dim: int(places[0])}, drop=True)
        return value

    def _label(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float()):
                return node.value
            case ast.Name():
                return node.id
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case _:
                raise self._refuse(node, "elements are picked by one label for each dimension")

    def _call(self, node: ast.Call) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in _functions() or node.keywords:
            raise self._refuse(node, f"the functions are {', '.join(_functions())}")
        if name in REDUCTIONS:
            return self._reduce(name, node)
        wanted = 1 if name in ELEMENTWISE else 2
        if len(node.args) != wanted:
            raise self._refuse(node, f"{name} takes {wanted} arguments, not {len(node.args)}")
        arguments = [self._numeric(argument) for argument in node.args]
        return xr.apply_ufunc((ELEMENTWISE | PAIRWISE)[name], *arguments)

    def _reduce(self, name: str, node: ast.Call) -> Any:
        if not node.args:
            raise self._refuse(node, f"{name} takes a variable, and dimensions if not all")
        value = self.value(node.args[0])
        if not isinstance(value, xr.DataArray):
            raise self._refuse(node, f"{name} takes a variable")
        if name in ("all", "any") and not _is_boolean(value):
            raise self._refuse(node, f"{name} takes a comparison such as {name}(theta > 0)")
        dims = [str(dim) for dim in value.dims if dim not in SAMPLE_DIMS]
        chosen = [str(self._label(argument)) for argument in node.args[1:]] or dims
        missing = [dim for dim in chosen if dim not in dims]
        if missing:
            raise self._refuse(node, f"its dimensions are {dims}, without {missing}")
        if name not in ("all", "any") and _is_boolean(value):
            value = value.astype(float)
        return getattr(value, name)(chosen)

    def _refuse(self, node: ast.expr, reason: str) -> ExpressionError:
        part = ast.get_source_segment(self.text, node) or self.text
        where = "" if part == self.text else f" in {self.text!r}"
        return ExpressionError(f"{part!r}{where}: {reason}.")


def _entry(name: Any, entries: list[Any]) -> Any:
    """Return the entry that a name stands for: Python reads µ, the sign, as μ, the letter."""
    if name in entries:
        return name
    if not isinstance(name, str):
        return None
    alike = [e for e in entries if isinstance(e, str) and unicodedata.normalize("NFKC", e) == name]
    return alike[0] if len(alike) == 1 else None


def _is_boolean(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", np.dtype(float)).kind == "b"


def _functions() -> list[str]:
    return sorted([*ELEMENTWISE, *PAIRWISE, *REDUCTIONS])


def _names(posterior: xr.Dataset) -> str:
    return ", ".join(str(name) for name in posterior.data_vars)
