"""Files that appear whole or not at all, and whether a place can be written, asked before the work it is meant for."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from emmy.errors import FullDisk, InputError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` beside ``path`` and rename it over it; folders are made. Raises FullDisk.

    A device or pipe is written to and never replaced; of a link, the file it leads to is.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return path
    target = path.resolve()
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(target)
    except OSError as error:
        if error.errno in _FULL:
            raise FullDisk(path) from error
        raise
    finally:
        scratch.unlink(missing_ok=True)
    return path


def check_file(option: str, path: Path) -> None:
    """Raises InputError naming the option where ``path`` could not be written: a folder, or in one that cannot be."""
    if path.is_dir():
        why = "a folder of that name"
    elif not path.parent.is_dir():
        why = f"no folder {path.parent}"
    elif path.exists() and not path.is_file():
        why = "" if os.access(path, os.W_OK) else "a device that cannot be written"
    else:
        why = obstacle(path.resolve().parent)
    if why:
        raise InputError(option, found=f"{path}: {why}", expected="a file in a folder that can be written")


def check_folder(option: str, path: Path) -> None:
    """Raises InputError naming the option where files could not be written into ``path``, which need not exist yet."""
    why = obstacle(path)
    if why:
        raise InputError(option, found=f"{path}: {why}", expected="a folder that can be written")


def obstacle(folder: Path) -> str:
    """Why no file can be made in ``folder``, which need not exist yet; empty where one can. Raises FullDisk.

    A nameless file is made in the nearest folder that exists: what the mode says does not bind everyone, and a file
    system may refuse whatever the mode.
    """
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        return f"{nearest} is no folder"
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return ""
    except OSError as error:
        if error.errno in _FULL:
            raise FullDisk(nearest) from error
        return f"no file can be made in {nearest} ({error.strerror})"
