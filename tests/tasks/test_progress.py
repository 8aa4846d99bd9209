"""What a person sees while a sweep runs."""

from __future__ import annotations

import io

import pytest

from emmy.bench.jobs import Reply
from emmy.bench.records import Status
from emmy.search.screening import Progress
from tasks import progress
from tasks.progress import Reporter, Stopped, clock


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> Reporter:
    """A reporter that prints into memory, with a clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Reporter, "publish", lambda _: None)
    made = Reporter(out=io.StringIO(), live=False, started=now[0])
    made.now = now  # type: ignore[attr-defined]
    made.plan(2, 2)
    return made


def lines(reporter: Reporter) -> list[str]:
    assert isinstance(reporter.out, io.StringIO)
    return reporter.out.getvalue().splitlines()


def test_a_shape_has_its_place_result_and_an_estimate(reporter: Reporter) -> None:
    reporter.begin("tune", "a")
    reporter.now[0] += 30  # type: ignore[attr-defined]
    reporter.done("best 10 µs")
    reporter.begin("tune", "b")
    reporter.now[0] += 10  # type: ignore[attr-defined]
    reporter.done("best 20 µs")
    first, second = lines(reporter)
    assert first.startswith("[1/2] tune      a  best 10 µs  [0:30, about ")
    assert second.startswith("[2/2] tune      b  best 20 µs  [0:40, about ")
    assert reporter.left_s() == pytest.approx(2 * 20 * progress.WEIGHTS["ab"] / progress.WEIGHTS["tune"])


def test_attempts_are_told_now_and_then(reporter: Reporter) -> None:
    reply = Reply(Status.OK, median_us=5.0)
    reporter.line("start")
    reporter.begin("tune", "a")
    for attempt in range(1, 21):
        reporter.now[0] += 2  # type: ignore[attr-defined]
        reporter.attempt(Progress("k", attempt, 400, "", reply, True, "prior", 5.0, 0))
    told = [line for line in lines(reporter) if "variants" in line]
    assert len(told) == 2
    assert "8 of 400 variants, best 5.000 µs, 0:16" in told[0]


def test_a_best_of_the_cheap_build_says_so(reporter: Reporter) -> None:
    reply = Reply(Status.OK, median_us=5.0)
    reporter.line("start")
    reporter.begin("tune", "a")
    for regime in ("O1", "O3"):
        reporter.now[0] += 20  # type: ignore[attr-defined]
        reporter.attempt(Progress("k", 1, 400, "", reply, True, "prior", 5.0, 0, regime))
    cheap, deployed = (line for line in lines(reporter) if "variants" in line)
    assert "best 5.000 µs in O1, " in cheap
    assert "best 5.000 µs, " in deployed


def test_known_results_count_as_done(reporter: Reporter) -> None:
    reporter.known("tune", 2)
    assert lines(reporter) == ["tune      2 of 2 known from an earlier run  [0:00]"]
    reporter.known("ab", 2)
    assert reporter.percent == 100.0


def test_a_stopped_sweep_ends_at_the_next_attempt(reporter: Reporter, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter.begin("tune", "a")
    progress.stopping.set()
    try:
        with pytest.raises(Stopped, match="run it again"):
            reporter.attempt(Progress("k", 1, 2, "", Reply(Status.OK, median_us=5.0), True, "prior", 5.0, 0))
    finally:
        progress.stopping.clear()


def test_a_worker_of_prefect_prints_nothing() -> None:
    assert progress.reporter().quiet


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.9, "0:59"), (247, "4:07")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
