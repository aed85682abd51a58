"""What argparse does not read by itself: files behind options, and signs in front of functions."""

from __future__ import annotations

import argparse
from pathlib import Path


def read_arguments(parser: argparse.ArgumentParser, given: list[str]) -> argparse.Namespace:
    """Return the options of a command; misspelt ones end the process with a message.

    Parameters
    ----------
    parser : ArgumentParser
    given : list of str
        Files may stand anywhere among the options.
    """
    options, further = parser.parse_known_args(_with_signs(given))
    _take_further_files(parser, options, further)
    if getattr(options, "files", None) == []:
        _take_files_from_names(parser, options)
    return options


def _with_signs(arguments: list[str]) -> list[str]:
    """Return arguments in which ``--fn -mu`` is a function, and no option called ``-mu``."""
    result: list[str] = []
    for argument in arguments:
        if result and result[-1] == "--fn" and argument.startswith("-"):
            result[-1] = f"--fn={argument}"
        else:
            result.append(argument)
    return result


def _take_further_files(
    parser: argparse.ArgumentParser, options: argparse.Namespace, further: list[str]
) -> None:
    """Take the second file of ``a.csv --json b.csv``: argparse reads one stretch of files only."""
    files = getattr(options, "files", None)
    unknown = further if files is None else [text for text in further if text.startswith("-")]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if files is not None:
        files.extend(further)


def _take_files_from_names(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Take the files from the end of ``--var-names mu trace.nc``: the option swallows what follows.

    Names are files where such files exist; without any, the command ends with a message.
    """
    names = getattr(options, "var_names", None) or []
    first = len(names)
    while first > 1 and Path(names[first - 1]).exists():
        first -= 1
    if first == len(names):
        hint = ""
        if names:
            hint = f". No file is among the --var-names {names}: write FILE before --var-names"
        parser.error(f"{options.command} needs a FILE{hint}")
    options.var_names, options.files = names[:first], names[first:]
