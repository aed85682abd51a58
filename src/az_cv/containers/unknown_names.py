"""Names, labels and groups that are asked for and are not there."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 3  # names that one message suggests


class UnknownNameError(KeyError):
    """A name that is not there.

    Its message prints as it is written, where that of a ``KeyError`` prints in quotes.

    Parameters
    ----------
    message : str
        What is asked for, and what there is.
    wanted, available : iterable
        Names that are asked for and names that are there. The message ends with those available
        that look like one that is asked for and missing.

    Examples
    --------
    >>> print(UnknownNameError("There is no 'thta'.", ["thta"], ["mu", "theta"]))
    There is no 'thta'. Did you mean 'theta'?
    """

    def __init__(
        self, message: str, wanted: Iterable[Any] = (), available: Iterable[Any] = ()
    ) -> None:
        super().__init__(message + _suggestion(wanted, available))

    def __str__(self) -> str:
        return str(self.args[0])


def _suggestion(wanted: Iterable[Any], available: Iterable[Any]) -> str:
    """Return a question with the names that look like those that are missing, or nothing."""
    names = {name.casefold(): name for name in available if isinstance(name, str)}
    known = set(names.values())
    missing = [name for name in wanted if isinstance(name, str) and name not in known]
    close = [
        names[found]
        for name in missing[:MOST]
        for found in difflib.get_close_matches(name.casefold(), names, n=1)
    ]
    return f" Did you mean {' and '.join(map(repr, dict.fromkeys(close)))}?" if close else ""
