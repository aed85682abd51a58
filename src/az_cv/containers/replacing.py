"""Files that are whole or not there: written beside their place, then moved into it.

A trace may have taken days to sample. Whatever happens while it is written (the process is killed,
the disk is full, the power fails), the name holds the old content or the new one, never a part.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# A write that was killed leaves such a folder behind; it may be deleted once the target is there.
PREFIX = ".az_cv-unfinished-"
ASIDE = ".replaced"  # in that folder, what the target was
PATIENCE = 5.0  # seconds for threads of a failed writer to end
QUIET = 0.5  # seconds without a new file after which they have ended; a busy machine holds them up


class FileProblemError(Exception):
    """A file that cannot be used, and what to do about it."""


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a place to write to; what is there at the end becomes `target`.

    The place lies in a folder of its own beside `target`. Its content reaches the disk before it
    takes the name, in one step. If anything fails before, `target` is as it was.

    Parameters
    ----------
    target : Path
        A file or folder to be made or replaced. Links are followed.

    Yields
    ------
    Path
        Does not exist yet; its name is that of `target`.

    Raises
    ------
    FileProblemError
        If the place cannot be written to.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "table.txt") as staged:
    ...         _ = staged.write_text("new")
    ...     os.listdir(folder)
    ['table.txt']
    """
    path = resolved(target)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=path.parent))
    except OSError as error:
        raise FileProblemError(_unwritable(target, error)) from error
    try:
        staged = folder / path.name
        yield staged
        _flush_all(staged)
        if path.is_file() and staged.is_file():
            shutil.copymode(path, staged)
        _move(staged, path)
        _flush(path.parent)
    except BaseException as error:
        # What was moved aside is kept unless its name has content again.
        if path.exists() or not (folder / ASIDE).exists():
            _remove_for_good(folder)
        if isinstance(error, OSError):
            raise FileProblemError(_unwritable(target, error)) from error
        raise
    shutil.rmtree(folder, ignore_errors=True)


def require_writable(target: Path) -> None:
    """Refuse a place that cannot be written to, before anything is computed.

    Raises
    ------
    FileProblemError
    """
    path = resolved(target)
    if not path.name:
        raise FileProblemError(f"{target} names no file.")
    if not path.parent.is_dir():
        raise FileProblemError(
            f"There is no folder {path.parent} to write {path.name} to. Make it first."
        )
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileProblemError(f"{target} is neither a file nor a folder and cannot be replaced.")
    try:
        os.rmdir(tempfile.mkdtemp(prefix=PREFIX, dir=path.parent))
    except OSError as error:
        raise FileProblemError(_unwritable(target, error)) from error


def resolved(path: Path) -> Path:
    """Return an absolute path without links."""
    try:
        absolute = path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle, before 3.13
        raise FileProblemError(f"{path} cannot be followed: {error}.") from error
    if absolute.is_symlink():
        raise FileProblemError(f"{path} cannot be followed: its links lead in a circle.")
    return absolute


def _unwritable(target: Path, error: OSError) -> str:
    state = "It was left as it was." if target.exists() else "Nothing was written."
    return f"{target} cannot be written: {error.strerror or error}. {state}"


def _move(staged: Path, target: Path) -> None:
    """Give `target` the content of `staged`; what it had before ends up in the folder of that."""
    if target.is_dir() or (target.exists() and staged.is_dir()):
        if _exchange(staged, target):
            return
        # No exchange in one step here: for a moment the name is free, and both are complete.
        old = staged.with_name(ASIDE)
        try:
            target.rename(old)
            staged.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
        return
    os.replace(staged, target)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; tell whether system and disk can do that."""
    if sys.platform not in ("linux", "darwin"):
        return False
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        done = library.renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        done = library.renamex_np(os.fsencode(first), os.fsencode(second), 2)  # RENAME_SWAP
    else:
        return False
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), os.fspath(second))


def _remove_for_good(folder: Path) -> None:
    """Delete a folder. A writer that failed may have threads that still add files to it."""
    now = time.monotonic()
    give_up, last_seen = now + PATIENCE, now
    while now < min(give_up, last_seen + QUIET):
        if folder.exists():
            last_seen = now
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
        now = time.monotonic()


def _flush_all(path: Path) -> None:
    """Wait until a file, or a folder with all it holds, is on the disk."""
    if path.is_dir():
        for child in path.iterdir():
            _flush_all(child)
    _flush(path)


def _flush(path: Path) -> None:
    try:
        # Windows flushes what is open for writing, and opens no folders.
        descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except PermissionError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
