"""Machines with a CUDA GPU, or with something wrong about it, for processes that a test starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

STUB = Path(__file__).parent / "stub"


def pretend(monkeypatch: pytest.MonkeyPatch, folder: Path, **config: Any) -> Path:
    """Child processes find the stub CuPy instead of the real one. ``config``: as in its docstring.

    Returns the folder where the files ``lost`` and ``sick`` make the GPU fail.
    """
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STUB), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
    monkeypatch.setenv("STUB_CUPY", json.dumps({"folder": str(folder), **config}))
    return folder
