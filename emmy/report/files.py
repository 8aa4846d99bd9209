"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from emmy.errors import FullDisk


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` beside ``path`` and rename it over it; folders are made. Raises FullDisk."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FullDisk(path) from error
        raise
    finally:
        scratch.unlink(missing_ok=True)
    return path
