"""What a sweep's tasks have yielded so far, and what follows from it: who is doubted, what is reported."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from prefect.futures import PrefectFuture

from emmy.bench.stats import Comparison, Verdict
from emmy.errors import DeviceLost, EmmyError, FullDisk
from emmy.evaluate.ab import AbResult
from emmy.evaluate.verdict import Category
from emmy.report.evidence import Evidence, gather
from emmy.report.golden import Outcome, Sweep, tally
from flows.plan import Lane, Plan, dims_of, warnings
from tasks.categorise import judged
from tasks.session import Session

Key = TypeVar("Key", bound=Hashable)


def settle(futures: Iterable[PrefectFuture[Any]], keys: Sequence[Key], failed: dict[Any, str]) -> dict[Key, Any]:
    """The results by key; a task that failed leaves its reason in ``failed`` and the others go on.

    Raises DeviceLost and FullDisk: they are nobody's own, and the run resumes once their cause is gone.
    """
    found: dict[Key, Any] = {}
    for key, future in zip(keys, futures, strict=True):
        try:
            found[key] = future.result()
        except (DeviceLost, FullDisk):
            raise
        except Exception as error:
            failed[key] = f"{error}" if isinstance(error, EmmyError) else f"{type(error).__name__}: {error}"
    return found


class Incomplete(EmmyError):
    """Some shapes failed; the others are complete and reported. result: what the flow would have returned."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


@dataclass
class Results:
    """Results by lane. failed: reasons by shape or lane."""

    plan: Plan
    session: Session
    tuned: dict[str, dict[str, Any]] = field(default_factory=dict)
    first: dict[Lane, dict[str, Any]] = field(default_factory=dict)
    again: dict[Lane, list[dict[str, Any]]] = field(default_factory=dict)
    verdicts: dict[Lane, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Any, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.plan.folder(self.session.sweep)

    def tell_known(self, step: str, results: Mapping[Any, Any]) -> None:
        """Tells how many results of a step an earlier run had."""
        shapes = [key.shape if isinstance(key, Lane) else key for key in results]
        self.session.reporter.known(step, sum((step, shape) not in self.session.executed for shape in shapes))

    def inputs(self, lanes: Sequence[Lane]) -> dict[str, Any]:
        """What every task of a lane takes, a column each."""
        return {
            "shape": [lane.shape for lane in lanes],
            "lane": [lane.lane for lane in lanes],
            "goldens": [self.plan.goldens(lane.shape) for lane in lanes],
        }

    def searches(self, lanes: Sequence[Lane]) -> list[dict[str, Any]]:
        return [self.tuned[lane.shape] for lane in lanes]

    def firsts(self, lanes: Sequence[Lane]) -> list[dict[str, Any]]:
        return [self.first[lane] for lane in lanes]

    def repeats(self, lanes: Sequence[Lane]) -> list[list[dict[str, Any]]]:
        return [self.again.get(lane, []) for lane in lanes]

    def repeat(self, results: dict[Lane, dict[str, Any]]) -> None:
        for lane, result in results.items():
            self.again.setdefault(lane, []).append(result)

    def doubted(self, number: int) -> list[Lane]:
        """The lanes that look like a win and lack their reconfirming run ``number``."""
        thresholds = self.plan.thresholds
        return [
            lane
            for lane, first in self.first.items()
            if len(self.again.get(lane, ())) == number - 1
            and judged(first, self.again.get(lane, ()), thresholds).wants_reconfirm > 0
        ]

    def operations(self) -> list[dict[str, Any]]:
        return [operation for verdict in self.verdicts.values() for operation in verdict["operations"]]

    def category(self, lane: Lane) -> Category | None:
        data = self.verdicts.get(lane)
        if data is None:
            return None
        one = data["category"]
        ratio = Comparison(**one["ratio"]) if one["ratio"] else None
        return Category(
            one["shape"], one["lane"], Verdict(one["verdict"]), tuple(one["reasons"]), (), one["against"], ratio
        )

    def outcomes(self) -> list[Outcome]:
        """Every line of the plan, failed ones too."""
        return [self._outcome(lane) for lane in self.plan.lanes]

    def _outcome(self, lane: Lane) -> Outcome:
        error = self.failed.get(lane) or self.failed.get(lane.shape) or ""
        result = AbResult.from_json(self.first[lane]) if lane in self.first else None
        category = self.category(lane)
        evidence = None
        if result is not None and category is not None and category.verdict == Verdict.WORSE:
            evidence, error = self._evidence(lane, result, category)
        kinds = tuple(one["op"] for one in self.verdicts[lane]["operations"]) if lane in self.verdicts else ()
        again = tuple(AbResult.from_json(one) for one in self.again.get(lane, ()))
        return Outcome(
            lane.shape, dims_of(lane.shape), lane.lane, self.tuned.get(lane.shape, {}), result, again, category, kinds,
            evidence, error,
        )  # fmt: skip

    def _evidence(self, lane: Lane, result: AbResult, category: Category) -> tuple[Evidence | None, str]:
        try:
            region = self.session.job(lane.shape).regions[0]
            return gather(self.plan.work, region, self.session.sweep, result, category), ""
        except EmmyError as error:
            return None, str(error)

    def head(self, patch: dict[str, Any]) -> Sweep:
        work, now = self.plan.work, datetime.now(UTC)
        return Sweep(
            self.session.sweep, f"{now:%Y-%m-%d %H:%M} UTC", work.caps.name, work.caps.driver, work.caps.units,
            self.plan.command, (now - self.plan.started).total_seconds(), work.settings.patience,
            f"{work.prior.name}: {work.prior.about}", "cublas" if work.caps.language == "cuda" else "eager",
            self.steps(),
            tuple(text.removeprefix("warning: ") for text in warnings(self.plan)), self._shown(patch["diff"]),
        )  # fmt: skip

    def steps(self) -> tuple[tuple[str, float, int], ...]:
        """(step, seconds, runs), as each was measured; a cached one with the seconds of the run that measured it."""
        again = [one for runs in self.again.values() for one in runs]
        return (
            ("tune", sum(one["seconds"] for one in self.tuned.values()), len(self.tuned)),
            (
                "A/B",
                sum(one["wall_s"] for one in self.first.values()),
                sum(one["looks"] for one in self.first.values()),
            ),
            ("reconfirm", sum(one["wall_s"] for one in again), len(again)),
        )

    def close(self, patch: dict[str, Any], written: dict[str, str]) -> dict[str, Any]:
        """What the flow returns. failed: reasons by shape."""
        outcomes = self.outcomes()
        rows_failed = [str(lane) for lane, one in self.first.items() if AbResult.from_json(one).failed]
        return {
            "sweep": self.session.sweep,
            "device": self.plan.work.caps.name,
            "outcomes": [one.line for one in outcomes],
            "tally": tally(outcomes),
            "report": self._shown(written["report"]),
            "patch": self._shown(patch["diff"]),
            "proposal": self._shown(patch["json"]),
            "changes": patch["count"],
            "failed": {str(key): reason for key, reason in self.failed.items()},
            "rows_failed": rows_failed,
        }

    def _shown(self, path: str) -> str:
        """Relative to the current folder where it lies below it."""
        try:
            return str(Path(path).relative_to(Path.cwd()))
        except ValueError:
            return path
