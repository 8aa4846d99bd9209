"""The parameters of a row leaf."""

from __future__ import annotations

from dataclasses import dataclass

from emmy.ir.expr import Expr

LATE_BYTES = 128
"""What a thread reads ahead for later sweeps, at most; more would cost it too many registers."""


@dataclass(frozen=True, slots=True)
class RowLeaf:
    """The parameters of one row leaf.

    rows: rows a block. vec: elements a thread takes a step. access: elements of one memory access (vec is a multiple).
    residency: ``reg``, ``smem`` or ``reread``. threads: threads that share a row. parts: blocks that share a row;
    atomic: they join by atomics. spread: the rows of a block have threads of their own (a GPU).
    """

    rows: int
    vec: int
    access: int
    residency: str
    threads: int = 1
    parts: int = 1
    atomic: bool = False
    spread: bool = False
    fast_exp: bool = False

    @property
    def slots(self) -> int:
        """Accesses a step."""
        return self.vec // self.access


@dataclass(frozen=True, slots=True)
class Span:
    """The columns a thread's block walks: from ``start``, ``count`` of them."""

    start: Expr
    count: Expr
