"""A leaf of fused attention, and the shared memory it takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionLeaf:
    """The parameters of one leaf.

    n, m: threads; fm: query rows a thread, in vectors of ``lanes``; fq: keys a thread a pass over the scores; fp: value
    columns a thread a pass over the output; bk: keys a block. stage: keys and values go through shared memory.
    fast_exp: the device's approximate exponential.
    """

    n: int
    m: int
    fm: int
    fq: int
    fp: int
    bk: int
    lanes: int
    stage: bool = False
    fast_exp: bool = False

    @property
    def threads(self) -> int:
        return self.n * self.m

    @property
    def rows(self) -> int:
        """Query rows a block."""
        return self.m * self.fm

    @property
    def vectors(self) -> int:
        """Row vectors a thread."""
        return self.fm // self.lanes


def pitches(leaf: AttentionLeaf, d: int) -> int:
    """Elements from one staged key to the next; odd where threads read a column of them."""
    return d + 1 if leaf.n > 1 and d % 2 == 0 else d


def shared_elements(leaf: AttentionLeaf, d: int, c: int) -> dict[str, int]:
    """float32 elements of each shared array of a leaf."""
    found = {"queries": d * leaf.rows, "weights": leaf.bk * leaf.rows}
    if c != leaf.n * leaf.fp or leaf.lanes > 1:
        found["result"] = c * leaf.rows
    if leaf.stage:
        found["keys"] = leaf.bk * pitches(leaf, d)
        found["values"] = leaf.bk * c
    if leaf.n > 1:
        found["scratch"] = leaf.threads
    return found
