"""The A/B of one shape: greedy pick, every recorded golden of its lane and the PyTorch reference, interleaved.

The greedy pick is a row like any other: it is pinned, so that all rows are built and timed in the same way. One golden
stands in the comparison twice; what lies between the two is the noise floor of this session.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from emmy.bench.jobs import ReferenceSet, Reply, Row, TorchSource
from emmy.bench.protocol import ConfirmResult
from emmy.bench.records import CONFIRM, Status
from emmy.bench.stats import DEFAULT, BadSamples, Comparison, Thresholds, noise_floor, pool, wants_look
from emmy.errors import EmmyError, Refused
from emmy.evaluate.verdict import GoldenRow, Look, Pick, look_of
from emmy.ir.nest import Region, region_key
from emmy.search.pinned import Unmatched, pinned
from emmy.search.variant import Variant, record_knobs

if TYPE_CHECKING:
    from emmy.goldens.entry import GoldenConfig
    from emmy.schedule.knobs import KnobMap
    from emmy.search.pick import Picker
    from emmy.search.tuner import Bencher
    from emmy.store.store import Store

GREEDY = "greedy"
EAGER = "eager"
AGAIN = "again"
"""Label of the golden's second row, from which the noise floor comes."""

ROUNDS = 5
QUICK_PROCESSES = 2
"""Processes where there is no golden to compare with: two numbers are recorded, no verdict follows from them."""


@dataclass(frozen=True, slots=True)
class Benched:
    """One row of an A/B as it ended. Latencies in microseconds: median and quartiles over all processes and rounds.

    origin: ``greedy``, ``golden``, ``ab`` or ``reference``. knobs: the realised record, every family stamped.
    recorded_us, recorded_reference_us: what a golden's file says.
    """

    label: str
    origin: str
    lane: str
    knobs: Mapping[str, Any]
    status: Status
    reason: str = ""
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    recorded_us: float | None = None
    recorded_reference_us: float | None = None

    @property
    def ok(self) -> bool:
        return self.status == Status.OK

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Benched:
        return cls(**dict(data) | {"status": Status(data["status"])})


@dataclass(frozen=True, slots=True)
class AbResult:
    """One A/B of one shape and lane.

    region: its key. kernel: readable name. hint: ``seq_len=512`` where the shape is symbolic. source: what decided the
    greedy pick. look: all looks pooled. floor: the noise floor as a share, None where no golden could be timed twice.
    looks: times it was measured. wall_s: seconds it took. lost: processes that died.
    """

    shape: str
    region: str
    kernel: str
    device: str
    sweep: str
    run: str
    hint: str
    source: str
    about: str
    greedy: Benched
    pinned: tuple[Benched, ...]
    references: tuple[Benched, ...]
    look: Look
    floor: float | None = None
    looks: int = 1
    processes: int = 0
    wall_s: float = 0.0
    lost: tuple[str, ...] = ()
    protocol: str = CONFIRM.label

    @property
    def lane(self) -> str:
        return self.greedy.lane

    @property
    def eager_us(self) -> float | None:
        return self.look.reference_us

    @property
    def vs_eager(self) -> float | None:
        """eager / emmy: above 1 emmy is the faster one."""
        if self.greedy.us is None or self.eager_us is None:
            return None
        return self.eager_us / self.greedy.us

    @property
    def failed(self) -> bool:
        """Whether a row of it did not end well."""
        return not all(row.ok for row in (self.greedy, *self.pinned, *self.references))

    @property
    def pick(self) -> Pick:
        """The greedy row as ``categorise`` takes it."""
        return Pick(self.greedy.lane, self.greedy.knobs, self.greedy.status, self.greedy.reason)

    @property
    def goldens(self) -> tuple[GoldenRow, ...]:
        """The golden rows as ``categorise`` takes them."""
        return tuple(
            GoldenRow(
                r.label, r.lane, r.knobs, r.recorded_us or 0.0, r.recorded_reference_us or 0.0, r.status, r.reason
            )
            for r in self.pinned
            if r.origin == "golden"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``from_json`` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AbResult:
        look = data["look"]
        ratios = {label: Comparison(**ratio) for label, ratio in look["ratios"].items()}
        values = dict(data) | {
            "greedy": Benched.from_json(data["greedy"]),
            "pinned": tuple(Benched.from_json(row) for row in data["pinned"]),
            "references": tuple(Benched.from_json(row) for row in data["references"]),
            "look": Look(look["greedy_us"], look["golden_us"], ratios, look["reference_us"]),
            "lost": tuple(data["lost"]),
        }
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row to bench: a variant, or (``variant`` None) why there is none."""

    label: str
    origin: str
    lane: str
    knobs: Mapping[str, Any]
    variant: Variant | None
    reason: str = ""
    recorded_us: float | None = None
    recorded_reference_us: float | None = None

    def benched(self, reply: Reply) -> Benched:
        return Benched(
            self.label, self.origin, self.lane, self.knobs, reply.status, reply.error, reply.median_us, reply.low_us,
            reply.high_us, self.recorded_us, self.recorded_reference_us,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compared: a region under a shape's name, its data, and the PyTorch programs to time beside it."""

    shape: str
    region: Region
    refs: ReferenceSet
    sources: tuple[TorchSource, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class Comparer:
    """Runs A/Bs on one device into one sweep. store: where the rounds are recorded (None: nowhere)."""

    bench: Bencher
    picker: Picker
    sweep: str
    store: Store | None = None
    thresholds: Thresholds = field(default_factory=lambda: DEFAULT)
    rounds: int = ROUNDS

    def ab(
        self, subject: Subject, goldens: Sequence[GoldenConfig] = (), lane: str = "std",
        pins: Sequence[tuple[str, KnobMap]] = (), *, run: str = "ab", looks: int | None = None,
    ) -> AbResult:  # fmt: skip
        """The greedy pick of ``lane`` against the goldens of that lane, and any other pins.

        run: names the A/B in the store (``ab``, ``reconfirm 1``). looks: at most so many (default: the thresholds').
        """
        started = perf_counter()
        # A golden of the other lane never competes, except that a first fm entry has to beat the standard ones.
        own = [entry for entry in goldens if entry.lane == lane]
        rivals = own or (list(goldens) if lane == "fm" else [])
        greedy, source, about = self._greedy(subject.region, lane)
        rows = [greedy]
        rows += [self._golden(subject.region, number, entry) for number, entry in enumerate(rivals, start=1)]
        rows += [self._pin(subject.region, label, pin) for label, pin in pins]
        timed, taken = self._measured(subject, rows, self.thresholds.looks if looks is None else looks)
        result = self._result(subject, rows, timed, source, about, run)
        result = replace(result, looks=taken, wall_s=perf_counter() - started)
        if self.store is not None:
            self.store.append(*_ab_rows(result, timed))
        return result

    # ---------------------------------------------------------------------------------------------------- candidates

    def _greedy(self, region: Region, lane: str) -> tuple[Candidate, str, str]:
        picker = replace(self.picker, fast_math=lane == "fm")
        try:
            pick = picker.greedy(region)
        except EmmyError as error:
            return Candidate(GREEDY, GREEDY, lane, {}, None, str(error)), "offline", ""
        record = record_knobs(pick.variant.knobs)
        return Candidate(GREEDY, GREEDY, pick.variant.lane, record, pick.variant), pick.source, pick.about

    def _golden(self, region: Region, number: int, entry: GoldenConfig) -> Candidate:
        found = self._pin(region, f"golden {number}", entry.knobs)
        return replace(
            found, origin="golden", lane=entry.lane, recorded_us=entry.emmy_us, recorded_reference_us=entry.reference_us
        )

    def _pin(self, region: Region, label: str, pin: KnobMap) -> Candidate:
        wanted = pin.record(pin.steps) if not pin.raw else pin.to_dict()
        try:
            found = pinned(self.picker, region, pin)
        except Refused as refused:
            return Candidate(label, "ab", pin.lane, wanted, None, str(refused))
        if isinstance(found, Unmatched):
            return Candidate(label, "ab", pin.lane, wanted, None, str(found))
        return Candidate(label, "ab", found.variant.lane, record_knobs(found.variant.knobs), found.variant)

    # ----------------------------------------------------------------------------------------------------- measuring

    def _measured(self, subject: Subject, rows: Sequence[Candidate], looks: int) -> tuple[ConfirmResult, int]:
        """All looks pooled, and their number."""
        jobs = [Row(row.label, row.variant.artefact, row.lane, "O3") for row in rows if row.variant is not None]
        goldens = [row for row in rows if row.origin == "golden" and row.variant is not None]
        if goldens and goldens[0].variant is not None and self._twin(rows, goldens) is None:
            jobs.append(Row(AGAIN, goldens[0].variant.artefact, goldens[0].lane, "O3"))
        processes = self.thresholds.min_processes if len(jobs) > 1 else QUICK_PROCESSES
        timed, taken = None, 0
        while True:
            result = self.bench.confirm(
                jobs, subject.refs, subject.sources, processes=processes, rounds=self.rounds, seed=taken
            )
            timed, taken = result if timed is None else _pooled(timed, result), taken + 1
            if taken >= looks or not self._unresolved(timed, taken, goldens):
                return timed, taken

    def _twin(self, rows: Sequence[Candidate], goldens: Sequence[Candidate]) -> str | None:
        """The first golden's label when greedy is the same kernel: the pair then shows the floor by itself."""
        greedy = rows[0].variant
        if not goldens or greedy is None or goldens[0].variant is None:
            return None
        return goldens[0].label if goldens[0].variant.digest == greedy.digest else None

    def _unresolved(self, timed: ConfirmResult, taken: int, goldens: Sequence[Candidate]) -> bool:
        """Whether the comparison with the fastest golden wants another look."""
        look = look_of(timed, GREEDY, [golden.label for golden in goldens], EAGER, self.thresholds)
        if not look.ratios:
            return False
        best = min(look.ratios, key=lambda label: look.golden_us[label])
        return wants_look(look.ratios[best], taken, self.thresholds)

    def _result(
        self, subject: Subject, rows: Sequence[Candidate], timed: ConfirmResult, source: str, about: str, run: str
    ) -> AbResult:
        goldens = [row for row in rows if row.origin == "golden"]
        benched = [row.benched(timed.replies.get(row.label) or _unbuilt(row)) for row in rows]
        references = tuple(
            Candidate(one.label, "reference", "std", {}, None).benched(timed.replies[one.label])
            for one in subject.sources
        )
        timed_goldens = [row for row in goldens if row.variant is not None]
        again = self._twin(rows, timed_goldens)
        floor = None
        if timed_goldens:
            first = timed_goldens[0].label
            floor = _floor(timed, first, GREEDY if again is not None else AGAIN, self.thresholds)
        look = look_of(timed, GREEDY, [row.label for row in goldens], EAGER, self.thresholds)
        return AbResult(
            subject.shape, region_key(subject.region), subject.region.name, self.picker.caps.name, self.sweep, run,
            subject.hint, source, about, benched[0], tuple(benched[1:]), references, look, floor,
            processes=len(timed.seconds.get(GREEDY, ())), lost=timed.lost,
        )  # fmt: skip


def _unbuilt(row: Candidate) -> Reply:
    return Reply(Status.INVALID if row.origin == GREEDY else Status.PIN_UNMATCHED, row.reason)


def _floor(timed: ConfirmResult, once: str, again: str, thresholds: Thresholds) -> float | None:
    try:
        return noise_floor(timed.seconds.get(once, ()), timed.seconds.get(again, ()), thresholds)
    except BadSamples:
        return None


def _pooled(before: ConfirmResult, result: ConfirmResult) -> ConfirmResult:
    """Two looks as one: rounds by process, medians over all of them. A row that failed in either has failed."""
    from emmy.bench.timing import quartiles

    seconds = {
        label: tuple(tuple(rounds) for rounds in pool(before.seconds.get(label, ()), series))
        for label, series in result.seconds.items()
    }
    replies = {}
    for label, reply in result.replies.items():
        bad = next((one for one in (before.replies[label], reply) if not one.ok), None)
        values = [value * 1e6 for process in seconds[label] for value in process]
        if bad is not None or not values:
            replies[label] = bad or reply
        else:
            low, median, high = quartiles(values)
            replies[label] = replace(reply, median_us=median, low_us=low, high_us=high, samples=len(values))
    return ConfirmResult(seconds, replies, before.lost + result.lost, before.wall_s + result.wall_s)


def _ab_rows(result: AbResult, timed: ConfirmResult) -> list[Any]:
    """The rounds, and how every row ended, as rows of the store."""
    from emmy.store.rows import AbRow

    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = []
    for one in (result.greedy, *result.pinned, *result.references):
        for process, series in enumerate(timed.seconds.get(one.label, ()) or ((),)):
            rows.append(
                AbRow(
                    result.sweep, result.run, result.device, result.region, result.shape, one.label, one.origin,
                    one.lane,
                    json.dumps(dict(one.knobs), separators=(",", ":")), result.protocol, process, one.status,
                    json.dumps([round(value * 1e6, 4) for value in series]), one.reason, now,
                )
            )  # fmt: skip
    return rows
