"""The A/B of one golden shape as a verdict needs it: looks pooled until the interval decides, and a noise floor.

The greedy pick is a pinned row like any other. One golden stands in the comparison twice; how far it seems to be from
itself is the noise floor of this session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from emmy.bench.protocol import ROUNDS, ConfirmResult
from emmy.bench.records import CONFIRM, Status
from emmy.bench.stats import DEFAULT, BadSamples, Comparison, Thresholds, noise_floor, pool, wants_look
from emmy.comparison import GREEDY, Candidate, Timed, candidates, compare, weakest
from emmy.evaluate.verdict import GoldenRow, Look, Pick, look_of
from emmy.ir.nest import region_key
from emmy.schedule.knobs import KnobMap
from emmy.search.variant import size_text

if TYPE_CHECKING:
    from emmy.bench.protocol import Bench
    from emmy.goldens.entry import GoldenConfig
    from emmy.pipeline import Job, Workspace

EAGER = "eager"
AGAIN = "golden again"
"""Label of the golden's second row, from which the noise floor comes."""

QUICK_PROCESSES = 2
"""Processes where there is no golden to compare with: two numbers are recorded, no verdict follows from them."""


@dataclass(frozen=True, slots=True)
class Benched:
    """One row of an A/B as it ended. Latencies in microseconds: median and quartiles over all processes and rounds.

    origin: ``greedy``, ``golden`` or ``reference``. knobs: the realised record, every family stamped.
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
    def of(cls, row: Timed) -> Benched:
        entry, candidate = row.candidate.golden, row.candidate
        knobs = candidate.record or candidate.wanted.to_dict()
        recorded = (entry.emmy_us, entry.reference_us) if entry is not None else (None, None)
        return cls(
            candidate.label, candidate.origin, entry.lane if entry is not None else candidate.lane, knobs, row.status,
            row.reason, row.us, row.low_us, row.high_us, *recorded,
        )  # fmt: skip

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
    hint: str
    source: str
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


def rivals(goldens: Sequence[GoldenConfig], lane: str) -> list[GoldenConfig]:
    """The goldens that a pick of ``lane`` is compared with: those of its lane.

    A first fast-math entry has to beat the standard ones, so a fast-math pick without goldens meets those.
    """
    own = [entry for entry in goldens if entry.lane == lane]
    return own or (list(goldens) if lane == "fm" else [])


def ab_shape(
    job: Job, work: Workspace, bench: Bench, sweep: str, goldens: Sequence[GoldenConfig], lane: str = "std",
    greedy: KnobMap | None = None, *, thresholds: Thresholds = DEFAULT, looks: int | None = None,
    rounds: int = ROUNDS, seed: int = 0,
) -> AbResult:  # fmt: skip
    """The greedy pick against the goldens of its lane and eager PyTorch, interleaved.

    goldens: all of the shape. greedy: the pick, None: what the picker decides. looks: at most so many, default the
    thresholds'. seed: of the order of the rounds. Raises Refused, InputError where the pick cannot be realised.
    """
    started = perf_counter()
    picker = replace(work.picker(sweep), fast_math=lane == "fm")
    rows = candidates(job, picker, rivals(goldens, lane), pin=greedy)
    labels = [row.label for row in rows if row.origin == "golden"]
    built = [row for row in rows if row.origin == "golden" and row.picks]
    twin = _twin(rows[0], built)
    if built and twin is None:
        rows.append(replace(built[0], label=AGAIN, origin="ab", golden=None))
        twin = AGAIN
    processes = thresholds.min_processes if labels else QUICK_PROCESSES
    found, pooled, taken = None, None, 0
    while True:
        found = compare(job, work, bench, sweep, rows, (EAGER, "emmy"), processes=processes, rounds=rounds,
                        seed=seed * thresholds.looks + taken)  # fmt: skip
        assert found.result is not None
        pooled = found.result if pooled is None else _pooled(pooled, found.result)
        taken += 1
        look = look_of(pooled, GREEDY, labels, EAGER, thresholds)
        floor = _floor(pooled, built[0].label, twin, thresholds) if built and twin else None
        # Where a golden is further from itself than any win has to be, another look decides nothing.
        drowned = floor is not None and floor > thresholds.noise_band
        if drowned or taken >= (thresholds.looks if looks is None else looks):
            break
        if not _unresolved(look, taken, thresholds):
            break
    ends = {row.candidate.label: _ended(row, pooled) for row in (found.greedy, *found.pinned)}
    references = tuple(
        Benched(label, "reference", "std", {}, reply.status, reply.error, reply.median_us, reply.low_us, reply.high_us)
        for label in found.references
        if (reply := pooled.replies[label])
    )
    return AbResult(
        job.name, region_key(job.regions[0]), found.kernel, found.device, sweep, size_text(found.symbols),
        "evidence" if greedy is not None else weakest(rows[0].picks), ends[GREEDY],
        tuple(ends[label] for label in labels),
        references, look, floor, taken,
        len(pooled.seconds.get(GREEDY, ())), perf_counter() - started, pooled.lost,
    )  # fmt: skip


def _twin(greedy: Candidate, goldens: Sequence[Candidate]) -> str | None:
    """Greedy's label when it is the same kernel as the first golden: the pair then shows the noise floor by itself."""
    if not goldens:
        return None
    first = [pick.variant.digest for pick in goldens[0].picks]
    return greedy.label if [pick.variant.digest for pick in greedy.picks] == first else None


def _unresolved(look: Look, taken: int, thresholds: Thresholds) -> bool:
    """Whether the comparison with the fastest golden wants another look."""
    if not look.ratios:
        return False
    best = min(look.ratios, key=lambda label: look.golden_us[label])
    return wants_look(look.ratios[best], taken, thresholds)


def _ended(row: Timed, pooled: ConfirmResult) -> Benched:
    """The row with its numbers over all looks."""
    reply = pooled.replies.get(row.candidate.label)
    if reply is None or not row.ok or not reply.ok:
        return Benched.of(row)
    return Benched.of(replace(row, us=reply.median_us, low_us=reply.low_us, high_us=reply.high_us))


def _floor(pooled: ConfirmResult, once: str, again: str, thresholds: Thresholds) -> float | None:
    try:
        return noise_floor(pooled.seconds.get(once, ()), pooled.seconds.get(again, ()), thresholds)
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
        bad = next((one for one in (before.replies.get(label, reply), reply) if not one.ok), None)
        values = [value * 1e6 for process in seconds.get(label, ()) for value in process]
        if bad is not None or not values:
            replies[label] = bad or reply
        else:
            low, median, high = quartiles(values)
            replies[label] = replace(reply, median_us=median, low_us=low, high_us=high, samples=len(values))
    return ConfirmResult(seconds, replies, before.lost + result.lost, before.wall_s + result.wall_s)
