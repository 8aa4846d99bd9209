"""Whether the cheap build ranks like the deployable one: ``python -m benchmarks.regimes [SHAPE …] [--leaves N]``.

For each shape a sample of the leaves whose tier says that O1 is valid, denser towards the front of the prior's ranking,
as a search draws them. Each is built cold and screened in both builds, in turns, and once more in O3 for the noise of a
screening. Prints a line a leaf, and for each shape the rank correlation of the builds and of O3 with itself, what it
costs to trust O1 (latency of the leaf that it leads to over the best of the sample: the O1 best as it is, and the best
of the contenders that a search measures again), and seconds of building, a core each. Nothing is stored.

Exit code 0; 1 where too few leaves of a shape ran in both builds; 2 for a shape that does not exist.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.cli.main import guarded
from emmy.files import check_file

if TYPE_CHECKING:
    from emmy.bench.jobs import ReferenceSet, Reply
    from emmy.pipeline import Workspace
    from emmy.schedule.space import Space
    from emmy.search.screening import Bencher
    from emmy.search.variant import Variant

SHAPES = ("square.512", "qwen3_06b.q_proj.s128")
LEAVES = 24
ENOUGH = 8
"""Leaves that have to run in both builds for a correlation to be printed."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A leaf in both builds. rank: its place under the prior; ``again_us``: screened in O3 a second time, µs; build
    seconds of one core; status: ``ok``, or how the first build that failed ended."""

    rank: int
    knobs: str
    status: str
    o1_us: float | None = None
    o3_us: float | None = None
    again_us: float | None = None
    o1_build_s: float = 0.0
    o3_build_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a sample says. correlation, floor: of the ranks in O1 and O3, and of O3 with itself. regret: latency in O3
    over the sample's best, of the O1 best (trusted) and of the best contender; contenders: measured again; build
    seconds: of the whole sample in O1, of its contenders in O3, of the whole sample in O3."""

    leaves: int
    correlation: float | None
    floor: float | None
    regret_trusted: float
    regret: float
    contenders: int
    o1_build_s: float
    contenders_build_s: float
    o3_build_s: float


def sample(order: Sequence[int], count: int) -> list[tuple[int, int]]:
    """(rank from 1, leaf) of about ``count`` leaves of a ranking, at places that grow geometrically."""
    if not order or count < 1:
        return []
    places = np.unique(np.geomspace(1, len(order), count).round().astype(int)).tolist()
    spare = (place for place in range(1, len(order) + 1) if place not in set(places))
    while len(places) < min(count, len(order)):
        places.append(next(spare))
    return [(place, order[place - 1]) for place in sorted(places)]


def judge(rows: Sequence[Sampled], tolerance: float) -> Verdict | None:
    """What the rows that ran in both builds say; None where they are fewer than ENOUGH."""
    from emmy.bench.regimes import next_contender
    from emmy.priors.metrics import spearman

    ran = [row for row in rows if row.ok]
    if len(ran) < ENOUGH:
        return None
    cheap = {n: row.o1_us for n, row in enumerate(ran) if row.o1_us is not None}
    real = {n: row.o3_us for n, row in enumerate(ran) if row.o3_us is not None}
    again = np.array([row.again_us for row in ran], dtype=np.float64)
    deployed: dict[int, float | None] = {}
    while (leaf := next_contender(cheap, deployed, tolerance)) is not None:
        deployed[leaf] = real[leaf]
    best = min(real.values())
    o1, o3 = (np.array([values[n] for n in range(len(ran))], dtype=np.float64) for values in (cheap, real))
    return Verdict(
        len(ran),
        spearman(o1, o3),
        spearman(o3, again),
        real[min(cheap, key=lambda n: cheap[n])] / best,
        min(us for us in deployed.values() if us is not None) / best,
        len(deployed),
        sum(row.o1_build_s for row in ran),
        sum(ran[n].o3_build_s for n in deployed),
        sum(row.o3_build_s for row in ran),
    )


def measure(
    bench: Bencher, refs: ReferenceSet, drawn: Sequence[tuple[int, int]], variants: Sequence[Variant]
) -> list[Sampled]:  # fmt: skip
    """Every drawn leaf in both builds, the one or the other first in turns; a line a leaf."""
    rows = []
    for turn, ((rank, _), variant) in enumerate(zip(drawn, variants, strict=True)):
        order = ("O1", "O3") if turn % 2 == 0 else ("O3", "O1")
        found = {regime: bench.screen(variant.artefact, refs, None, regime, variant.lane) for regime in order}
        again = bench.screen(variant.artefact, refs, None, "O3", variant.lane)
        rows.append(sampled(rank, str(variant.knobs), found, again))
        print(line(rows[-1]), flush=True)
    return rows


def sampled(rank: int, knobs: str, found: dict[str, Reply], again: Reply) -> Sampled:
    """The row of a leaf's replies."""
    bad = next((f"{r} {reply.status}" for r, reply in (*found.items(), ("O3", again)) if not reply.ok), "ok")
    o1, o3 = found["O1"], found["O3"]
    return Sampled(rank, knobs, bad, o1.median_us, o3.median_us, again.median_us, o1.build_s, o3.build_s)


def line(row: Sampled) -> str:
    """``rank 12   O1 61.20 us  O3 55.01 us  O3/O1 0.899  built in 0.31 and 0.77 s  TILE=…``."""
    if not row.ok or row.o1_us is None or row.o3_us is None:
        return f"  rank {row.rank:<5} {row.status}  {row.knobs}"
    return (f"  rank {row.rank:<5} O1 {row.o1_us:9.2f} us  O3 {row.o3_us:9.2f} us  O3/O1 {row.o3_us / row.o1_us:.3f}  "
            f"built in {row.o1_build_s:.2f} and {row.o3_build_s:.2f} s  {row.knobs}")  # fmt: skip


def text(shape: str, verdict: Verdict, tolerance: float) -> str:
    """The verdict as printed."""
    v = verdict
    through = v.o1_build_s + v.contenders_build_s
    return "\n".join(
        [
            f"{shape}: {v.leaves} leaves ran in both builds",
            f"  rank correlation   O1 with O3 {_number(v.correlation)}, O3 with itself {_number(v.floor)}",
            f"  pick / best in O3  {v.regret_trusted:.3f} the O1 best as it is, {v.regret:.3f} the best of "
            f"{v.contenders} contenders (tolerance {tolerance:g})",
            f"  build seconds      {v.o3_build_s:.1f} all in O3; {through:.1f} by way of O1: {v.o1_build_s:.1f} in O1 "
            f"and {v.contenders_build_s:.1f} for contenders",
        ]
    )


def _number(value: float | None) -> str:
    return "not measurable" if value is None else f"{value:.3f}"


def open_shape(name: str, work: Workspace) -> tuple[Space, ReferenceSet]:
    """The space of a shape's only region, and its data. Raises InputError."""
    from emmy.eager import shared_reference
    from emmy.pipeline import open_job
    from emmy.schedule.space import enumerate_space
    from emmy.target import Target, TargetKind

    job = open_job(Target(TargetKind.GOLDEN, name))
    region = job.regions[0]
    refs = shared_reference(job, region, work.folder) or work.references(region)
    return enumerate_space(region, work.caps), refs


def draw(space: Space, work: Workspace, count: int) -> tuple[list[tuple[int, int]], list[Variant]]:
    """A sample of the leaves whose tier says that O1 is valid, lowered; leaves that do not lower are passed over."""
    from emmy.errors import Refused
    from emmy.search.variant import Variant

    ranked = np.argsort(work.prior.scores(space), kind="stable").tolist()
    valid = [leaf for leaf in ranked if space.locate(leaf)[0].tier.o1_valid]
    drawn, variants = [], []
    for place, leaf in sample(valid, count):
        try:
            variants.append(Variant(space.region, work.caps, space.knobs(leaf), space.lower(leaf)))
        except Refused as refused:
            print(f"  rank {place:<5} {refused}", flush=True)
            continue
        drawn.append((place, leaf))
    return drawn, variants


def main(arguments: Sequence[str] | None = None) -> int:
    from emmy import config
    from emmy.pipeline import open_workspace

    parser = argparse.ArgumentParser(prog="python -m benchmarks.regimes", description=__doc__)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES), metavar="SHAPE", help=f"default: {' '.join(SHAPES)}")
    parser.add_argument("--leaves", type=int, default=LEAVES, help=f"leaves of a shape (default: {LEAVES})")
    parser.add_argument("--json", type=Path, help="write rows and verdicts there")
    parser.add_argument("--device", help="as in emmy tune")
    options = parser.parse_args(arguments)
    if options.json is not None:
        check_file("--json", options.json)
    work = open_workspace(config.load(device=options.device))
    if "O1" not in work.caps.regimes:
        print(f"{work.caps.name} builds in {', '.join(work.caps.regimes)} alone: there is no cheap build to judge")
        return 0
    return run(work, options.shapes, options.leaves, options.json)


def run(work: Workspace, shapes: Sequence[str], leaves: int, json_file: Path | None) -> int:
    """Measures and prints; the binaries of the run are deleted in the end."""
    tolerance, code = work.settings.o3_tol, 0
    opened = {name: open_shape(name, work) for name in shapes}
    found: dict[str, Any] = {}
    print(f"{work.caps.name}, {work.caps.compiler}, {work.prior.name} prior: {work.prior.about}", flush=True)
    with work.bench(f"regimes-{time.time_ns()}") as bench:
        try:
            for name, (space, refs) in opened.items():
                drawn, variants = draw(space, work, leaves)
                print(f"{name}: {len(drawn)} of {len(space)} leaves", flush=True)
                rows = measure(bench, refs, drawn, variants)
                verdict = judge(rows, tolerance)
                found[name] = {"rows": [asdict(row) for row in rows], "verdict": verdict and asdict(verdict)}
                if verdict is None:
                    code = 1
                    print(f"{name}: fewer than {ENOUGH} leaves ran in both builds", flush=True)
                else:
                    print(text(name, verdict, tolerance), flush=True)
        finally:
            shutil.rmtree(bench.cache_dir, ignore_errors=True)
    if json_file is not None:
        json_file.write_text(json.dumps({"device": work.caps.name, "tolerance": tolerance, "shapes": found}, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(guarded(main))
