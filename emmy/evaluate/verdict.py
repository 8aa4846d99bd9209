"""From an A/B to the goldens: better, same, worse, unresolved or new, and the changes that follow, with reasons.

A pick is compared with the goldens of its own lane only. A change is proposed when it is above the noise floor and came
out again in every reconfirming run; whatever is in doubt leaves the goldens as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from emmy.bench.records import Status
from emmy.bench.stats import DEFAULT, BadSamples, Comparison, Series, Thresholds, Verdict, clears_floor, compare, judge

if TYPE_CHECKING:
    from emmy.bench.protocol import ConfirmResult
    from emmy.goldens.dataset import Shape
    from emmy.goldens.entry import GoldenConfig
    from emmy.goldens.patch import Operation

Knobs = Mapping[str, str | int | float | bool]
Op = Literal["replace", "add", "lower", "prune", "new"]


@dataclass(frozen=True, slots=True)
class Pick:
    """The greedy pick, benched as a pinned row. ``knobs`` is its record (every family stamped)."""

    lane: str
    knobs: Knobs
    status: Status = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GoldenRow:
    """A recorded golden of the shape, benched beside the pick. ``knobs`` in today's spelling, every family stamped.

    recorded_us, recorded_reference_us: as in its file, microseconds.
    """

    label: str
    lane: str
    knobs: Knobs
    recorded_us: float
    recorded_reference_us: float
    status: Status = Status.OK
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One A/B run. Median microseconds of each row, and greedy/golden by the golden's label.

    A row that failed has no entry. ``reference_us`` None: the reference was not timed.
    """

    greedy_us: float | None
    golden_us: Mapping[str, float]
    ratios: Mapping[str, Comparison]
    reference_us: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """One proposed change to a shape's entries. Latencies in microseconds.

    target: label of the golden it touches (``replace``, ``lower``, ``prune``). knobs, emmy_us, reference_us: what is
    recorded (``replace``, ``add``, ``new``; ``lower`` has emmy_us alone).
    """

    op: Op
    reason: str
    target: str | None = None
    knobs: Knobs | None = None
    emmy_us: float | None = None
    reference_us: float | None = None


@dataclass(frozen=True, slots=True)
class Category:
    """What becomes of a shape. against: label of the best golden; ratio: greedy/golden against that one.

    wants_reconfirm: reconfirming runs that are still missing for what looks like a win; 0 when the verdict is final.
    """

    shape: str
    lane: str
    verdict: Verdict
    reasons: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    against: str | None = None
    ratio: Comparison | None = None
    wants_reconfirm: int = 0


def look_of(
    result: ConfirmResult, greedy: str, goldens: Sequence[str], reference: str | None = None,
    thresholds: Thresholds = DEFAULT,
) -> Look:  # fmt: skip
    """The look of a confirm run, rows by label. A golden whose rounds do not pair with greedy's has no ratio."""
    medians = {label: r.median_us for label, r in result.replies.items() if r.ok and r.median_us is not None}
    ratios = {}
    for label in goldens:
        if label in medians and greedy in medians:
            ratio = _compared(result.seconds[greedy], result.seconds[label], thresholds)
            if ratio is not None:
                ratios[label] = ratio
    return Look(medians.get(greedy), {label: medians[label] for label in goldens if label in medians}, ratios,
                medians.get(reference) if reference is not None else None)  # fmt: skip


def _compared(greedy: Series, golden: Series, thresholds: Thresholds) -> Comparison | None:
    try:
        return compare(greedy, golden, thresholds)
    except BadSamples:
        return None


def categorise(
    shape: str,
    pick: Pick,
    goldens: Sequence[GoldenRow],
    look: Look,
    *,
    floor: float | None = None,
    reconfirmed: Sequence[Look] = (),
    thresholds: Thresholds = DEFAULT,
) -> Category:
    """The category of one shape and lane.

    goldens: those of the shape, of both lanes; only the pick's lane is compared. (A fast-math pick without a golden of
    its lane is recorded beside the standard ones only where it beats the best of them.)
    look: the A/B, all its looks pooled. floor: this session's noise floor as a share (None: the noise band stands in).
    reconfirmed: later runs in fresh processes.
    """
    return _Judged(shape, pick, tuple(goldens), look, floor, tuple(reconfirmed), thresholds).category()


@dataclass(frozen=True, slots=True)
class _Judged:
    """The arguments of ``categorise``."""

    shape: str
    pick: Pick
    goldens: tuple[GoldenRow, ...]
    look: Look
    floor: float | None
    reconfirmed: tuple[Look, ...]
    thresholds: Thresholds

    @property
    def own(self) -> list[GoldenRow]:
        return [golden for golden in self.goldens if golden.lane == self.pick.lane]

    def category(self) -> Category:
        if self.pick.status != Status.OK or self.look.greedy_us is None:
            why = f": {self.pick.reason}" if self.pick.reason else ""
            return self._leave(Verdict.UNRESOLVED, f"the greedy pick ended as {self.pick.status}{why}")
        if not self.own:
            return self._new()
        best = self._best(self.own)
        lost = tuple(f"{g.label} was not benched: {g.reason or g.status}" for g in self.own if not self._timed(g))
        if best is None:
            return self._leave(Verdict.UNRESOLVED, "no golden of this lane could be benched", *lost)
        ratio = self.look.ratios[best.label]
        verdict = judge(ratio, self.thresholds)
        text = f"greedy/golden {ratio} against {best.label}"
        match verdict:
            case Verdict.WORSE:
                return self._leave(verdict, f"{text}: the search did not reach the golden", *lost, best=best)
            case Verdict.SAME:
                return self._same(best, text, lost)
            case Verdict.BETTER:
                return self._better(best, text, lost)
        return self._leave(verdict, f"{text}: the interval crosses a limit of {self._percent}", *lost, best=best)

    @property
    def _percent(self) -> str:
        return f"{self.thresholds.threshold - 1:.0%}"

    def _leave(self, verdict: Verdict, *reasons: str, best: GoldenRow | None = None, wants: int = 0) -> Category:
        return self._with(verdict, reasons, (), best, wants)

    def _with(
        self, verdict: Verdict, reasons: tuple[str, ...], changes: tuple[Change, ...], best: GoldenRow | None,
        wants: int = 0,
    ) -> Category:  # fmt: skip
        label = best.label if best is not None else None
        ratio = self.look.ratios.get(label) if label is not None else None
        return Category(self.shape, self.pick.lane, verdict, reasons, changes, label, ratio, wants)

    # ------------------------------------------------------------------------------------------------------- cases

    def _new(self) -> Category:
        if not self.goldens or self.pick.lane == "std":
            what = f"of the {self.pick.lane} lane " if self.goldens else ""
            return self._record_new(f"no golden {what}of this shape is recorded")
        best = self._best(self.goldens)
        if best is None:
            return self._leave(Verdict.UNRESOLVED, "no fm golden, and no comparison with a standard one")
        ratio = self.look.ratios[best.label]
        text = f"no fm golden is recorded; fm greedy/standard golden {ratio} against {best.label}"
        if judge(ratio, self.thresholds) != Verdict.BETTER:
            return self._leave(Verdict.NEW, f"{text}: fast math does not pay here")
        return self._doubt(best, text, ()) or self._record_new(f"{text}, reconfirmed {len(self.reconfirmed)} times")

    def _record_new(self, reason: str) -> Category:
        if self.look.reference_us is None:
            return self._leave(Verdict.NEW, f"{reason}; the reference was not timed, so there is nothing to record")
        change = Change("new", reason, None, self.pick.knobs, self.look.greedy_us, self.look.reference_us)
        return self._with(Verdict.NEW, (reason,), (change,), None)

    def _same(self, best: GoldenRow, text: str, lost: tuple[str, ...]) -> Category:
        twin = self._twin()
        if twin is None:
            reason = f"{text}: within {self._percent}, other knobs"
            return self._with(Verdict.SAME, (reason, *lost), (self._entry("add", reason, best),), best)
        gain = self._codegen_gain(twin, self.look)
        reason = f"{text}: greedy reproduces {twin.label}"
        if gain is None:
            return self._leave(Verdict.SAME, reason, *lost, best=best)
        won = f"emmy/reference is {gain:.3f} of the recorded ratio of {twin.label}: a codegen win"
        if gain >= self._bar:
            return self._leave(Verdict.SAME, reason, *lost, best=best)
        missing = self.thresholds.reconfirm - len(self.reconfirmed)
        if missing > 0:
            return self._leave(Verdict.SAME, reason, f"{won}, to be reconfirmed", *lost, best=best, wants=missing)
        again = [self._codegen_gain(twin, later) for later in self.reconfirmed]
        if any(value is None or value >= self._bar for value in again):
            return self._leave(Verdict.SAME, reason, f"{won} that did not come out again", *lost, best=best)
        lowered = twin.recorded_us * max([gain, *(value for value in again if value is not None)])
        change = Change("lower", won, twin.label, None, lowered)
        return self._with(Verdict.SAME, (reason, won, *lost), (change,), best)

    def _better(self, best: GoldenRow, text: str, lost: tuple[str, ...]) -> Category:
        twin = self._twin()
        if twin is not None and twin.label == best.label:
            return self._leave(
                Verdict.UNRESOLVED, f"{text}: greedy has the golden's own knobs, so this is noise", *lost, best=best
            )
        if (doubt := self._doubt(best, text, lost)) is not None:
            return doubt
        reason = f"{text}, reconfirmed {len(self.reconfirmed)} times"
        first = () if twin is not None else (self._entry("replace", reason, best),)
        superseded = [golden for golden in self.own if golden is not twin and (twin is not None or golden is not best)]
        pruned = tuple(
            Change(
                "prune",
                f"greedy/golden {self.look.ratios[golden.label]} against {golden.label}: superseded",
                golden.label,
            )
            for golden in superseded
            if golden.label in self.look.ratios and self._beaten(golden)
        )
        return self._with(Verdict.BETTER, (reason, *lost), first + pruned, best)

    def _doubt(self, best: GoldenRow, text: str, lost: tuple[str, ...]) -> Category | None:
        """Why a win over ``best`` does not count, or not yet; None when it does."""
        if not clears_floor(self.look.ratios[best.label], self.floor, self.thresholds):
            why = f"within the noise floor of {self._floor:.1%}"
            return self._leave(Verdict.UNRESOLVED, f"{text}: {why}", *lost, best=best)
        missing = self.thresholds.reconfirm - len(self.reconfirmed)
        if missing > 0:
            why = f"a win to be reconfirmed {missing} times"
            return self._leave(Verdict.UNRESOLVED, f"{text}: {why}", *lost, best=best, wants=missing)
        for number, later in enumerate(self.reconfirmed, start=1):
            again = later.ratios.get(best.label)
            if again is None or not self._wins(again):
                why = f"not reconfirmed, run {number} gave {again if again is not None else 'no comparison'}"
                return self._leave(Verdict.UNRESOLVED, f"{text}: {why}", *lost, best=best)
        return None

    # ----------------------------------------------------------------------------------------------------- helpers

    def _timed(self, golden: GoldenRow) -> bool:
        return golden.status == Status.OK and golden.label in self.look.ratios

    def _best(self, goldens: Sequence[GoldenRow]) -> GoldenRow | None:
        """The fastest in this A/B of those that were timed."""
        timed = [golden for golden in goldens if self._timed(golden)]
        return min(timed, key=lambda golden: (self.look.golden_us[golden.label], golden.label), default=None)

    @property
    def _floor(self) -> float:
        return self.thresholds.noise_band if self.floor is None else self.floor

    @property
    def _bar(self) -> float:
        """A share of the recorded ratio below which a codegen win is above threshold and noise."""
        return min(1 / self.thresholds.threshold, 1 / (1 + self._floor))

    def _wins(self, ratio: Comparison) -> bool:
        return judge(ratio, self.thresholds) == Verdict.BETTER and clears_floor(ratio, self.floor, self.thresholds)

    def _beaten(self, golden: GoldenRow) -> bool:
        """Slower than the pick in the A/B and in every reconfirming run that timed it."""
        later = [look.ratios[golden.label] for look in self.reconfirmed if golden.label in look.ratios]
        return all(
            judge(ratio, self.thresholds) == Verdict.BETTER for ratio in (self.look.ratios[golden.label], *later)
        )

    def _twin(self) -> GoldenRow | None:
        """The golden with the pick's knobs."""
        mine = _stamped(self.pick.knobs)
        return next((golden for golden in self.own if _stamped(golden.knobs) == mine), None)

    def _codegen_gain(self, golden: GoldenRow, look: Look) -> float | None:
        """Today's emmy/reference over the recorded one; None where either is unknown."""
        today = look.golden_us.get(golden.label)
        if today is None or not look.reference_us or not golden.recorded_us or not golden.recorded_reference_us:
            return None
        return (today / look.reference_us) / (golden.recorded_us / golden.recorded_reference_us)

    def _entry(self, op: Op, reason: str, best: GoldenRow) -> Change:
        """The pick as an entry. The recorded reference stays while today's agrees with it within the noise band."""
        target = best.label if op == "replace" else None
        recorded, today = best.recorded_reference_us, self.look.reference_us
        limit = 1 + self.thresholds.noise_band
        if today is not None and (not recorded or not 1 / limit <= today / recorded <= limit):
            reason = (
                f"{reason}; the reference takes {today:.4g} µs here, {recorded:.4g} µs on record: today's is recorded"
            )
            recorded = today
        return Change(op, reason, target, self.pick.knobs, self.look.greedy_us, recorded)


def operations(
    category: Category, shape: Shape, entries: Mapping[str, GoldenConfig], reference: str
) -> list[Operation]:
    """The changes as operations on a golden file. entries: by golden label; reference: ``cublas`` or ``eager``."""
    from emmy.goldens.entry import GoldenConfig, round_us
    from emmy.goldens.patch import Operation

    evidence = {"verdict": str(category.verdict), "greedy_golden": str(category.ratio) if category.ratio else None}
    found = []
    for change in category.changes:
        old = entries[change.target] if change.target is not None else None
        if change.op == "lower" and old is not None and change.emmy_us is not None:
            found.append(Operation.lower(old, round_us(change.emmy_us), change.reason, **evidence))
        elif change.op == "prune" and old is not None:
            found.append(Operation.prune(old, change.reason, **evidence))
        elif change.knobs is not None and change.emmy_us is not None and change.reference_us is not None:
            entry = GoldenConfig.of(shape, change.knobs, round_us(change.emmy_us),
                                    **{f"{reference}_us": round_us(change.reference_us)})  # fmt: skip
            if change.op == "replace" and old is not None:
                found.append(Operation.replace(old, entry, change.reason, **evidence))
            elif change.op == "add":
                found.append(Operation.add(entry, change.reason, **evidence))
            elif change.op == "new":
                found.append(Operation.new(entry, change.reason, **evidence))
    return found


def _stamped(knobs: Knobs) -> dict[str, str]:
    """Knobs for comparison: a family that is off or absent is the same decision in a stamped record."""
    return {name: str(value) for name, value in knobs.items() if value not in ("", False)}
