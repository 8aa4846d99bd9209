"""Chosen leaves of chosen shapes, timed side by side: ``python -m benchmarks.leaves FILE [--ncu]``.

For work on a code generator: what a change does to a known leaf, with no search between. FILE holds a line a leaf,
``SHAPE  FAMILY=VALUE,…`` (a partial pin: what it leaves open is chosen as for ``emmy run``; an empty pin is the
greedy pick). SHAPE is one of the bars' or the dataset's, or ``MxNxK.f16`` (f32, bf16) for a plain product. Prints a
line a leaf: microseconds (screened, cold and warm), registers, spills, shared memory, and eager PyTorch beside the
first leaf of each shape. ``--ncu`` then counts what the kernels of every leaf do, one launch each.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.needs import gpu_workspace, text_of
from emmy.cli.main import guarded
from emmy.errors import InputError

METRICS = (
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.max",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "lts__t_bytes.sum",
    "dram__bytes.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.per_cycle_active",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio",
    "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
)
"""Counters shown by ``--ncu``, under the last part of their names."""


@dataclass(frozen=True, slots=True)
class Line:
    """One leaf of the file. ``number`` counts the leaves."""

    number: int
    shape: str
    pin: str


def lines_of(text: str) -> list[Line]:
    """The leaves of a file; ``#`` begins a comment."""
    found = []
    for raw in text.splitlines():
        words = raw.split("#")[0].split()
        if words:
            found.append(Line(len(found), words[0], ",".join(words[1:])))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaves", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--ncu", action="store_true", help="count as well")
    parser.add_argument("--device", help="as in emmy tune")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        return drive(options.file)
    from emmy import config

    lines = lines_of(text_of(options.file, expected := "lines SHAPE  FAMILY=VALUE,…"))
    if not lines:
        raise InputError(str(options.file), found="no leaf in it", expected=expected)
    jobs = measure(gpu_workspace("leaves", config.load(device=options.device)), lines)
    if options.ncu and jobs:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.json"
            path.write_text(json.dumps(jobs))
            count(path)
    return 0


def measure(work: Any, lines: list[Line]) -> list[dict[str, Any]]:
    """Times every leaf; returns the jobs of those that ran, for the profiler."""
    from benchmarks.h200_shapes import GROUPS, golden
    from emmy.bench.jobs import Row
    from emmy.comparison import Candidate, compare
    from emmy.eager import shared_reference
    from emmy.pipeline import open_job
    from emmy.schedule.knobs import KnobMap
    from emmy.search.pinned import Unmatched, pinned

    subjects = {subject.name: subject for group in GROUPS.values() for subject in group}
    subjects |= {line.shape: one for line in lines if (one := plain_product(line.shape)) is not None}
    opened: dict[str, Any] = {}
    for shape in dict.fromkeys(line.shape for line in lines):
        opened[shape] = open_job(subjects.get(shape, golden(shape)).target)
    pins = [KnobMap.parse(line.pin) if line.pin else None for line in lines]
    work.folder.mkdir(parents=True, exist_ok=True)
    sweep = work.sweep(True)
    picker = work.picker(sweep)
    ready: list[tuple[Line, Any, Any, Any]] = []
    for line, pin in zip(lines, pins, strict=True):
        job = opened[line.shape]
        region = job.regions[0]
        pick = pinned(picker, region, pin) if pin is not None else picker.greedy(region)
        if isinstance(pick, Unmatched):
            print(f"{line.shape} {line.pin}: {pick}", flush=True)
            continue
        ready.append((line, job, region, pick.variant))
    jobs = []
    with work.bench(sweep) as bench:
        for line, _, _, variant in ready:
            bench.build_ahead([Row(str(line.number), variant.artefact)], None)
        for line, job, region, variant in ready:
            refs = shared_reference(job, region, work.folder) or work.references(region)
            reply = bench.screen(variant.artefact, refs)
            us = f"{reply.median_us:9.2f}" if reply.median_us else f"{reply.status.value} {reply.error}"
            warm = bench.screen(variant.artefact, refs, cache="warm").median_us if reply.ok else None
            times = f"{us} us  warm {warm or 0.0:8.2f}"
            use = f"{reply.registers:3} regs {reply.spills} spilled {reply.smem_bytes:6} smem {reply.sm_clock_mhz} MHz"
            print(f"{line.number:3} {line.shape:28} {times}  {use}  {variant.text}", flush=True)
            if reply.ok:
                row = Row(f"{line.number}", variant.artefact, variant.lane)
                jobs.append({"row": row.to_json(), "refs": refs.to_json(), "label": f"{line.number} {line.shape}"})
        for name, job in opened.items():
            rows = [(line, v) for line, j, _, v in ready if j is job][:1]
            if rows:
                from emmy.search.pick import Pick

                row = Candidate("greedy", "greedy", KnobMap(), (Pick(rows[0][1], "pin", None, "pinned"),))
                found = compare(job, work, bench, sweep, [row], ("eager", "emmy"), processes=2, rounds=4)
                print(f"    {name:28} eager {found.backends.get('eager')} us, leaf {rows[0][0].number} "
                      f"{found.greedy.us} us confirmed", flush=True)  # fmt: skip
    return jobs


def plain_product(shape: str) -> Any:
    """The subject of ``MxNxK.DTYPE``, or None for a shape that is spelled otherwise."""
    from benchmarks.h200_shapes import snippet

    found = re.fullmatch(r"(\d+)x(\d+)x(\d+)\.(f16|bf16|f32)", shape)
    if found is None:
        return None
    m, n, k, dtype = found.groups()
    kind = f"dtype=torch.{ {'f16': 'float16', 'bf16': 'bfloat16', 'f32': 'float32'}[dtype] }"
    return snippet(shape, f"x0 = torch.randn({m}, {k}, {kind}); x1 = torch.randn({k}, {n}, {kind}); x0 @ x1")


def drive(path: Path) -> int:
    """What the profiler watches: every leaf once, after a check."""
    import cupy

    from emmy.bench.jobs import ReferenceSet, Row
    from emmy.bench.session import Session

    session = Session("cuda", lambda phase: None)
    for job in json.loads(path.read_text()):
        row, refs = Row.from_json(job["row"]), ReferenceSet.from_json(job["refs"])
        ready = session.qualified(row, refs)
        bounds, work = session.bound_sets(row, refs, ready, "warm")
        session.device.run(bounds[0])
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStart()
        session.device.run(bounds[0])
        cupy.cuda.runtime.deviceSynchronize()
        cupy.cuda.runtime.profilerStop()
        print(f"@@ {job['label']}", flush=True)
        for buffer in work.values():
            session.device.free(buffer)
    return 0


def count(path: Path) -> None:
    """Prints the counters of every kernel, in the order of the leaves."""
    import csv
    import io

    from emmy.report.ncu import command, find_ncu

    program = [sys.executable, "-m", "benchmarks.leaves", str(path), "--drive"]
    line = command(find_ncu(), program, METRICS)
    line[1:1] = ["--cache-control", "none"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    rows = [text for text in done.stdout.splitlines() if text.startswith('"')]
    start = next((n for n, text in enumerate(rows) if text.startswith('"ID"')), None)
    if start is None:
        print((done.stdout + done.stderr)[-2000:])
        return
    for row in csv.DictReader(io.StringIO("\n".join(rows[start:]))):
        if not row["ID"]:
            continue
        print(f"{row['Kernel Name'][:40]} grid {row['Grid Size']} block {row['Block Size']}")
        print("   " + "  ".join(f"{_short(name)}={row.get(name, '-')}" for name in METRICS))


def _short(name: str) -> str:
    stalled = "issue_stalled_"
    if stalled in name:
        return "stall_" + name.split(stalled)[1].split("_per_issue")[0]
    return name.split(".")[0].split("__", 1)[1]


if __name__ == "__main__":
    sys.exit(guarded(main))
