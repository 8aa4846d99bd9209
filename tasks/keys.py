"""Content keys: what a task's result depends on, and nothing else.

Prefect's own input hashing drops an input that it cannot serialise, and another input's result comes back. Here every
part of a key is JSON, and what is not raises.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prefect.cache_policies import CacheKeyFnPolicy

from emmy.bench.records import digest
from emmy.config import project_root

_NOT_MEASURING = ("emmy/cli/", "emmy/report/")
"""Sources that print and render: a change there does not change a number."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """What every number of a sweep depends on besides its shape; part of each key.

    pins: the EMMY_KNOBS text and the family pins. prior: digest of the offline prior's file. rules: of the verdict.
    The group is not in it: the same shape is the same work whichever selection it came with.
    """

    sweep: str
    device: str
    driver: str
    compiler: str
    code: str
    patience: int
    o3_tol: float
    o1: bool
    fast_math: bool
    pins: str
    prior: str
    rules: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@lru_cache(maxsize=1)
def code_version() -> str:
    """Digest of the sources that make a number."""
    root, whole = project_root(), hashlib.sha256()
    for path in sorted((root / "emmy").rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix in (".py", ".sql") and not name.startswith(_NOT_MEASURING):
            whole.update(name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Digest of a file's content; empty where there is no file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def content_key(step: str, run: Mapping[str, Any], shape: str, **content: Any) -> str:
    """``<step>--<shape>--<sweep>--<digest>``, a file name. Raises TypeError for content that is not JSON."""
    whole = digest({"step": step, "run": dict(run), "shape": shape, "content": content})
    return "--".join((_plain(step), _plain(shape), _plain(str(run["sweep"])), whole))


def content_policy(
    step: str, parts: Callable[[Mapping[str, Any]], Mapping[str, Any]], without: tuple[str, ...] = ()
) -> CacheKeyFnPolicy:
    """The cache policy of a step whose task takes ``run`` and ``shape``.

    parts: what else the result depends on. without: parts of the run that it does not depend on.
    """

    def key(_: object, inputs: Mapping[str, Any]) -> str:
        run = {name: value for name, value in inputs["run"].items() if name not in without}
        return content_key(step, run, inputs["shape"], **parts(inputs))

    return CacheKeyFnPolicy(cache_key_fn=key)


def results_of(shape: str, storage: Path) -> list[Path]:
    """The result files of a shape, of every step and sweep."""
    return sorted(path for path in storage.glob(f"*--{_plain(shape)}--*--*") if path.is_file())


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "_", text)
