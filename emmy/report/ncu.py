"""Nsight Compute: a few counters of emmy's kernels and of the reference's, side by side."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from emmy.errors import EmmyError
from emmy.evaluate.table import table

FILES = ("61_ncu_metrics.csv", "61_ncu_metrics.json")
TOOLKITS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute")
DEADLINE_S = 600.0

METRICS: dict[str, tuple[str, float]] = {
    "duration_us": ("gpu__time_duration.sum", 1e-3),
    "occupancy_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1.0),
    "sm_pct": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 1.0),
    "dram_pct": ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 1.0),
    "fma_pct": ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", 1.0),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 1.0),
    "lsu_instructions": ("sm__inst_executed_pipe_lsu.sum", 1.0),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", 1.0),
    "dram_bytes": ("dram__bytes.sum", 1.0),
    "registers": ("launch__registers_per_thread", 1.0),
}
"""What is shown → (ncu's metric, factor from its base unit): nanoseconds, percent, counts, bytes."""

_UNITS = {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
          "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}  # fmt: skip
"""Factor to the base unit, should ncu have scaled a value all the same."""


class Unavailable(EmmyError):
    """Counters cannot be read on this machine: no ncu, or no permission. Nothing is wrong with the program."""


class ProfileFailed(EmmyError):
    """ncu ran and failed."""


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One launch. side: ``emmy`` or ``reference``. values: by the names of METRICS; None where ncu has no value."""

    side: str
    kernel: str
    grid: str
    block: str
    values: dict[str, float | None]


def find_ncu() -> str:
    """Path of ncu. Raises Unavailable."""
    found = shutil.which("ncu")
    for place in TOOLKITS:
        if found is None:
            hits = [*Path(place).glob("ncu"), *sorted(Path(place).glob("*/ncu"), reverse=True)]
            found = next((str(path) for path in hits), None)
    if found is None:
        raise Unavailable("ncu is not installed", hint="it comes with the CUDA toolkit (Nsight Compute)")
    return found


def command(ncu: str, program: Sequence[str], metrics: Sequence[str]) -> list[str]:
    """ncu around ``program``: clocks are left as they are, and only what the program brackets is counted."""
    flags = [
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
    ]
    return [ncu, *flags, "--metrics", ",".join(metrics), *program]


def profile(
    program: Sequence[str], own: Sequence[str], deadline_s: float = DEADLINE_S, ncu: str | None = None
) -> list[KernelProfile]:
    """Runs ``program`` under ncu. ``own``: names of emmy's kernels; all others are the reference's.

    A metric that this ncu does not have is left out. Raises Unavailable, ProfileFailed.
    """
    ncu = ncu or find_ncu()
    metrics = [name for name, _ in METRICS.values()]
    while True:
        try:
            done = subprocess.run(
                command(ncu, program, metrics), capture_output=True, text=True, timeout=deadline_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise ProfileFailed("ncu", found=f"no end after {deadline_s:g} s") from None
        text = done.stdout + done.stderr
        if "ERR_NVGPUCTRPERM" in text:
            hint = "an administrator can set NVreg_RestrictProfilingToAdminUsers=0, or give the container SYS_ADMIN"
            raise Unavailable("no permission to read GPU performance counters (ERR_NVGPUCTRPERM)", hint=hint)
        unknown = [name for name in metrics if re.search(rf"Failed to find metric \S*{re.escape(name)}", text)]
        if not unknown:
            break
        metrics = [name for name in metrics if name not in unknown]
    found = parse(done.stdout, own)
    if not found:
        told = [line.strip() for line in text.splitlines() if line.startswith("==ERROR==")] or text.splitlines()[-3:]
        raise ProfileFailed("ncu counted no kernel", found=f"exit code {done.returncode}: {' | '.join(told)[:500]}")
    return found


def parse(text: str, own: Sequence[str]) -> list[KernelProfile]:
    """Launches out of ncu's ``--csv --page raw`` output: a header, a line of units, a line a launch, notes between."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    units: dict[str, str] = {}
    found: list[KernelProfile] = []
    for row in rows:
        if not row["ID"]:
            units = row
            continue
        name = row["Kernel Name"]
        plain = re.split(r"[(<]", name)[0].split()[-1] if name else ""
        values = {
            label: _number(row.get(metric), units.get(metric, ""), factor)
            for label, (metric, factor) in METRICS.items()
        }
        side = "emmy" if plain in own else "reference"
        found.append(KernelProfile(side, name, row["Grid Size"], row["Block Size"], values))
    return found


def _number(text: str | None, unit: str, factor: float) -> float | None:
    """A cell in the unit that is shown; ncu groups thousands by commas."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value * _UNITS.get(unit, 1.0) * factor


def text(kernels: Sequence[KernelProfile]) -> str:
    """emmy's launches, then the reference's, and the sum of each side's durations."""
    header = ("", "kernel", "us", "occ %", "SM %", "DRAM %", "FMA %", "tensor %", "LSU inst", "bank confl", "DRAM MB",
              "regs", "grid", "block")  # fmt: skip
    lines = []
    for side in ("emmy", "reference"):
        own = [kernel for kernel in kernels if kernel.side == side]
        for kernel in own:
            v = kernel.values
            megabytes = v["dram_bytes"] / 1e6 if v["dram_bytes"] is not None else None
            shown = (v["duration_us"], v["occupancy_pct"], v["sm_pct"], v["dram_pct"], v["fma_pct"], v["tensor_pct"],
                     v["lsu_instructions"], v["bank_conflicts"], megabytes, v["registers"])  # fmt: skip
            lines.append((side, _short(kernel.kernel), *map(_cell, shown), kernel.grid, kernel.block))
        if len(own) > 1:
            total = sum(kernel.values["duration_us"] or 0.0 for kernel in own)
            lines.append((side, "all", _cell(total), *[""] * 11))
    return table(header, lines, right=tuple(range(2, 12)))


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _short(name: str, width: int = 48) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def write(kernels: Sequence[KernelProfile], folder: Path) -> list[Path]:
    """Both files of a profile; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in FILES]
    with paths[0].open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["side", "kernel", "grid", "block", *METRICS])
        for kernel in kernels:
            cells = ["" if value is None else f"{value:.6g}" for value in kernel.values.values()]
            out.writerow([kernel.side, kernel.kernel, kernel.grid, kernel.block, *cells])
    content = {"metrics": {label: metric for label, (metric, _) in METRICS.items()},
               "kernels": [asdict(kernel) for kernel in kernels]}  # fmt: skip
    paths[1].write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return paths
