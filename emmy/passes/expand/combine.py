"""Expands Combine: a monoid over the threads of a group becomes warp shuffles (CUDA) and a tree in shared memory.

A reduction stands between a row's loads and its stores, so that every step of it is time that nothing else fills:
shuffles wait for each other (some 25 cycles each), shared memory is read once, as vectors, by every thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from emmy.errors import EmmyError
from emmy.ir.expr import Expr, Lane, Mem, Var, call, i32, lt, select, transform
from emmy.ir.kernel import (
    TID,
    Barrier,
    Combine,
    For,
    If,
    Kernel,
    Let,
    RegSet,
    ShuffleXor,
    Stmt,
    Store,
    rewrite,
    statements,
)
from emmy.ir.monoid import MONOIDS, rescale

WARP = 32
MOST_READ = 8
"""Most tuples that every thread reads: two accesses of 128 bits, where a butterfly of them takes three shuffles."""


class Names:
    """Hands out names that no statement uses yet."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_c{self.count}"


def expand_combine(kernel: Kernel, *, shuffles: bool) -> Kernel:
    """``kernel`` without Combine statements. ``shuffles``: whether threads of a warp can exchange registers.

    Raises EmmyError for a group that is not a power of two, or larger than the block.
    """
    names = Names()

    used = Counter(name for s in statements(kernel.body) if isinstance(s, Combine) for name in s.scratch)

    def expand(body: tuple[Stmt, ...], looped: bool) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Combine):
                again = looped or any(used[name] > 1 for name in stmt.scratch)
                out += _expand(kernel, stmt, names, shuffles, again)
            else:
                inside = looped or isinstance(stmt, For)
                out.append(rewrite(stmt, lambda e: e, lambda inner, inside=inside: expand(inner, inside)))  # type: ignore[misc]
        return tuple(out)

    return replace(kernel, body=expand(kernel.body, False))


def _expand(kernel: Kernel, stmt: Combine, names: Names, shuffles: bool, again: bool) -> Iterator[Stmt]:
    group = stmt.group
    if group & (group - 1) or group < 1 or kernel.threads % group:
        raise EmmyError(f"{kernel.name}: cannot combine over {group} of {kernel.threads} threads",
                        expected="a power of two that divides the block")  # fmt: skip
    if group == 1:
        return
    if not shuffles:
        yield from _tree(stmt, names)
    else:
        yield from _shuffle(stmt, names, min(group, WARP))
        if group > WARP:
            yield from _across_warps(kernel, stmt, names)
            if again:  # its scratch is written once more, which has to wait for these reads
                yield Barrier()


def merged(monoid: str, left: tuple[Expr, ...], right: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The monoid's tuple of two, its variables bound to ``left`` and ``right``; result types follow the operands."""
    algebra = MONOIDS[monoid]
    bound = {f"a{k}": e for k, e in enumerate(left)} | {f"b{k}": e for k, e in enumerate(right)}

    def bind(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return bound.get(node.name)
        return None

    return tuple(transform(e, bind) for e in algebra.combine)


def _assign(stmt: Combine, names: Names, values: tuple[Expr, ...]) -> Iterator[Stmt]:
    """All components at once: every one may read the old value of every other."""
    if len(values) == 1:
        yield RegSet(stmt.regs[0], values[0])
        return
    lets = [Let(names("merged"), value) for value in values]
    yield from lets
    for reg, let in zip(stmt.regs, lets, strict=True):
        yield RegSet(reg, let.var)


def _shuffle(stmt: Combine, names: Names, width: int) -> Iterator[Stmt]:
    """A butterfly over ``width`` consecutive lanes: every lane ends with the same tuple."""
    if stmt.monoid == "online_softmax":
        yield from _shuffle_softmax(stmt, names, width)
        return
    mask = width // 2
    while mask:
        others = [ShuffleXor(names("other"), reg, mask) for reg in stmt.regs]
        yield from others
        mine, theirs = tuple(stmt.regs), tuple(other.var for other in others)
        if len(mine) > 1:
            # rounding may depend on the order of operands: the lower lane stands left, so that all lanes agree
            upper = call("ne", call("bitand", TID, i32(mask)), i32(0))
            left = tuple(select(upper, b, a) for a, b in zip(mine, theirs, strict=True))
            right = tuple(select(upper, a, b) for a, b in zip(mine, theirs, strict=True))
            yield from _assign(stmt, names, merged(stmt.monoid, left, right))
        else:
            yield from _assign(stmt, names, merged(stmt.monoid, mine, theirs))
        mask //= 2


def _shuffle_softmax(stmt: Combine, names: Names, width: int) -> Iterator[Stmt]:
    """The maximum first, then the sum: one exponential a lane where the pair takes two at every step."""
    top, total = stmt.regs
    before = Let(names("before"), top)
    yield before
    yield from _shuffle(replace(stmt, monoid="max", regs=(top,)), names, width)
    yield RegSet(total, total * rescale(before.var, top))
    yield from _shuffle(replace(stmt, monoid="sum", regs=(total,)), names, width)


def _write(stmt: Combine, slot: Expr, guard: Expr | None = None) -> Iterator[Stmt]:
    for name, reg in zip(stmt.scratch, stmt.regs, strict=True):
        yield Store(name, slot, reg, reg.dtype, guard)


def _read(stmt: Combine, slot: Expr) -> tuple[Mem, ...]:
    return tuple(Mem(name, slot, reg.dtype) for name, reg in zip(stmt.scratch, stmt.regs, strict=True))


def _across_warps(kernel: Kernel, stmt: Combine, names: Names) -> Iterator[Stmt]:
    """One tuple a warp through shared memory; then every thread merges those of the group's warps.

    Few tuples are read whole by every thread; of many (or where merging is dear) each lane reads one, and a butterfly
    follows.
    """
    warps = stmt.group // WARP
    lane, warp = TID % WARP, TID // WARP
    yield from _write(stmt, warp, call("eq", lane, i32(0)))
    yield Barrier()
    first = i32(0) if stmt.group == kernel.threads else TID // stmt.group * warps
    if len(stmt.regs) == 1 and warps <= MOST_READ:
        (reg,), (name,) = stmt.regs, stmt.scratch
        shares = Let(names("shares"), Mem(name, first, reg.dtype, warps, aligned=True))
        yield shares
        tuples: list[Expr] = [Lane(shares.var, k) for k in range(warps)]
        while len(tuples) > 1:
            joined = [Let(names("joined"), *merged(stmt.monoid, (a,), (b,))) for a, b in _pairs(tuples)]
            yield from joined
            tuples = [let.var for let in joined]
        yield RegSet(reg, tuples[0])
        return
    for reg, value in zip(stmt.regs, _read(stmt, first + TID % warps), strict=True):
        yield RegSet(reg, value)
    yield from _shuffle(stmt, names, warps)


def _pairs(items: list[Expr]) -> Iterator[tuple[Expr, Expr]]:
    """Neighbours in pairs."""
    return zip(items[::2], items[1::2], strict=True)


def _tree(stmt: Combine, names: Names) -> Iterator[Stmt]:
    """Halves the number of tuples at each step; the group's first slot holds the result."""
    lane = TID % stmt.group
    yield from _write(stmt, TID)
    yield Barrier()
    half = stmt.group // 2
    while half:
        others = [Let(names("other"), value) for value in _read(stmt, TID + half)]
        values = merged(stmt.monoid, tuple(stmt.regs), tuple(other.var for other in others))
        inner = (*others, *_assign(stmt, names, values), *_write(stmt, TID))
        yield If(lt(lane, i32(half)), inner)
        yield Barrier()
        half //= 2
    for reg, value in zip(stmt.regs, _read(stmt, TID - lane), strict=True):
        yield RegSet(reg, value)
    yield Barrier()
