"""A search whose leaves are prepared by others, a few at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emmy.bench.records import Status
from emmy.device.base import Capabilities
from emmy.errors import CompileFailed
from emmy.ir.nest import Region
from emmy.schedule.knobs import KnobMap
from emmy.search.ahead import Prepared, prepare
from emmy.search.screening import QUEUED, Progress
from emmy.search.tuner import Tuner
from emmy.search.variant import knobs_text

Record = Callable[..., Path]
Make = Callable[..., Tuner]


class Inline:
    """Prepares in this process when asked for the result; ``deepest``: most leaves under way at once; ``regimes``: as
    submitted, ``given``: as asked for. ``first``: the place of the leaf that is done first, of so many."""

    first: Callable[[int], int] = staticmethod(lambda count: 0)

    def __init__(self, caps: Capabilities, processes: int, fails: Callable[[int], bool] = lambda _: False) -> None:
        self.caps, self.processes, self.fails = caps, processes, fails
        self.open, self.deepest, self.asked = 0, 0, 0
        self.regimes: list[str] = []
        self.given: list[str] = []

    def submit(self, region: Region, knobs: KnobMap, regime: str = "O3") -> Any:
        self.open += 1
        self.regimes.append(regime)
        self.deepest = max(self.deepest, self.open)
        return SimpleNamespace(region=region, knobs=knobs, regime=regime)

    def ready(self, tickets: Sequence[Any], deadline_s: float) -> int:
        return self.first(len(tickets))

    def result(self, ticket: Any, deadline_s: float) -> Prepared:
        self.open -= 1
        self.asked += 1
        self.given.append(ticket.regime)
        if self.fails(self.asked):
            raise CompileFailed("compilation exceeded its deadline of 60 s")
        return prepare(pickle.dumps(ticket.region), self.caps, knobs_text(ticket.knobs), None, ticket.regime)


def run(make_tuner: Make, recording: Path, region: Region, preparer: Inline | None, patience: int = 40) -> Any:
    seen: list[Progress] = []
    tuner = make_tuner(recording, patience=patience, seen=seen)
    tuner.preparer = preparer  # type: ignore[assignment]
    return tuner.tune(region, "toy.64"), seen


def test_one_at_a_time_it_is_the_same_search_and_more_find_the_same_best(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities, tmp_path: Path
) -> None:
    path = recording(region)
    wide = Inline(toy, 5)
    tuned, seen = run(make_tuner, path, region, wide)
    assert tuned.best is not None
    assert tuned.us == pytest.approx(100.0)
    assert wide.deepest == 5 + QUEUED
    assert wide.open == 0, "every leaf that was started is measured"
    assert wide.asked == len(seen)
    assert seen[-1].since_best >= 40 or len(seen) == tuned.offered


def test_leaves_are_measured_as_they_are_done(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    backwards = Inline(toy, 4)
    backwards.first = lambda count: count - 1
    tuned, seen = run(make_tuner, recording(region), region, backwards)
    assert tuned.us == pytest.approx(100.0)
    assert backwards.open == 0
    assert len({progress.label for progress in seen}) == len(seen) == backwards.asked


def test_leaves_that_do_not_compile_are_rows(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    tuned, seen = run(make_tuner, recording(region), region, Inline(toy, 3, lambda count: count % 4 == 0))
    failed = [progress for progress in seen if progress.reply.status == Status.COMPILE_FAILED]
    assert len(failed) == len(seen) // 4
    assert tuned.statuses[Status.COMPILE_FAILED] == len(failed)
    assert tuned.best is not None


def test_a_resumed_search_takes_known_rows(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    path = recording(region)
    first, _ = run(make_tuner, path, region, Inline(toy, 3), patience=12)
    second, seen = run(make_tuner, path, region, Inline(toy, 3), patience=30)
    assert second.known >= first.live
    assert second.live == len([progress for progress in seen if progress.live])


def test_a_wider_search_is_made_once_whatever_becomes_of_its_leaves(
    recording: Record, make_tuner: Make, region: Region, toy: Capabilities
) -> None:
    path = recording(region)
    run(make_tuner, path, region, Inline(toy, 3), patience=12)
    second, seen = run(make_tuner, path, region, Inline(toy, 3, lambda _: True), patience=30)
    assert len({progress.label for progress in seen}) == len(seen)
    assert second.live == len(seen)
