"""The bars as text: every row with its ratio, its share of the ceiling and PASS or FAIL."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.h200_shapes import GROUPS, STREAMS, twin
from emmy.device.base import Capabilities
from emmy.target import TargetKind

BUDGET_S, PATIENCE = 6.0, 50
"""Median wall time of tuning one shape, and the patience that it is asked of."""


@dataclass(slots=True)
class Result:
    """One subject. Latencies in microseconds, times in seconds.

    open_s: tracing and reference data; tune_s: these and the search with its confirmation; screen_s, confirm_s: of the
    search, in the bench; parent_s: of the search, everything else. live: leaves measured. patience: that it was tuned
    with; 0 in results from before it was noted.
    """

    name: str
    status: str = "error"
    reason: str = ""
    protocol: str = ""
    lane: str = "std"
    knobs: str = ""
    emmy_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    eager_us: float | None = None
    tcompile_us: float | None = None
    open_s: float = 0.0
    tune_s: float = 0.0
    total_s: float = 0.0
    screen_s: float = 0.0
    confirm_s: float = 0.0
    parent_s: float = 0.0
    live: int = 0
    offered: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    flops: int = 0
    bytes_min: int = 0
    tensor: bool = False
    registers: int = 0
    spills: int = 0
    sm_clock_mhz: int = 0
    throttle: str = ""
    patience: int = 0

    @property
    def ok(self) -> bool:
        return self.status == "ok" and self.emmy_us is not None

    @property
    def vs_eager(self) -> float | None:
        """eager / emmy."""
        return self.eager_us / self.emmy_us if self.ok and self.eager_us and self.emmy_us else None

    @property
    def vs_best(self) -> float | None:
        """min(eager, torch.compile) / emmy; None without torch.compile."""
        if not self.ok or not self.emmy_us or self.eager_us is None or self.tcompile_us is None:
            return None
        return min(self.eager_us, self.tcompile_us) / self.emmy_us

    def line(self) -> str:
        """Progress: how the subject ended, and where its time went."""
        failed = sum(count for status, count in self.statuses.items() if status != "ok")
        ratio = f", {self.vs_eager:.3f} of eager" if self.vs_eager else ""
        body = f"{self.emmy_us:.2f} us{ratio}" if self.emmy_us else f"{self.status}: {self.reason[:200]}"
        times = (
            f"open {self.open_s:.1f} search {self.tune_s - self.open_s:.1f} (screen {self.screen_s:.1f} "
            f"confirm {self.confirm_s:.1f} parent {self.parent_s:.1f}) total {self.total_s:.1f} s"
        )
        return f"{self.name}: {body}  {self.knobs}  [{self.live} leaves, {failed} failed; {times}]"


@dataclass(frozen=True, slots=True)
class Bar:
    """value: a row's ratio. limit: of the geometric mean; row_limit: of each row. only: rows that belong to the bar.
    every: the limit is of the least ratio. missing: what a row without a ratio lacks."""

    title: str
    value: Callable[[Result, Mapping[str, Result], Mapping[str, Any]], float | None]
    limit: float
    row_limit: float | None = None
    only: Callable[[str], bool] = lambda _: True
    every: bool = False
    missing: str = "no eager"


def _eager(row: Result, rows: Mapping[str, Result], ceilings: Mapping[str, Any]) -> float | None:
    return row.vs_eager


def _best(row: Result, rows: Mapping[str, Result], ceilings: Mapping[str, Any]) -> float | None:
    return row.vs_best


def _twin(row: Result, rows: Mapping[str, Result], ceilings: Mapping[str, Any]) -> float | None:
    other = rows.get(twin(row.name) or "")
    return other.emmy_us / row.emmy_us if other is not None and other.ok and other.emmy_us and row.emmy_us else None


def _stream(row: Result, rows: Mapping[str, Result], ceilings: Mapping[str, Any]) -> float | None:
    us = stream_us(row.name, ceilings)
    return us / row.emmy_us if us and row.emmy_us else None


def stream_us(name: str, ceilings: Mapping[str, Any]) -> float | None:
    """The streaming kernel with the mix and the bytes of a 16384 × 8192 row shape."""
    kind, _, rest = name.partition(".")
    if kind not in STREAMS or not rest.startswith("16384x8192"):
        return None
    size = 16384 * 8192 * (2 if rest.endswith(".fp16") else 4)
    found = ceilings.get(f"{STREAMS[kind]}.{size}")
    return float(found["us"]) if found else None


BARS: dict[str, Bar] = {
    "fp32": Bar("fp32 matmul, eager/emmy", _eager, 1.25, 0.95),
    "fp16": Bar("fp16 matmul on mma.sync, eager/emmy", _eager, 0.95),
    "bf16": Bar(
        "bf16, fp16/bf16 of the same shape",
        _twin,
        0.97,
        only=lambda name: name.endswith(".bf16"),
        missing="no fp16 row",
    ),
    "dyn": Bar(
        "symbolic M, static/dynM", _twin, 0.95, only=lambda name: name.endswith(".dynM"), missing="no static row"
    ),
    "stream": Bar("large row kernels, streaming kernel/emmy", _stream, 0.88, 0.88, every=True, missing="no ceiling"),
    "rows": Bar("row kernels, min(eager, torch.compile)/emmy", _best, 1.4, missing="no torch.compile"),
    "fused": Bar("fused bias + gelu and residual, eager/emmy", _eager, 1.15),
}


def ceiling_share(row: Result, ceilings: Mapping[str, Any], caps: Capabilities) -> float | None:
    """Share of what arithmetic (data sheet) and memory (the streaming kernel of this run) allow."""
    if not row.emmy_us:
        return None
    measured = stream_us(row.name, ceilings)
    if measured:
        return measured / row.emmy_us
    copy = [value["bytes_s"] for name, value in ceilings.items() if name.startswith("copy.")]
    rate = max(copy, default=caps.peak_bytes)
    peak = caps.tensor_flops if row.tensor else caps.peak_flops
    limits = [row.bytes_min / rate if rate else 0.0, row.flops / peak if peak else 0.0]
    return max(limits) * 1e6 / row.emmy_us


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def by_length(ratios: Mapping[str, float]) -> str:
    """Means of the projections by their number of rows (``s128`` in a name), where there are several numbers."""
    parts: dict[int, list[float]] = {}
    for name, ratio in ratios.items():
        if (found := re.search(r"\.s(\d+)\b", name)) is not None:
            parts.setdefault(int(found[1]), []).append(ratio)
    means = [f"{rows} rows {mean(values):.3f}" for rows, values in sorted(parts.items())]
    return f"; {', '.join(means)}" if len(means) > 1 else ""


def report(
    groups: Sequence[str], rows: Mapping[str, Result], ceilings: Mapping[str, Any], caps: Capabilities
) -> tuple[str, bool]:
    """(every bar as text, whether all of them passed)."""
    lines: list[str] = []
    passed = True
    for group in groups:
        bar = BARS[group]
        names = [s.name for s in GROUPS[group] if bar.only(s.name)]
        table = [("shape", "protocol", "emmy", "eager", "compile", "ratio", "ceiling", "")]
        ratios: dict[str, float] = {}
        fine = True
        for name in names:
            row = rows.get(name)
            if row is None:
                table.append((name, "", "", "", "", "", "", "not measured"))
                continue
            ratio, share = bar.value(row, rows, ceilings), ceiling_share(row, ceilings, caps)
            verdict = "" if bar.row_limit is None or ratio is None else _verdict(ratio >= bar.row_limit)
            if not row.ok:
                verdict = f"FAIL {row.status}: {row.reason[:100]}"
            elif ratio is None:
                verdict = bar.missing
            else:
                ratios[name] = ratio
            fine &= not verdict.startswith("FAIL")
            table.append((name, row.protocol, _us(row.emmy_us), _us(row.eager_us), _us(row.tcompile_us),
                          f"{ratio:.3f}" if ratio else "-", f"{share:.2f}" if share else "-", verdict))  # fmt: skip
        found = list(ratios.values())
        value = (min(found) if bar.every else mean(found)) if found else 0.0
        whole = len(ratios) == len(names)
        good = whole and fine and value >= bar.limit
        passed &= good
        kind = "least" if bar.every else "geometric mean"
        state = _verdict(good) if whole or not fine else "INCOMPLETE"
        of = "" if whole else f" of {len(ratios)} of {len(names)}"
        lengths = "" if bar.every else by_length(ratios)
        lines += [f"{state}  {bar.title}: {kind} {value:.3f}{of} (bar {bar.limit:g}){lengths}", *_aligned(table), ""]
    chosen = {subject.name: subject for group in groups for subject in GROUPS[group]}
    searched = [row for row in rows.values() if row.live and row.name in chosen]
    kinds = {row.name: chosen[row.name].target.kind is TargetKind.GOLDEN for row in searched}
    for title, own in (("a shape of the dataset", True), ("another program", False)):
        found_rows = [row for row in searched if kinds[row.name] is own]
        if not found_rows:
            continue
        times = [row.tune_s for row in found_rows]
        quick = statistics.median(times) <= BUDGET_S
        # a search that gave up sooner than the bar allows says nothing about the bar, unless it was too slow even so
        state = "INCOMPLETE" if quick and any(row.patience < PATIENCE for row in found_rows) else _verdict(quick)
        bar = f" (bar {BUDGET_S:g} at patience {PATIENCE})" if own else ""
        passed &= state == "PASS" or not own
        leaves = sum(row.live for row in found_rows)
        lines.append(
            f"{state if own else 'no bar'}  time to tune {title}: median {statistics.median(times):.1f} s, "
            f"mean {mean(times):.1f} s, longest {max(times):.1f} s over {len(times)}{bar}, "
            f"patience {patience_of(found_rows)}; "
            f"a leaf: screen {1e3 * sum(r.screen_s for r in found_rows) / leaves:.0f} ms, "
            f"parent {1e3 * sum(r.parent_s for r in found_rows) / leaves:.0f} ms"
        )
    return "\n".join(lines), passed


def patience_of(rows: Sequence[Result]) -> str:
    """``50``, ``20 to 50`` or ``unknown``: what the rows were tuned with."""
    known = sorted({row.patience for row in rows if row.patience})
    texts = [str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"] if known else []
    return " or ".join(texts + (["unknown"] if not known or any(not row.patience for row in rows) else []))


def _verdict(good: bool) -> str:
    return "PASS" if good else "FAIL"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(
            cell.ljust(width) if place in (0, 1, 7) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip
