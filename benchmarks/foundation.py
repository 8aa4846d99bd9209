"""The bars of the embedded CPU device, each with PASS or FAIL: ``python -m benchmarks.foundation``.

Runs the golden sweep of the quick group cold and then again, reads the A/B of the cold one (greedy pick and eager
PyTorch interleaved in the same processes), times enumeration and start-up, and with ``--tests`` the test suite. Wants
an otherwise idle machine; ``--keep`` judges the device's current sweep instead of running a cold one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from emmy.cli.main import guarded

ROOT = Path(__file__).resolve().parent.parent

RATIOS = {
    "quick.matmul.256": (0.20, 0.5),
    "quick.matmul.512": (0.20, 0.5),
    "quick.rms_norm.1024x4096": (1.2, None),
    "quick.pointwise.1024x4096": (1.2, None),
    "quick.softmax.1024x4096": (0.6, None),
}
"""eager / emmy a shape: the bar, and the aim where there is one."""

LEAVES = 100_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One row: what was measured, the limit, and whether more or less is better."""

    name: str
    value: float
    limit: float
    unit: str
    at_least: bool = False
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "PASS" if self.passed else "FAIL"
        return (
            f"{verdict}  {self.name:<44} {self.value:9.3f} {self.unit:<3} {sign} {self.limit:g}  {self.note}".rstrip()
        )


def timed(command: list[str], **env: str) -> float:
    """Wall seconds of a command. Raises CalledProcessError when it fails."""
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=os.environ | env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def sweeps(keep: bool) -> Iterator[Bar]:
    """The cold sweep, the same again, and the ratios of its A/B."""
    command = [sys.executable, "-m", "flows.golden_sweep", "--group", "quick"]
    if not keep:
        yield Bar("make sweep, cold (set-up not counted)", timed([*command, "--clean"]), 300, "s")
    yield Bar("make sweep, again", timed(command), 60, "s")
    yield from ratios()


def ratios() -> Iterator[Bar]:
    """eager / emmy in the latest sweep: medians over all rounds of the processes that timed both."""
    import polars as pl

    from emmy.config import load
    from emmy.device.registry import capabilities
    from emmy.store import Store

    settings = load()
    store, device = Store(settings.tune_db), capabilities("opencl", settings.work_dir).name
    rows = store.frame("ab").filter(pl.col("sweep") == store.current_sweep(device))
    for shape, (limit, aim) in RATIOS.items():
        own = rows.filter(pl.col("shape") == shape)
        emmy = medians(own.filter((pl.col("origin") == "greedy") & (pl.col("status") == "ok")))
        eager = medians(own.filter((pl.col("origin") == "reference") & (pl.col("status") == "ok")))
        value = statistics.median(eager) / statistics.median(emmy) if emmy and eager else 0.0
        note = f"emmy {statistics.median(emmy):.0f} us, eager {statistics.median(eager):.0f} us" if value else "no A/B"
        yield Bar(f"{shape}: eager / emmy", value, limit, "x", True, note + (f" (aim {aim:g})" if aim else ""))


def medians(rows: object) -> list[float]:
    """Every round of the given A/B rows, in microseconds."""
    import json

    return [value for text in rows["rounds"] for value in json.loads(text)]  # type: ignore[index]


def enumeration() -> Iterator[Bar]:
    """Enumerating, checking and featurising the scalar tier's leaves of a matmul on a GPU target."""
    from emmy.device.registry import cuda_target
    from emmy.frontend import trace
    from emmy.passes.fuse import fuse
    from emmy.schedule import features
    from emmy.schedule.tiers.base import take
    from emmy.schedule.tiers.scalar import ScalarTier
    from emmy.target import Target, TargetKind

    region = fuse(trace(Target(TargetKind.GOLDEN, "square.1024")).region)
    caps, tier = cuda_target("sm_90a"), ScalarTier()

    def run() -> int:
        problem = tier.match(region, caps)
        columns = tier.grid(problem, caps, True)
        allowed, _ = tier.legal(problem, caps, columns)
        features.matrix(int(allowed.sum()), tier.features(problem, caps, take(columns, allowed)))
        return len(allowed)

    count, seconds = best_of(run, 5)
    yield Bar(f"{LEAVES} leaves enumerated, checked, featurised", seconds * LEAVES / count, 2, "s", note=f"of {count}")


def best_of(run: Callable[[], int], times: int) -> tuple[int, float]:
    """(result, fewest seconds)."""
    fewest, result = float("inf"), 0
    for _ in range(times):
        started = time.perf_counter()
        result = run()
        fewest = min(fewest, time.perf_counter() - started)
    return result, fewest


def startup() -> Iterator[Bar]:
    """Wall seconds of the cheapest commands, the best of five."""
    for name, code in (("import emmy", [sys.executable, "-c", "import emmy"]),
                       ("emmy --help", [sys.executable, "-m", "emmy", "--help"])):  # fmt: skip
        yield Bar(name, min(timed(code) for _ in range(5)), 0.4, "s")


def suite() -> Iterator[Bar]:
    """The test suite."""
    yield Bar("make test", timed(["make", "test"]), 600, "s")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.foundation", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="judge the current sweep instead of running a cold one")
    parser.add_argument("--tests", action="store_true", help="time the test suite as well")
    options = parser.parse_args()
    bars: list[Bar] = []
    for group in (startup(), enumeration(), sweeps(options.keep), suite() if options.tests else iter(())):
        for bar in group:
            print(bar, flush=True)
            bars.append(bar)
    failed = sum(not bar.passed for bar in bars)
    print(f"{len(bars) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(guarded(main))
