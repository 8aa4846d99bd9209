"""The A/B of one program: greedy, every golden, every ``--ab`` pin and PyTorch, timed interleaved in the same run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from emmy.bench.jobs import Reply, Row
from emmy.bench.records import CONFIRM, Measurement, Status
from emmy.eager import oracle_reference, torch_source
from emmy.errors import InputError
from emmy.ir.nest import region_key
from emmy.schedule.knobs import KnobMap
from emmy.search.pick import Pick, Picker
from emmy.search.pinned import Unmatched, pinned
from emmy.search.structure import program_plan
from emmy.search.variant import Variant, checked_sizes, measurement, record_knobs

if TYPE_CHECKING:
    from emmy.bench.protocol import Bench, ConfirmResult
    from emmy.goldens.entry import GoldenConfig
    from emmy.pipeline import Job, Workspace

BACKENDS = ("eager", "tcompile", "emmy")
GREEDY = "greedy"

_SHOWN = {
    Status.INVALID: Status.COMPILE_FAILED,
    Status.LAUNCH_FAILED: Status.BENCH_FAIL,
    Status.NOT_RECORDED: Status.BENCH_FAIL,
}
"""What the contract's statuses call an end that only a search tells apart."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row of the comparison before it is timed. origin: ``greedy``, ``golden``, ``ab``.

    wanted: the knobs asked for, as given. picks: one a region of the program; empty where the pin is not realisable.
    golden: the recorded entry behind a golden row.
    """

    label: str
    origin: str
    wanted: KnobMap
    picks: tuple[Pick, ...] = ()
    unmatched: str = ""
    golden: GoldenConfig | None = None

    @property
    def lane(self) -> str:
        lanes = [pick.variant.lane for pick in self.picks] or [self.wanted.lane]
        return "fm" if "fm" in lanes else "std"

    @property
    def record(self) -> dict[str, Any]:
        """Every family stamped; of a program of several kernels, one map a kernel under the kernel's name."""
        if not self.picks:
            return {}
        if len(self.picks) == 1:
            return record_knobs(self.picks[0].variant.knobs)
        return {pick.variant.region.name: record_knobs(pick.variant.knobs) for pick in self.picks}

    @property
    def text(self) -> str:
        return json.dumps(self.record, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate and how it ended. Latencies in microseconds."""

    candidate: Candidate
    status: Status
    reason: str = ""
    us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    rel_error: float | None = None

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class Comparison:
    """One shape's A/B. ``result`` holds every round, by label; references by ``eager`` and ``tcompile``."""

    name: str
    kernel: str
    device: str
    protocol: str
    symbols: dict[str, int]
    greedy: Timed
    pinned: tuple[Timed, ...]
    references: dict[str, Reply] = field(default_factory=dict)
    result: ConfirmResult | None = None
    run: str = ""

    @property
    def ok(self) -> bool:
        return self.greedy.ok and all(row.ok for row in self.pinned) and all(r.ok for r in self.references.values())

    @property
    def backends(self) -> dict[str, float | None]:
        found = {label: reply.median_us if reply.ok else None for label, reply in self.references.items()}
        return {**found, "emmy": self.greedy.us}

    @property
    def vs_eager(self) -> float | None:
        """eager / emmy: above 1 emmy is the faster one."""
        eager = self.references.get("eager")
        if eager is None or not eager.ok or not eager.median_us or not self.greedy.us:
            return None
        return eager.median_us / self.greedy.us

    def best_golden(self) -> Timed | None:
        """The fastest golden of greedy's own lane in this run."""
        own = [
            r
            for r in self.pinned
            if r.ok and r.candidate.origin == "golden" and r.candidate.lane == self.greedy.candidate.lane
        ]
        return min(own, key=lambda row: row.us or 0.0, default=None)

    def to_json(self) -> dict[str, Any]:
        """The object that ``run --bench --json`` writes."""
        greedy = self.greedy.candidate
        goldens = [row.candidate.golden for row in self.pinned if row.candidate.golden is not None]
        best = min(goldens, key=lambda g: g.emmy_us, default=None)
        return {
            "name": self.name,
            "kernel": self.kernel,
            "device": self.device,
            "protocol": self.protocol,
            "dynamic": bool(self.symbols),
            "hint": dict(self.symbols) or None,
            "greedy": {
                "lane": greedy.lane,
                "knobs": _decided(greedy.record),
                "record_knobs": greedy.record,
                "source": weakest(greedy.picks),
                "us": self.greedy.us,
                "low_us": self.greedy.low_us,
                "high_us": self.greedy.high_us,
                "status": self.greedy.status.value,
                "reason": self.greedy.reason,
            },
            "pinned": [
                {
                    "label": row.candidate.label,
                    "origin": row.candidate.origin,
                    "lane": row.candidate.lane,
                    "knobs": row.candidate.wanted.to_dict(),
                    "record_knobs": row.candidate.record,
                    "us": row.us,
                    "low_us": row.low_us,
                    "high_us": row.high_us,
                    "status": row.status.value,
                    "reason": row.reason,
                }
                for row in self.pinned
            ],
            "backends": self.backends,
            "vs_eager": self.vs_eager,
            "recorded": {
                "emmy_us": best.emmy_us if best else None,
                f"{best.reference if best else 'cublas'}_us": best.reference_us if best else None,
            },
        }


def candidates(
    job: Job,
    picker: Picker,
    goldens: Sequence[GoldenConfig] = (),
    ab: Sequence[tuple[str, KnobMap]] = (),
    pin: KnobMap | None = None,
) -> list[Candidate]:
    """Greedy first (under the variables' ``pin``), then the goldens of the shape, then the ``--ab`` rows.

    Raises Refused where no tier realises a region, InputError for a pin of the variables that cannot be realised.
    """
    rows = [Candidate(GREEDY, "greedy", pin or KnobMap(), greedy_picks(job, picker, pin))]
    for golden in goldens:
        label = f"golden {golden.name} [{golden.lane}]"
        twins = sum(row.label == label or row.label.startswith(f"{label} #") for row in rows)
        rows.append(_pinned(job, picker, f"{label} #{twins + 1}" if twins else label, "golden", golden.knobs, golden))
    for text, wanted in ab:
        label = f"ab {text}"
        twins = sum(row.label == label or row.label.startswith(f"{label} #") for row in rows)
        rows.append(_pinned(job, picker, f"{label} #{twins + 1}" if twins else label, "ab", wanted))
    return rows


def greedy_picks(job: Job, picker: Picker, pin: KnobMap | None = None) -> tuple[Pick, ...]:
    """The greedy pick of each region, under the pin of the variables where it applies."""
    if not pin:
        return tuple(picker.greedy(region) for region in job.regions)
    picks, missed = [], []
    for region in job.regions:
        found = pinned(picker, region, pin)
        if isinstance(found, Unmatched):
            missed.append(found)
            found = picker.greedy(region)
        picks.append(found)
    if len(missed) == len(job.regions):
        raise InputError("EMMY_KNOBS or EMMY_<FAMILY>", found=str(missed[0]), expected="a pin that a kernel realises")
    return tuple(picks)


def _pinned(
    job: Job, picker: Picker, label: str, origin: str, wanted: KnobMap, golden: GoldenConfig | None = None
) -> Candidate:
    if wanted.raw:
        name = wanted.raw[0]
        return Candidate(label, origin, wanted, (), f"{name}={wanted[name]} is not in the knob grammar", golden)
    picks: list[Pick] = []
    missed: list[Unmatched] = []
    for region in job.regions:
        found = pinned(picker, region, wanted)
        if isinstance(found, Unmatched):
            missed.append(found)
            found = picker.greedy(region)
        picks.append(found)
    if len(missed) == len(job.regions):
        return Candidate(label, origin, wanted, (), str(missed[0]), golden)
    return Candidate(label, origin, wanted, tuple(picks), "", golden)


def compare(
    job: Job,
    work: Workspace,
    bench: Bench,
    sweep: str,
    rows: Sequence[Candidate],
    backends: Sequence[str] = ("eager", "emmy"),
    *,
    processes: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Qualifies every row in a job of its own, times the survivors with the references interleaved, records all of it.

    A failing row is a row of the result; the others go on.
    """
    from emmy.bench.protocol import PROCESSES, ROUNDS

    plans = {row.label: program_plan(job.program, [pick.variant for pick in row.picks]) for row in rows if row.picks}
    artefacts = {label: _artefact(job, label, rows, plan) for label, plan in plans.items()}
    greedy_plan = plans[GREEDY]
    refs = oracle_reference(job, greedy_plan, work.folder)
    ends: dict[str, Reply] = {}
    for row in rows:
        if row.label in artefacts:
            ends[row.label] = bench.qualify(artefacts[row.label], refs, "O3", row.lane)
        else:
            ends[row.label] = Reply(Status.PIN_UNMATCHED, row.unmatched)
    sources = [torch_source(job, compiled=name == "tcompile") for name in backends if name != "emmy"]
    timed = [Row(row.label, artefacts[row.label], row.lane, "O3") for row in rows if ends[row.label].ok]
    result = bench.confirm(timed, refs, sources, processes or PROCESSES, rounds or ROUNDS, seed=seed)
    for label, reply in result.replies.items():
        if label in ends:
            ends[label] = reply
    run = uuid.uuid4().hex[:12]
    found = [_timed(row, ends[row.label]) for row in rows]
    references = {source.label: result.replies[source.label] for source in sources}
    comparison = Comparison(
        job.name,
        ", ".join(region.name for region in job.regions),
        work.caps.name,
        CONFIRM.label,
        job.symbols,
        found[0],
        tuple(found[1:]),
        references,
        result,
        run,
    )
    record(job, work, sweep, comparison)
    return comparison


def _artefact(job: Job, label: str, rows: Sequence[Candidate], plan: Any) -> Any:
    from emmy.bench.artefact import build_artefact

    row = next(row for row in rows if row.label == label)
    if len(row.picks) == 1:
        return row.picks[0].variant.artefact
    return build_artefact(plan, row.picks[0].variant.caps.language, extra_sizes=checked_sizes(job.traced.region))


def _timed(row: Candidate, reply: Reply) -> Timed:
    status = _SHOWN.get(reply.status, reply.status)
    us = (reply.median_us, reply.low_us, reply.high_us) if reply.ok else (None, None, None)
    return Timed(row, status, "" if reply.ok else reply.error, *us, reply.rel_error)


def record(job: Job, work: Workspace, sweep: str, comparison: Comparison) -> None:
    """Stores the comparison's rounds, and the confirmed rows of a program that is one region."""
    from emmy.store import AbRow

    now = datetime.now(UTC).isoformat(timespec="seconds")
    single = job.regions[0] if len(job.regions) == 1 else None
    key = region_key(single) if single is not None else region_key(job.traced.region)
    shape = job.name if job.shape else ""
    result = comparison.result
    assert result is not None
    rows: list[Any] = []
    for timed in (comparison.greedy, *comparison.pinned):
        row = timed.candidate
        rows += [
            AbRow(
                sweep,
                comparison.run,
                work.caps.name,
                key,
                shape,
                row.label,
                row.origin,
                row.lane,
                row.text,
                CONFIRM.label,
                process,
                timed.status,
                json.dumps([s * 1e6 for s in series]),
                timed.reason,
                now,
            )
            for process, series in enumerate(result.seconds.get(row.label, ()) or ((),))
        ]
        if single is not None and timed.ok:
            rows.append(_confirmed(row.picks[0].variant, timed, result.replies[row.label], sweep, shape, now))
    for label, reply in comparison.references.items():
        rows += [
            AbRow(
                sweep,
                comparison.run,
                work.caps.name,
                key,
                shape,
                label,
                "reference",
                "std",
                "",
                CONFIRM.label,
                process,
                reply.status,
                json.dumps([s * 1e6 for s in series]),
                reply.error,
                now,
            )
            for process, series in enumerate(result.seconds.get(label, ()))
        ]
    work.store.append(*rows)


def _confirmed(variant: Variant, timed: Timed, reply: Reply, sweep: str, shape: str, now: str) -> Measurement:
    return measurement(variant, reply, protocol=CONFIRM.label, regime="O3", sweep=sweep, shape=shape, now=now)


def weakest(picks: Sequence[Pick]) -> str:
    """What decided a pick of several kernels: the least certain of their sources."""
    order = ("uninformed", "offline", "online", "pin", "evidence")
    return min((pick.source for pick in picks), key=order.index, default="evidence")


def _decided(stamped: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stamped.items() if value not in ("", False)}
