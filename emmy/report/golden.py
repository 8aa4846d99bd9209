"""The golden findings: outcomes of a sweep → the context of ``golden_findings.md.j2`` → Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emmy.bench.stats import DEFAULT, Verdict
from emmy.evaluate.ab import AbResult
from emmy.evaluate.table import number
from emmy.evaluate.verdict import Category
from emmy.report.evidence import Evidence, knob_line
from emmy.report.render import render

TEMPLATE = "golden_findings.md.j2"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one shape and lane. tuned: facts of its search. error: why it was not finished, else empty.

    again: the runs that repeated the A/B. operations: kinds of the proposed changes. evidence: on a worse one.
    """

    shape: str
    dims: str
    lane: str
    tuned: Mapping[str, Any] = field(default_factory=dict)
    result: AbResult | None = None
    again: tuple[AbResult, ...] = ()
    category: Category | None = None
    operations: tuple[str, ...] = ()
    evidence: Evidence | None = None
    error: str = ""

    @property
    def verdict(self) -> str:
        return str(self.category.verdict) if self.category is not None else "failed"

    @property
    def line(self) -> str:
        """``quick.reduce.1024x4096  same  greedy 812.4 µs  vs eager 1.31  greedy/golden 0.998 [0.991, 1.005]``."""
        name = self.shape if self.lane == "std" else f"{self.shape} [{self.lane}]"
        parts = [f"{name:<34} {self.verdict:<10}"]
        if self.result is not None and self.result.greedy.us is not None:
            parts.append(f"greedy {number(self.result.greedy.us):>6} µs")
            if self.result.eager_us is not None:
                parts.append(f"vs eager {self.result.eager_us / self.result.greedy.us:5.2f}")
        if self.category is not None and self.category.ratio is not None:
            parts.append(f"greedy/golden {self.category.ratio}")
        return "  ".join(parts).rstrip()


@dataclass(frozen=True, slots=True)
class Sweep:
    """The head of a report. steps: (step, seconds, runs) as measured; a cached one has the seconds of its own run."""

    sweep: str
    date: str
    device: str
    driver: str
    units: int
    command: str
    wall_s: float
    patience: int
    prior: str
    reference: str
    steps: tuple[tuple[str, float, int], ...]
    notes: tuple[str, ...] = ()
    patch: str = ""

    @property
    def reference_title(self) -> str:
        return "cuBLAS" if self.reference == "cublas" else "eager"


def tally(outcomes: Sequence[Outcome]) -> str:
    """``1 replaced / 2 added / 0 lowered / 0 pruned / 3 new / 4 unchanged / 0 worse / 0 unresolved / 0 failed``."""
    done = Counter(kind for one in outcomes for kind in one.operations)
    verdicts = Counter(one.verdict for one in outcomes)
    unchanged = sum(not one.operations and one.verdict in ("same", "better", "new") for one in outcomes)
    parts = [
        (done["replace"], "replaced"), (done["add"], "added"), (done["lower"], "lowered"), (done["prune"], "pruned"),
        (done["new"], "new"), (unchanged, "unchanged"), (verdicts["worse"], "worse"),
        (verdicts["unresolved"], "unresolved"), (verdicts["failed"], "failed"),
    ]  # fmt: skip
    return " / ".join(f"{count} {word}" for count, word in parts)


def findings(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The worse shapes, the furthest from its golden first."""
    worse = [one for one in outcomes if one.category is not None and one.category.verdict == Verdict.WORSE]
    return sorted(worse, key=lambda one: -(one.category.ratio.ratio if one.category and one.category.ratio else 1.0))


def context(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the template is given: plain values, every number with its unit in the name."""
    return {
        "sweep": sweep,
        "tally": tally(outcomes),
        "lanes": [
            {"lane": lane, "rows": [_row(one, sweep) for one in outcomes if one.lane == lane]}
            for lane in dict.fromkeys(one.lane for one in outcomes)
        ],
        "findings": [_finding(one) for one in findings(outcomes)],
        "changes": [
            {"shape": one.shape, "lane": one.lane, "kinds": ", ".join(one.operations), "why": one.category.reasons}
            for one in outcomes
            if one.operations and one.category is not None
        ],
        "undecided": [
            {"shape": one.shape, "lane": one.lane, "why": one.category.reasons if one.category else (one.error,)}
            for one in outcomes
            if one.verdict in ("unresolved", "failed")
        ],
        "notes": [*sweep.notes, *workflow_notes(sweep, outcomes)],
    }


def report(sweep: Sweep, outcomes: Sequence[Outcome]) -> str:
    """The whole report as Markdown."""
    return render(TEMPLATE, context(sweep, outcomes))


def workflow_notes(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[str]:
    """Symptom and proposed improvement, a line each, drawn from what this sweep measured."""
    notes = []
    seconds = {name: spent for name, spent, _ in sweep.steps}
    whole = sum(seconds.values())
    if whole and outcomes:
        name, most = max(seconds.items(), key=lambda item: item[1])
        notes.append(f"slow step: {name} took {most:.0f} s of {whole:.0f} s measured; narrow with `--kernel SUBSTR`.")
    slow = sorted((one for one in outcomes if one.tuned.get("seconds")), key=lambda one: -one.tuned["seconds"])[:3]
    if slow:
        told = ", ".join(
            f"{one.shape} {one.tuned['seconds']:.0f} s ({one.tuned['live']} live variants)" for one in slow
        )
        notes.append(f"slowest searches: {told}.")
    again = [one for one in outcomes if one.again]
    if again:
        told = ", ".join(f"{one.shape} {len(one.again)}×" for one in again)
        notes.append(f"re-runs in fresh processes: {told}.")
    timed = [(one.shape, one.result) for one in outcomes if one.result is not None]
    floors = [(result.floor, shape) for shape, result in timed if result.floor is not None]
    if floors:
        low, high = min(floors), max(floors)
        notes.append(
            f"noise floor, golden against itself: {low[0]:.1%} ({low[1]}) to {high[0]:.1%} ({high[1]}); a win has to "
            "clear that of its own shape."
        )
    drowned = [shape for shape, result in timed if result.floor is not None and result.floor > DEFAULT.noise_band]
    if drowned:
        notes.append(
            f"too noisy to decide: {', '.join(drowned)} (golden against itself beyond {DEFAULT.noise_band:.0%}); run "
            "the sweep again on an idle machine."
        )
    looks = [f"{shape} {result.looks}" for shape, result in timed if result.looks > 1]
    if looks:
        notes.append(f"undecided at the first look, looks taken: {', '.join(looks)}; more rounds would save looks.")
    lost = sum(len(one.result.lost) for one in outcomes if one.result is not None)
    if lost:
        notes.append(f"{lost} bench processes died during A/Bs; their rounds are missing from every row.")
    failed = sum(one.tuned.get("failed", 0) for one in outcomes)
    if failed:
        notes.append(f"{failed} variants failed while searching: `emmy eval failures` groups them by reason.")
    return notes


def _row(one: Outcome, sweep: Sweep) -> dict[str, Any]:
    result, category = one.result, one.category
    best = category.against if category is not None else None
    eager = result.eager_us if result is not None else None
    greedy = result.greedy.us if result is not None else None
    return {
        "name": one.shape,
        "dims": one.dims,
        "greedy_us": greedy,
        "golden_us": result.look.golden_us.get(best) if result is not None and best is not None else None,
        "ratio": category.ratio if category is not None else None,
        "verdict": one.verdict,
        "change": ", ".join(one.operations),
        "source": result.source if result is not None else "",
        "reference_us": eager,
        "versus": _versus(greedy, eager, sweep.reference),
        "variants": one.tuned.get("ok"),
        "seconds": one.tuned.get("seconds"),
    }


def _versus(greedy: float | None, reference: float | None, kind: str) -> float | None:
    """vs cuBLAS = greedy / cublas (above 1: emmy slower); vs eager = eager / emmy (above 1: emmy faster)."""
    if greedy is None or reference is None:
        return None
    return greedy / reference if kind == "cublas" else reference / greedy


def _finding(one: Outcome) -> dict[str, Any]:
    assert one.result is not None
    assert one.category is not None
    result, evidence = one.result, one.evidence
    golden = next(row for row in result.pinned if row.label == one.category.against)
    return {
        "shape": one.shape,
        "dims": one.dims,
        "lane": one.lane,
        "ratio": one.category.ratio,
        "greedy": result.greedy,
        "golden": golden,
        "greedy_knobs": knob_line(result.greedy.knobs),
        "golden_knobs": knob_line(golden.knobs),
        "source": result.source,
        "evidence": evidence,
        "error": one.error,
    }
