"""Aligned text tables of the eval views."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Columns as wide as their widest cell; those numbered in ``right`` aligned right; no trailing blanks."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        indent
        + "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float | None, digits: int = 4) -> str:
    """``digits`` significant digits without an exponent; ``-`` for None."""
    if value is None:
        return "-"
    decimals = max(0, digits - len(f"{abs(value):.0f}"))
    return f"{value:.{decimals}f}"


def knobs_line(knobs: dict[str, str]) -> str:
    """``TILE=n16x8 STAGE=d2/sync``: what is decided to something else than off."""
    return " ".join(f"{name}={value}" for name, value in knobs.items() if value not in ("", "false")) or "(all off)"
