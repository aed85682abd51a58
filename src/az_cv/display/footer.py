"""What stands under a table, in sentences."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 100
SHARE = re.compile(r"(?P<label>.+?) (?P<share>\d+%)(?:, |$)")
LEAVE_OUT = re.compile(r"leave-(?P<count>one|\d+)-out")


def footer(attrs: Mapping[Any, Any]) -> list[str]:
    """Return the lines to show under a table.

    Parameters
    ----------
    attrs : mapping
        As :func:`az_cv.summary` writes them into ``table.attrs``.

    Examples
    --------
    >>> family = "polynomial order 1 3%, imq kernel 97%"
    >>> footer({"family": family, "folds": "leave-40-out", "draws": "4 x 1000"})
    ['Control variates: 97% imq kernel, 3% polynomial of order 1. Errors are judged on draws left \
out of each fit, 40 at a time. 4 x 1000 draws.']
    """
    said = []
    if "family" in attrs:
        said.append(f"Control variates: {shares(str(attrs['family']))}.")
    if "folds" in attrs:
        said.append(f"Errors are judged on draws left out of each fit{_out(str(attrs['folds']))}.")
    if "weights" in attrs:
        text = str(attrs["weights"])
        said.append(f"{text[0].upper()}{text[1:]}.")
    if "global" in attrs:
        said.append(f"Global parameters: {attrs['global']}.")
    if "left_out" in attrs:
        said.append(f"There was no time for: {attrs['left_out']}.")
    if "stream" in attrs:
        said.append(f"Read in pieces: {attrs['stream']}.")
    if "uncorrected" in attrs:
        text = str(attrs["uncorrected"])
        said.append(f"{text[0].upper()}{text[1:]}.")
    said += _run(attrs)
    lines = [" ".join(said)] if said else []
    if attrs.get("provenance"):
        text = str(attrs["provenance"])
        lines.append(f"{text[0].upper()}{text[1:]}.")
    return lines


def text_footer(attrs: Mapping[Any, Any]) -> list[str]:
    """Return the footer and the warnings as lines of a terminal."""
    said = [*footer(attrs), *(f"Warning: {message}" for message in attrs.get("warnings", ()))]
    return [line for text in said for line in textwrap.wrap(text, WIDTH, break_long_words=False)]


def shares(family: str) -> str:
    """Return the control variates with the share of each in front, the largest first.

    Examples
    --------
    >>> shares("polynomial order 2 + imq kernel 55%, hierarchical kernel 45%")
    '55% polynomial of order 2 + imq kernel, 45% hierarchical kernel'
    >>> shares("imq kernel 100%"), shares("plain Monte Carlo")
    ('imq kernel', 'plain Monte Carlo')
    """
    family = family.replace("polynomial order", "polynomial of order")
    found = [(int(m["share"][:-1]), m["label"]) for m in SHARE.finditer(family)]
    if len(found) < 2:
        return found[0][1] if found and found[0][0] == 100 else family
    return ", ".join(
        f"{share}% {label}" for share, label in sorted(found, key=lambda pair: -pair[0])
    )


def _out(folds: str) -> str:
    """Return how many draws are left out at a time, as the end of a sentence."""
    found = LEAVE_OUT.fullmatch(folds)
    return f", {found['count']} at a time" if found else f" ({folds})"


def _run(attrs: Mapping[Any, Any]) -> list[str]:
    """Return the number of draws, and the seconds it took, as one sentence."""
    if "draws" not in attrs and "seconds" not in attrs:
        return []
    parts = [f"{attrs['draws']} draws"] if "draws" in attrs else []
    parts += [f"{attrs['seconds']} s"] if "seconds" in attrs else []
    return [", ".join(parts) + "."]
