"""One thing wrong in a program that is right: the interpreter says so, by a fault or by a wrong result.

Results alone would not do: a simulation in a fixed order often computes the right numbers with a barrier missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from emmy.ir.expr import Expr, call, i32
from emmy.ir.fragment import Swizzle
from emmy.ir.interp import KernelFault, TensorMap, run_kernel
from emmy.ir.kernel import Barrier, ClusterBarrier, For, If, Kernel, PeerStore, Stmt, rewrite, statements
from emmy.ir.pipeline import (
    Acquire,
    BarrierArrive,
    BarrierExpect,
    BarrierWait,
    Commit,
    Copy,
    CopyCommit,
    CopyWait,
    Fill,
    Release,
    TensorCopy,
    Wait,
    WgmmaCommit,
    WgmmaFence,
    WgmmaWait,
)
from emmy.passes.expand import expand
from tests.programs import mma_matmul
from tests.programs.test_programs import PROGRAMS

Change = Callable[[Stmt], tuple[Stmt, ...]]


def mutate(kernel: Kernel, kind: type[Stmt], nth: int, change: Change) -> Kernel:
    """``kernel`` with its ``nth`` statement of ``kind`` replaced by ``change`` of it."""
    seen = 0

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal seen
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, kind):
                seen += 1
                if seen == nth + 1:
                    out += change(stmt)
                    continue
            out.append(rewrite(stmt, lambda e: e, body))
        return tuple(out)

    changed = replace(kernel, body=body(kernel.body))
    assert seen > nth, f"{kernel.name} has {seen} statements of kind {kind.__name__}"
    return changed


def drop(_: Stmt) -> tuple[Stmt, ...]:
    return ()


def shift_parity(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, BarrierWait)
    return (replace(stmt, parity=call("bitxor", stmt.parity, i32(1))),)


def shift_step(stmt: Stmt) -> tuple[Stmt, ...]:
    step: Expr = stmt.step + 1  # type: ignore[attr-defined]
    return (replace(stmt, step=step),)  # type: ignore[call-overload, no-any-return]


def one_more_pending(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, CopyWait)
    return (CopyWait(stmt.pending + 1),)


def fewer_bytes(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, BarrierExpect)
    return (replace(stmt, nbytes=stmt.nbytes - 16),)


def next_rank(stmt: Stmt) -> tuple[Stmt, ...]:
    assert isinstance(stmt, PeerStore)
    return (replace(stmt, rank=(stmt.rank + 1) % 4),)


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(stmt, kind) for stmt in statements(kernel.body))


EXPANDED = {name: expand(program.kernel, "cuda") for name, program in PROGRAMS.items()}

DROPPED = {
    "rings": (Acquire, Fill, Commit, Wait, Release),
    "expanded": (Barrier, CopyCommit, CopyWait, BarrierWait, BarrierArrive, BarrierExpect, TensorCopy, WgmmaFence,
                 WgmmaCommit, WgmmaWait, ClusterBarrier, PeerStore),
}  # fmt: skip


def cases() -> list[tuple[str, str, type[Stmt], int, Change]]:
    """(program, level, statement, which of them, what is done to it)."""
    out: list[tuple[str, str, type[Stmt], int, Change]] = []
    for name, program in PROGRAMS.items():
        for level, kernel in (("rings", program.kernel), ("expanded", EXPANDED[name])):
            out += [(name, level, kind, nth, drop) for kind in DROPPED[level] for nth in range(count(kernel, kind))]
        out += [(name, "rings", kind, nth, shift_step) for kind in (Wait, Release, Acquire)
                for nth in range(count(program.kernel, kind))]  # fmt: skip
        expanded = EXPANDED[name]
        out += [(name, "expanded", BarrierWait, nth, shift_parity) for nth in range(count(expanded, BarrierWait))]
        out += [(name, "expanded", CopyWait, nth, one_more_pending) for nth in range(count(expanded, CopyWait))]
        out += [(name, "expanded", BarrierExpect, nth, fewer_bytes) for nth in range(count(expanded, BarrierExpect))]
        out += [(name, "expanded", PeerStore, nth, next_rank) for nth in range(count(expanded, PeerStore))]
    return out


def caught(name: str, kernel: Kernel) -> bool:
    """Whether the interpreter faults, or the result is wrong."""
    program = PROGRAMS[name]
    grid, args, out, oracle = program.case()
    try:
        run_kernel(kernel, grid, args, blocks=[(0, 0, 0)] if name == "wgmma_matmul" else None)
    except KernelFault:
        return True
    got = args[out].astype(np.float64)
    written = ~np.isnan(got) if name == "wgmma_matmul" else np.ones(got.shape, bool)
    return not np.allclose(got[written], oracle[written], atol=program.tolerance, rtol=program.tolerance)


@pytest.mark.parametrize(
    ("name", "level", "kind", "nth", "change"), cases(), ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_mutation_is_caught(name: str, level: str, kind: type[Stmt], nth: int, change: Change) -> None:
    kernel = PROGRAMS[name].kernel if level == "rings" else EXPANDED[name]
    assert caught(name, mutate(kernel, kind, nth, change))


def test_the_harness_passes_what_is_right() -> None:
    for name, program in PROGRAMS.items():
        assert not caught(name, program.kernel)
        assert not caught(name, EXPANDED[name])


def test_wrong_swizzle_of_a_copy() -> None:
    assert caught("mma_matmul", mma_matmul.matmul(72, 80, swizzle_b=Swizzle(2)))


def test_wrong_swizzle_of_a_tensor_map() -> None:
    program = PROGRAMS["wgmma_matmul"]
    grid, args, out, oracle = program.case()
    args["b_map"] = TensorMap(args["b_map"].array, (128, 64), 64)
    run_kernel(EXPANDED["wgmma_matmul"], grid, args)
    assert not np.allclose(args[out], oracle, atol=1e-2)


def test_release_before_the_atoms_are_done() -> None:
    """The wait for the atoms moves behind the arrival that frees the slot."""
    late: list[Stmt] = []

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for stmt in stmts:
            if isinstance(stmt, WgmmaWait):
                late.append(stmt)
                continue
            out.append(rewrite(stmt, lambda e: e, body))
            frees = isinstance(stmt, Release) or (
                isinstance(stmt, If) and any(isinstance(s, BarrierArrive) for s in stmt.then)
            )
            if late and frees:
                out.append(late.pop())
        return tuple(out)

    for kernel in (PROGRAMS["wgmma_matmul"].kernel, EXPANDED["wgmma_matmul"]):
        assert caught("wgmma_matmul", replace(kernel, body=body(kernel.body)))


def test_loops_and_copies_exist() -> None:
    """The mutations above have something to work on."""
    assert count(EXPANDED["mma_matmul"], For) == 1
    assert count(EXPANDED["attention"], Copy) > 0
    assert len(cases()) > 60
