"""Finished subjects in a file: one JSON object a line, a line each for the device and its ceilings."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.h200_report import Result
from benchmarks.needs import text_of
from emmy.device.base import Capabilities
from emmy.errors import InputError

EXPECTED = "results of benchmarks.h200 (h200.jsonl), a JSON object a line"


@dataclass(frozen=True, slots=True)
class Line:
    """What one line of the file holds; ceilings are a dict."""

    sweep: str
    held: Result | Capabilities | dict[str, Any]


def read(path: Path) -> list[Line]:
    """The lines of a file of results. Raises InputError naming the first that is none."""
    return [_line(text, f"{path}:{n}") for n, text in enumerate(text_of(path, EXPECTED).splitlines(), start=1)]


def _line(text: str, where: str) -> Line:
    try:
        data = json.loads(text)
    except json.JSONDecodeError:
        raise InputError(
            where, found="a line that is cut off or no JSON", expected=EXPECTED,
            hint="delete the line if a run was killed while it wrote it",
        ) from None  # fmt: skip
    try:
        sweep = str(data.pop("sweep"))
        if "ceilings" in data:
            return Line(sweep, dict(data["ceilings"]))
        return Line(sweep, Capabilities.from_dict(data["device"]) if "device" in data else Result(**data))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(where, found="a line of something else", expected=EXPECTED) from None


class Results:
    """Finished subjects of a sweep, those of ``lines`` and what is added, which is written to ``path``.

    sweep: its id; None: all sweeps, of which a subject's last line counts.
    """

    def __init__(self, path: Path, lines: Sequence[Line], sweep: str | None = None) -> None:
        self.path, self.sweep = path, sweep or ""
        self.sweeps = list(dict.fromkeys(line.sweep for line in lines if sweep in (None, line.sweep)))
        self.rows: dict[str, Result] = {}
        self.ceilings: dict[str, Any] = {}
        self.device: Capabilities | None = None
        for held in (line.held for line in lines if line.sweep in self.sweeps):
            if isinstance(held, Result):
                self.rows[held.name] = held
            elif isinstance(held, Capabilities):
                self.device = held
            else:
                self.ceilings = held

    def add(self, result: Result) -> None:
        self.rows[result.name] = result
        self._write(asdict(result))

    def set_device(self, device: Capabilities) -> None:
        if device != self.device:
            self.device = device
            self._write({"device": device.to_dict()})

    def set_ceilings(self, ceilings: dict[str, Any]) -> None:
        self.ceilings = ceilings
        self._write({"ceilings": ceilings})

    def _write(self, data: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"sweep": self.sweep, **data}) + "\n")
            file.flush()
            os.fsync(file.fileno())


def results_of(path: Path) -> Results:
    """A file that ``--from`` or ``--retime`` names. Raises InputError for one that holds no result."""
    results = Results(path, read(path))
    if not results.rows:
        raise InputError(f"{path}", found="no result in it", expected=EXPECTED)
    return results
