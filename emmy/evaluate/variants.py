"""``emmy eval variants``: per region the measured configurations, fastest first, and where the prior's pick ranks."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from emmy.bench.stats import DEFAULT
from emmy.evaluate.scope import chosen_rows
from emmy.evaluate.table import knobs_line, number, table
from emmy.store import Store
from emmy.store.views import knob_text

MISSES = DEFAULT.threshold
"""A pick slower than the best by this ratio misses it."""


@dataclass(frozen=True, slots=True)
class VariantLine:
    """One variant. ``us``: microseconds by regime and protocol (``O3 screen.v1.cold``), OK rows only.

    status, error: of its O3 rows where it has any, else of what it has.
    rank: place by the board's ranking column, None for what failed, was abandoned or was not measured there.
    prior, prior_rank, offered: which prior ranked it, at what place among how many leaves; 0 unknown.
    registers, spills, smem_bytes, warnings: what the compiler said of it, where the device tells; spills in bytes a
    thread, warnings (of ptxas) separated by line ends.
    """

    rank: int | None
    us: dict[str, float]
    status: str
    abandoned: bool
    lane: str
    knobs: dict[str, str]
    prior: str
    prior_rank: int
    offered: int
    registers: int
    spills: int
    smem_bytes: int
    warnings: str
    error: str


@dataclass(frozen=True, slots=True)
class PickLine:
    """A prior's pick. rank: among ``measured`` ranked variants, None where it has no latency; ratio: pick/best.

    ranked_by: the column in which rank and ratio hold, where that is not the board's: a pick that was screened in the
    cheap build alone is ranked among the rows of that build.
    """

    prior: str
    rank: int | None
    measured: int
    ratio: float | None
    status: str
    knobs: dict[str, str]
    ranked_by: str = ""

    @property
    def misses(self) -> bool:
        return self.ratio is None or self.ratio > MISSES

    def __str__(self) -> str:
        if self.rank is None:
            return f"{self.prior} pick: {self.status} ({knobs_line(self.knobs)})  <-- misses best"
        flag = "  <-- misses best" if self.misses else ""
        where = f" by {self.ranked_by}" if self.ranked_by else ""
        return f"{self.prior} pick: rank {self.rank}/{self.measured}{where}, {self.ratio:.2f}x of best{flag}"


@dataclass(frozen=True, slots=True)
class Board:
    """The leaderboard of one region on one device in one sweep. ``ranked_by``: the column that orders it."""

    kernel: str
    region: str
    shapes: tuple[str, ...]
    device: str
    sweep: str
    size: str
    columns: tuple[str, ...]
    ranked_by: str
    lines: tuple[VariantLine, ...]
    picks: tuple[PickLine, ...]

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(line.status for line in self.lines))


def leaderboards(store: Store, kernel: str | None = None, sweep: str | None = None) -> list[Board]:
    """A board for each region whose kernel or shape name has ``kernel`` in it, in order of the names.

    sweep: its id; by default each device's newest sweep. Raises InputError for an unknown sweep.
    """
    rows = chosen_rows(store, kernel, sweep)
    if rows.is_empty():
        return []
    variants = store.frame("variant").select("region", "device", "sweep", "knobs", "prior", "rank", "offered")
    boards = []
    for (device, region, of), group in rows.group_by("device", "region", "sweep"):
        own = variants.filter(pl.col("region") == region, pl.col("device") == device, pl.col("sweep") == of)
        boards.append(_board(group, own))
    return sorted(boards, key=lambda board: (board.device, board.kernel, board.shapes, board.region))


def _board(rows: pl.DataFrame, variants: pl.DataFrame) -> Board:
    first = rows.row(0, named=True)
    columns = sorted(
        {_column(regime, protocol) for regime, protocol in rows.select("regime", "protocol").unique().iter_rows()},
        key=lambda name: (not name.startswith("O3"), "confirm" not in name, name),
    )
    usable = rows.filter(pl.col("status") == "ok", ~pl.col("abandoned"), pl.col("median_us").is_not_null())
    ranked_by = _ranking(usable, columns)
    prior_of = {row["knobs"]: row for row in variants.iter_rows(named=True)}
    found = [_line(group.to_dicts(), ranked_by, prior_of.get(str(knobs))) for (knobs,), group in rows.group_by("knobs")]
    timed = sorted(
        (line for line in found if _ranks(line, ranked_by)), key=lambda line: (line.us[ranked_by], str(line.knobs))
    )
    rest = sorted(
        (line for line in found if not _ranks(line, ranked_by)), key=lambda line: _unranked_order(line, columns)
    )
    lines = [_with_rank(line, place) for place, line in enumerate(timed, start=1)] + rest
    return Board(
        kernel=first["kernel"],
        region=first["region"],
        shapes=tuple(sorted({name for name in rows["shape"] if name})),
        device=first["device"],
        sweep=first["sweep"],
        size=first["size"],
        columns=tuple(columns),
        ranked_by=ranked_by,
        lines=tuple(lines),
        picks=tuple(_picks(lines, ranked_by, usable, len(timed), prior_of)),
    )


def _column(regime: str, protocol: str) -> str:
    return f"{regime} {protocol}"


def _ranking(usable: pl.DataFrame, columns: Sequence[str]) -> str:
    """The deployable build's screening where there is one, else the fullest column.

    Every variant has it, but where the cheap build screened: there those have it that were measured again.
    """
    counts = Counter(_column(r, p) for r, p in usable.select("regime", "protocol").iter_rows())
    screened = [name for name in columns if name.startswith("O3 screen") and counts[name]]
    return max(screened or columns, key=lambda name: (counts[name], name))


def _line(rows: list[dict[str, Any]], ranked_by: str, prior: dict[str, Any] | None) -> VariantLine:
    by_column = {_column(row["regime"], row["protocol"]): row for row in rows}
    main = by_column.get(ranked_by, rows[0])
    deployable = [row for row in by_column.values() if row["regime"] == "O3"] or list(by_column.values())
    bad = next((row for row in deployable if row["status"] != "ok"), None)
    shown = bad or main
    us = {
        name: row["median_us"]
        for name, row in by_column.items()
        if row["status"] == "ok" and row["median_us"] is not None
    }
    prior = prior or {"prior": "", "rank": 0, "offered": 0}
    return VariantLine(
        rank=None,
        us=us,
        status=shown["status"],
        abandoned=main["abandoned"],
        lane=main["lane"],
        knobs=_knobs(main["knobs"]),
        prior=prior["prior"],
        prior_rank=prior["rank"],
        offered=prior["offered"],
        registers=main["registers"],
        spills=main["spills"],
        smem_bytes=main["smem_bytes"],
        warnings=main["warnings"],
        error=shown["error"],
    )


def _ranks(line: VariantLine, ranked_by: str) -> bool:
    return line.status == "ok" and not line.abandoned and ranked_by in line.us


def _unranked_order(line: VariantLine, columns: Sequence[str]) -> tuple[bool, str, int, float, str]:
    """By the first column in which a line has a latency, since latencies of two columns are not compared."""
    place = next((n for n, name in enumerate(columns) if name in line.us), len(columns))
    return line.status != "ok", line.status, place, line.us[columns[place]] if line.us else 0.0, str(line.knobs)


def _with_rank(line: VariantLine, rank: int) -> VariantLine:
    return replace(line, rank=rank)


def _picks(
    lines: list[VariantLine], ranked_by: str, usable: pl.DataFrame, measured: int, priors: dict[str, dict[str, Any]]
) -> list[PickLine]:
    best = lines[0].us[ranked_by] if measured else None
    picks = []
    for line in lines:
        if line.prior and line.prior_rank == 1:
            ratio = line.us[ranked_by] / best if line.rank is not None and best else None
            pick = PickLine(line.prior, line.rank, measured, ratio, _why(line, ranked_by), line.knobs)
            picks.append(_in_cheap_build(pick, line, usable) if line.rank is None else pick)
    names = {line.prior for line in lines if line.prior}
    seen = {pick.prior for pick in picks}
    for name in sorted(names - seen):
        knobs = next((k for k, row in priors.items() if row["prior"] == name and row["rank"] == 1), "")
        picks.append(PickLine(name, None, measured, None, "not measured", _knobs(knobs)))
    return picks


def _in_cheap_build(pick: PickLine, line: VariantLine, usable: pl.DataFrame) -> PickLine:
    """A pick that was screened in the cheap build alone, ranked among the usable rows of that column."""
    column = next(iter(line.us), "")
    if len(line.us) != 1 or not column.startswith("O1 ") or line.status != "ok" or line.abandoned:
        return pick
    regime, _, protocol = column.partition(" ")
    rows = usable.filter(pl.col("regime") == regime, pl.col("protocol") == protocol)
    timed = rows["median_us"].sort().to_list()
    place, ratio = timed.index(line.us[column]) + 1, line.us[column] / timed[0]
    return replace(pick, rank=place, measured=len(timed), ratio=ratio, ranked_by=column, status="ok")


def _why(line: VariantLine, ranked_by: str) -> str:
    """``ok``, or why the line has no rank."""
    if line.rank is not None or line.status != "ok":
        return line.status
    return "abandoned" if line.abandoned else f"not measured under {ranked_by}"


def _knobs(text: str) -> dict[str, str]:
    return {name: knob_text(value) for name, value in json.loads(text).items()} if text else {}


# ------------------------------------------------------------------------------------------------------------ output


def text(boards: Sequence[Board], top: int = 20) -> str:
    """The boards as aligned text; of each the fastest ``top`` (0: all) and every pick."""
    return "\n\n".join(_board_text(board, top) for board in boards)


def _board_text(board: Board, top: int) -> str:
    names = f" ({', '.join(board.shapes)})" if board.shapes else ""
    size = f", benched at {board.size} (symbolic hint)" if board.size else ""
    counts = ", ".join(
        f"{count} {status}" for status, count in sorted(board.counts.items(), key=lambda item: item[0] != "ok")
    )
    head = [
        f"{board.kernel}{names} on {board.device}, sweep {board.sweep}{size}",
        f"  {len(board.lines)} variants: {counts}; ranked by {board.ranked_by}, microseconds",
        *(f"  {pick}" for pick in board.picks),
    ]
    if not board.picks:
        head.append("  no prior ranked these variants")
    shown = [line for place, line in enumerate(board.lines) if top == 0 or place < top or line.prior_rank == 1]
    header = ["rank", *board.columns, "status", "lane", "prior rank", "regs", "spills", "smem", "warnings", "", "knobs"]
    cells = [_cells(board, line) for line in shown]
    right = [0, *range(1, len(board.columns) + 1), *(len(board.columns) + offset for offset in (3, 4, 5, 6))]
    body = table(header, cells, right)
    left_out = len(board.lines) - len(shown)
    more = f"\n  … {left_out} more (--top 0 shows all)" if left_out else ""
    return "\n".join(head) + "\n" + body + more


def _cells(board: Board, line: VariantLine) -> list[str]:
    status = "abandoned" if line.status == "ok" and line.abandoned else line.status
    place = f"{line.prior_rank}/{line.offered}" if line.prior_rank else "-"
    mark = f"<- {line.prior} pick" if line.prior and line.prior_rank == 1 else ""
    return [
        str(line.rank) if line.rank is not None else "-",
        *(number(line.us.get(column)) for column in board.columns),
        status,
        line.lane,
        place,
        str(line.registers) if line.registers else "-",
        str(line.spills) if line.registers else "-",
        str(line.smem_bytes) if line.smem_bytes else "-",
        _codes(line.warnings),
        mark,
        knobs_line(line.knobs),
    ]


def _codes(warnings: str) -> str:
    """ptxas warnings by their codes; one without a code by its first words."""
    found = [re.search(r"C7\d{3}", text) for text in warnings.splitlines()]
    texts = [code[0] if code else text[:24] for code, text in zip(found, warnings.splitlines(), strict=True)]
    return " ".join(dict.fromkeys(texts)) or "-"


def to_json(boards: Sequence[Board]) -> list[dict[str, Any]]:
    """Plain values: the fields of ``Board``, with ``counts``, and ``misses`` of each pick."""
    return [
        asdict(board)
        | {"counts": board.counts, "picks": [asdict(pick) | {"misses": pick.misses} for pick in board.picks]}
        for board in boards
    ]
