"""How far a sweep is: lines that a person follows, and a progress artefact for the UI."""

from __future__ import annotations

import logging
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import PrefectException

from emmy.errors import BenchClosed, EmmyError
from emmy.evaluate.table import number
from emmy.search.screening import Progress

KEY = "golden-sweep-progress"

WEIGHTS = {"tune": 3.0, "ab": 1.0}
"""Share of a shape's time before a step of that kind was timed; corrected by what is measured."""


def clock(seconds: float) -> str:
    """``4:07``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Stopped(EmmyError):
    """A person asked the sweep to stop; what was measured is kept."""


stopping = threading.Event()
"""Set by the command when it is interrupted: the running task ends after its current measurement."""

console: list[Reporter] = []
"""The reporter of a command at a terminal; a flow run by a Prefect worker has none and prints nothing."""


def reporter() -> Reporter:
    """Where this process's tasks tell how far they are."""
    return console[-1] if console else Reporter(quiet=True)


@dataclass
class Reporter:
    """Prints ``[3/10] tune quick.reduce …`` lines. live: overwrite a line while an attempt runs (a terminal)."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    live: bool = field(default_factory=lambda: sys.stderr.isatty())
    started: float = field(default_factory=time.monotonic)
    quiet: bool = False
    _total: dict[str, int] = field(default_factory=dict)
    _left: dict[str, int] = field(default_factory=dict)
    _spent: dict[str, list[float]] = field(default_factory=dict)
    _step: str = ""
    _shape: str = ""
    _place: int = 0
    _begun: float = 0.0
    _spoke: float = 0.0
    _open: bool = False
    _artifact: Any = None

    def plan(self, shapes: int, lanes: int) -> None:
        """What is ahead: shapes to tune, and lines of the outcome table to compare."""
        self._total = {"tune": shapes, "ab": lanes}
        self._left = dict(self._total)

    def known(self, step: str, count: int) -> None:
        """``count`` results of a step came from an earlier run."""
        self._left[step] = 0
        if count:
            self.line(f"{step:<9} {count} of {self._total[step]} known from an earlier run  [{self.elapsed()}]")

    def line(self, text: str) -> None:
        """A line that stays."""
        if self.quiet:
            return
        if self._open:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._open = False
        print(text, file=self.out, flush=True)
        self._spoke = time.monotonic()

    def begin(self, step: str, shape: str) -> None:
        """A shape's step begins. Raises Stopped."""
        self._check()
        self._step, self._shape, self._begun = step, shape, time.monotonic()
        self._place = self._total.get(step, 0) - self._left.get(step, 0) + 1
        self._say(f"{self.head()} …")

    def attempt(self, progress: Progress) -> None:
        """What the search of the current shape tried last. Raises Stopped."""
        self._check()
        regime = f" in {progress.regime}" if progress.regime != "O3" else ""
        best = f"best {number(progress.best_us)} µs{regime}" if progress.best_us is not None else "no result yet"
        count = f"{progress.attempt} of {progress.offered} variants" if progress.offered else "a cut"
        text = f"{self.head()}  {count}, {best}, {clock(time.monotonic() - self._begun)}  [{self.elapsed()}]"
        if not self.live and time.monotonic() - self._spoke > 15:
            self.line(text)
        self._say(text)

    def done(self, text: str) -> None:
        """The current shape's step has ended."""
        if self._step in self._left:
            self._left[self._step] = max(0, self._left[self._step] - 1)
        self._spent.setdefault(self._step, []).append(time.monotonic() - self._begun)
        self.line(f"{self.head()}  {text}  [{self.elapsed()}]")
        self.publish()

    def failed(self, error: BaseException) -> None:
        """The current shape's step ended with an error."""
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        self.done("stopped" if isinstance(error, Stopped | BenchClosed) else f"failed: {text}")

    def head(self) -> str:
        """``[ 3/10] tune      quick.reduce.1024x4096``; without a place for a step whose number is not known ahead."""
        total = self._total.get(self._step)
        place = f"[{self._place:>{len(str(total))}}/{total}] " if total else ""
        return f"{place}{self._step:<9} {self._shape}"

    def elapsed(self) -> str:
        """``1:40, about 2:10 left``."""
        left = self.left_s()
        spent = clock(time.monotonic() - self.started)
        return spent if left is None else f"{spent}, about {clock(left)} left"

    def left_s(self) -> float | None:
        """Seconds that are left, from the mean of the steps so far; None before there is one."""
        timed = {step: sum(times) / len(times) for step, times in self._spent.items() if times and step in WEIGHTS}
        if not timed:
            return None
        unit = sum(timed.values()) / sum(WEIGHTS[step] for step in timed)
        return sum(count * timed.get(step, unit * WEIGHTS[step]) for step, count in self._left.items())

    @property
    def percent(self) -> float:
        whole = sum(WEIGHTS[step] * count for step, count in self._total.items())
        ahead = sum(WEIGHTS[step] * count for step, count in self._left.items())
        return 100.0 if not whole else round(100.0 * (1 - ahead / whole), 1)

    def publish(self) -> None:
        """Updates the progress artefact. The sweep goes on without it where the server does not answer."""
        text = f"{self._step} {self._shape}, {self.elapsed()}"
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(self.percent, key=KEY, description=text)
            else:
                update_progress_artifact(self._artifact, self.percent, description=text)
        except (httpx.HTTPError, PrefectException) as error:
            logging.getLogger(__name__).warning("no progress artefact: %s", error)

    def _check(self) -> None:
        if stopping.is_set():
            raise Stopped("stopped", hint="run it again to go on")

    def _say(self, text: str) -> None:
        if self.live and not self.quiet:
            print("\r\x1b[K" + text[:150], end="", file=sys.stderr, flush=True)
            self._open = True
