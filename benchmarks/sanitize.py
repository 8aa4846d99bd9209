"""One leaf of each tier under compute-sanitizer: ``python -m benchmarks.sanitize``.

Memcheck and racecheck run a small driver that compiles the leaf, launches it once and compares it with the oracle. The
buffers there have no guard bytes, so that a read beyond the end is seen as well. Prints PASS or FAIL a tier and tool.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.needs import gpu
from emmy.cli.main import guarded
from emmy.errors import MissingPrerequisite

if TYPE_CHECKING:
    from emmy.device.base import Capabilities

TOOLS = ("memcheck", "racecheck")
CANDIDATES = ("compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer")
FOUND = 99
"""Exit code that the sanitizer is told to return for errors."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partial pin on a case of tests/gpu; what the pin leaves open is drawn in a stated order."""

    tier: str
    case: str
    pin: str


LEAVES = (
    Leaf("scalar", "matmul.f32.ragged", "TILE=n16x8/f2x4/k8,STAGE=d2/sync"),
    Leaf("scalar, cp.async ring", "matmul.f32", "TILE=n16x8/f4x4/k16,STAGE=d3/async"),
    Leaf("scalar, split-K", "matmul.f32.dynM.ragged", "TILE=n16x8/f2x4/k8,REDUCE=g2k"),
    Leaf("warp", "matmul.f16", "TILE=a:mma_m16n8k16_f16_f32/w2x2/f2x4/k2,STAGE=d3/async"),
    Leaf("scalar, cluster, slices", "matmul.f32", "TILE=n8x8/f4x4/k32,REDUCE=g2c/c2,STAGE=d2/async"),
    Leaf(
        "warp, cluster, slices", "matmul.f16", "TILE=a:mma_m16n8k16_f16_f32/w1x2/f2x4/k4,REDUCE=g2c/c2,STAGE=d3/async"
    ),
    Leaf("scalar, blocks in groups", "matmul.f32.ragged", "TILE=n8x4/f4x2/k8,STAGE=d2/async,RASTER=g2"),
    Leaf("warp, atomics", "accumulated.f16", "TILE=a:mma_m16n8k16_f16_f32/w2x2/f2x2/k2,STAGE=d3/async,REDUCE=g2a"),
    Leaf("warp, tile over the edge", "matmul.f16.ragged", "TILE=a:mma_m16n8k16_f16_f32/w4x2/f2x4/k2,STAGE=d2/sync"),
    Leaf("warp, symbolic M", "matmul.f16.dynM.ragged", "TILE=a:mma_m16n8k16_f16_f32/w2x2/f2x2/k1"),
    Leaf("warp, touched ahead", "residual.f16.dynM", "TILE=a:mma_m16n8k16_f16_f32/w2x2/f2x4/k2,STAGE=d3/async"),
    Leaf("row", "softmax.f16.ragged", ""),
    Leaf("row, one value a row", "sum.f32.dynM.ragged", ""),
    Leaf("row, shared by blocks", "sum.f32.ragged", "TILE=r2/v1/reread,REDUCE=g2k/c32"),
    Leaf("attention", "attention.f32.causal.ragged", ""),
    Leaf("cell", "matmul.bf16.ragged", "tier:cell"),
)


def prepare(leaf: Leaf, folder: Path, caps: Capabilities) -> Path:
    """Writes the leaf as a job for the driver."""
    from emmy.bench.jobs import Row
    from emmy.bench.reference import reference
    from emmy.priors.uninformed import UninformedPrior
    from emmy.schedule.knobs import KnobMap
    from emmy.schedule.space import enumerate_space
    from emmy.search.pick import Picker
    from emmy.search.pinned import Unmatched, pinned
    from emmy.search.realise import realise
    from tests.gpu.cases import CASES

    region = CASES[leaf.case].region()
    if leaf.pin.startswith("tier:"):
        space = enumerate_space(region, caps)
        number = next(n for n, part in enumerate(space.parts) if part.tier.name == leaf.pin[5:])
        variant = realise(region, caps, space.knobs(int(space.starts[number])))
    else:
        found = pinned(Picker(caps, UninformedPrior("sanitizer")), region, KnobMap.parse(leaf.pin))
        if isinstance(found, Unmatched):
            raise MissingPrerequisite(f"{leaf.tier}: {found}")
        variant = found.variant
    row = Row(leaf.tier, variant.artefact, variant.lane)
    path = folder / f"{leaf.tier.replace(' ', '_').replace(',', '')}.json"
    path.write_text(json.dumps({"job": "qualify", "row": row.to_json(), "refs": reference(region, folder).to_json()}))
    return path


def drive(path: Path) -> int:
    """The driver: one qualification in this process, on buffers of exactly their size."""
    from emmy.bench.session import Session
    from emmy.device import cuda

    cuda.GUARD_BYTES = 0
    session = Session("cuda", lambda phase: None)
    reply = session.answer(json.loads(path.read_text()))
    print(f"{reply['status']} {reply['error']}")
    session.release()
    session.device.close()
    return 0 if reply["status"] == "ok" else 1


def run(sanitizer: str, tool: str, path: Path, timeout_s: float) -> tuple[str, str]:
    """(PASS or FAIL, what was found)."""
    command = [
        sanitizer,
        "--tool",
        tool,
        "--error-exitcode",
        str(FOUND),
        "--print-limit",
        "3",
        "--report-api-errors",
        "no",
    ]
    if tool == "memcheck":
        command += ["--leak-check", "no"]
    else:
        command += ["--racecheck-report", "all"]
    command += [sys.executable, "-m", "benchmarks.sanitize", "--leaf", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return "FAIL", f"no end after {timeout_s:g} s"
    if done.returncode == 0:
        return "PASS", ""
    lines = (done.stdout + done.stderr).splitlines()
    told = [line.removeprefix("=========").strip() for line in lines if line.startswith("=========")]
    notes = [line for line in told if line and not line.startswith(("COMPUTE-SANITIZER", "Saved host", "Host Frame"))]
    words = notes or [line for line in lines if line.strip()][-3:]
    return "FAIL", f"exit {done.returncode}: " + " | ".join(words[:6])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanitize", description=__doc__)
    parser.add_argument("--leaf", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--tier", default="", metavar="SUBSTR", help="only leaves with SUBSTR in their tier")
    parser.add_argument("--tool", choices=TOOLS, action="append", help="repeatable; default: both")
    parser.add_argument("--jobs", type=int, default=4, help="processes at once (default: 4)")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a process (default: 180)")
    options = parser.parse_args()
    if options.leaf is not None:
        return drive(options.leaf)
    caps = gpu("sanitize")
    sanitizer = next((found for name in CANDIDATES if (found := shutil.which(name))), None)
    if sanitizer is None:
        raise MissingPrerequisite(
            "compute-sanitizer is not installed", expected=f"one of {', '.join(CANDIDATES)}",
            hint="it comes with the CUDA toolkit",
        )  # fmt: skip
    started, failed = time.perf_counter(), 0
    leaves = [leaf for leaf in LEAVES if options.tier in leaf.tier]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        paths = [prepare(leaf, Path(folder), caps) for leaf in leaves]
        plan = [(leaf, tool, path) for leaf, path in zip(leaves, paths, strict=True) for tool in options.tool or TOOLS]
        job: Callable[[Any], tuple[str, str]] = lambda one: run(sanitizer, one[1], one[2], options.timeout)  # noqa: E731
        for (leaf, tool, _), (verdict, note) in zip(plan, pool.map(job, plan), strict=True):
            print(f"{verdict}  {leaf.tier:<24} {tool:<10} {leaf.case}  {note}".rstrip(), flush=True)
            failed += verdict == "FAIL"
    print(f"{len(plan) - failed} passed, {failed} failed in {time.perf_counter() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
