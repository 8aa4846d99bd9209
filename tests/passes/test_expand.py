"""Late passes: unrolling, ring loops, partition into roles, plain divisions, vector widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emmy.errors import EmmyError
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Lane, Mem, Pack, Var, call, i32, lt
from emmy.ir.interp import run_kernel
from emmy.ir.kernel import (
    TID,
    TX,
    Barrier,
    BufferParam,
    Combine,
    For,
    If,
    Kernel,
    Let,
    RegArray,
    RegSet,
    ScalarParam,
    Shared,
    Stmt,
    Store,
    statements,
)
from emmy.ir.pipeline import (
    Acquire,
    BarrierWait,
    Commit,
    Copy,
    CopyCommit,
    CopyWait,
    Fill,
    Release,
    Ring,
    RingStmt,
    Wait,
)
from emmy.passes.division import plain_divisions
from emmy.passes.expand import expand
from emmy.passes.expand.combine import expand_combine
from emmy.passes.expand.needs import pruned
from emmy.passes.expand.roles import partition
from emmy.passes.expand.unroll import unroll
from emmy.passes.legalize import legalize

ACC = RegArray("acc", DType.F32, (2,), 4, 0.0)
REG = RegArray("now", DType.F32, (1,))


def kernel(*body: Stmt, shared: tuple[Shared, ...] = ()) -> Kernel:
    params = (BufferParam("x", DType.F32), BufferParam("y", DType.F32, True), ScalarParam("n"))
    return Kernel("k_small", params, (64, 1), body, shared)


def test_unrolled_iterations_have_names_of_their_own() -> None:
    i, j = Var("i"), Var("j")
    inner = (Let("v", Mem("x", i * 2 + j, DType.F32)), Store("y", i * 2 + j, Var("v", DType.F32), DType.F32))
    nest = For("i", i32(0), i32(2), i32(1), (For("j", i, i32(2), i32(1), inner, "full"),), "full")
    body = unroll(kernel(nest)).body
    assert [s.name for s in body if isinstance(s, Let)] == ["v_0_0", "v_0_1", "v_1_1"]
    assert [s.offset for s in body if isinstance(s, Store)] == [i32(0), i32(1), i32(3)]
    assert [s.value for s in body if isinstance(s, Store)] == [Var(n, DType.F32) for n in ("v_0_0", "v_0_1", "v_1_1")]


def test_conditions_that_became_constant_are_gone() -> None:
    store = Store("y", Var("i"), Mem("x", TX, DType.F32), DType.F32)
    loop = For("i", i32(0), i32(3), i32(1), (If(lt(Var("i"), i32(2)), (store,), (Barrier(),)),), "full")
    assert [type(s) for s in unroll(kernel(loop)).body] == [Store, Store, Barrier]


def test_unrolling_needs_constant_bounds() -> None:
    with pytest.raises(EmmyError, match="not constant"):
        unroll(kernel(For("i", i32(0), Var("n"), i32(1), (), "full")))


def ring_loop(depth: int, transport: str = "async", stop: int = 9) -> Kernel:
    step = Var("step")
    ring = Ring("r", ("tile",), depth, transport, 64)
    at = Let("at", step * 64 + TX)
    copy = Copy("tile", ring.slot(step) * 64 + TX, "x", at.var, 1, DType.F32)
    use = Store("y", step * 64 + TX, Mem("tile", ring.slot(step) * 64 + TX, DType.F32), DType.F32)
    body = (
        at,
        Acquire("r", step),
        Fill("r", step, (copy,)),
        Commit("r", step),
        Wait("r", step),
        use,
        Release("r", step),
    )
    return kernel(ring, For("step", i32(0), i32(stop), i32(1), body), shared=(Shared("tile", DType.F32, depth * 64),))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_ring_loop_runs_ahead(depth: int) -> None:
    late = expand(ring_loop(depth), "cuda")
    *prologue, loop = late.body
    assert isinstance(loop, For)
    assert sum(isinstance(s, Copy) for s in prologue) == depth - 1
    assert sum(isinstance(s, CopyCommit) for s in prologue) == depth - 1
    waits = [s for s in loop.body if isinstance(s, CopyWait)]
    assert [s.pending for s in waits] == [depth - 2]
    guards = [s.cond for s in loop.body if isinstance(s, If)]
    assert guards == [lt(Var("step") + (depth - 1), i32(9))]
    assert sum(isinstance(s, Barrier) for s in statements(late.body)) == 1
    assert not any(isinstance(s, RingStmt | Ring) for s in statements(late.body))


def overlapping_loop(depth: int, last: Expr) -> Kernel:
    """Each thread's element of a slot is read into a register at once; ``last``: what is stored after the release."""
    plain = ring_loop(depth)
    ring, loop = plain.body
    assert isinstance(loop, For)
    step = Var("step")
    *before, _, release = loop.body
    value = Let("value", REG.at(0))
    read = RegSet(REG.at(0), Mem("tile", ring.slot(step) * 64 + TX, DType.F32))
    body = (*before, read, value, release, Store("y", step * 64 + TX, last, DType.F32))
    return replace(plain, body=(REG, ring, replace(loop, body=body)))


@pytest.mark.parametrize("depth", [2, 3])
def test_the_first_reads_of_a_slot_stand_before_the_end_of_the_step_before(depth: int) -> None:
    source = overlapping_loop(depth, Var("value", DType.F32))
    late = expand(source, "cuda")
    *prologue, loop = late.body
    assert isinstance(loop, For)
    assert sum(isinstance(s, RegSet) and s.target.name == "now" for s in prologue) == 1
    order = [type(s) for s in loop.body if isinstance(s, CopyWait | Barrier | Store) or "now" in str(s)]
    assert order == [Let, CopyWait, Barrier, RegSet, Store]
    assert sum(isinstance(s, Copy) for s in statements(tuple(prologue))) == depth
    x = np.arange(64 * 9, dtype=np.float32)
    for kernel_of in (source, late):
        y = np.zeros_like(x)
        run_kernel(kernel_of, (1,), {"x": x, "y": y, "n": 9})
        np.testing.assert_array_equal(y, x)


def test_a_register_that_is_needed_after_the_release_is_not_set_early() -> None:
    loop = expand(overlapping_loop(2, REG.at(0)), "cuda").body[-1]
    assert isinstance(loop, For)
    order = [type(s) for s in loop.body if isinstance(s, CopyWait | RegSet | Store)]
    assert order[:3] == [CopyWait, RegSet, Store]


def test_depth_one_needs_two_barriers() -> None:
    loop = expand(ring_loop(1), "cuda").body[-1]
    assert isinstance(loop, For)
    assert [type(s) for s in loop.body] == [Let, Barrier, Copy, CopyCommit, CopyWait, Barrier, Store]


def test_a_short_loop_fills_only_what_it_has() -> None:
    late = expand(ring_loop(4, stop=2), "cuda")
    assert sum(isinstance(s, Copy) for s in late.body) == 2


def test_partition_gives_each_role_what_it_needs() -> None:
    source = ring_loop(2, "tma")
    roles = partition(source.body[1:], ("r",), producer=(0, 1), consumer=(1, 1))
    producer, consumer = roles.roles
    assert [type(s) for s in statements(producer.body)] == [For, Let, Acquire, Fill, Copy, Commit]
    assert [type(s) for s in statements(consumer.body)] == [For, Wait, Store, Release]
    with pytest.raises(EmmyError, match="ring q"):
        partition(source.body, ("q",), producer=(0, 1), consumer=(1, 1))


def test_only_tensor_copies_cross_roles() -> None:
    source = ring_loop(2)
    roles = partition(source.body[1:], ("r",), producer=(0, 1), consumer=(1, 1))
    with pytest.raises(EmmyError, match="crosses roles"):
        expand(kernel(source.body[0], roles, shared=source.shared), "cuda")


def test_phases_of_mbarriers() -> None:
    source = ring_loop(2, "tma")
    roles = partition(source.body[1:], ("r",), producer=(0, 1), consumer=(1, 1))
    late = expand(kernel(source.body[0], roles, shared=source.shared), "cuda")
    waits = [s for s in statements(late.body) if isinstance(s, BarrierWait)]
    phase = Var("step") // 2 % 2
    assert [(w.barrier, w.parity) for w in waits] == [("r_empty", call("bitxor", phase, i32(1))), ("r_full", phase)]
    assert {array.name for array in late.shared} == {"tile", "r_full", "r_empty"}


def test_pruning_drops_what_nothing_uses() -> None:
    used, unused = Let("used", Mem("x", TX, DType.F32)), Let("unused", Mem("x", TX, DType.F32))
    store = Store("y", TX, used.var, DType.F32)
    assert pruned((used, unused, If(lt(TX, i32(1)), (unused,)), store)) == (used, store)


def test_combine_by_shuffles_stays_in_the_warp() -> None:
    total = RegArray("total", DType.F32, (), 1, 0.0)
    source = kernel(total, Combine("sum", (total.at(),), 16, ()))
    assert not any(isinstance(s, Barrier) for s in expand_combine(source, shuffles=True).body)
    with pytest.raises(EmmyError, match="cannot combine"):
        expand_combine(kernel(total, Combine("sum", (total.at(),), 48, ())), shuffles=True)


def test_divisions_of_what_is_not_negative() -> None:
    value = Let("v", (TID + Var("n")) // 3)
    kept = Let("w", (TID - 1) % 3)
    late = plain_divisions(kernel(value, kept, Let("u", Var("v") % 4), Let("s", Var("v") % 5)))
    assert [s.value.fn for s in late.body if isinstance(s, Let)] == ["quot", "mod", "bitand", "rem"]  # type: ignore[attr-defined]


def test_cuda_keeps_wide_accesses_and_splits_arithmetic() -> None:
    load = Let("v", Mem("x", TX * 8, DType.F32, 8, aligned=True))
    source = kernel(load, Store("y", TX * 8, load.var + load.var, DType.F32, aligned=True))
    late = legalize(source, "cuda")
    loads = [s.value for s in late.body if isinstance(s, Let) and isinstance(s.value, Mem)]
    stores = [s for s in late.body if isinstance(s, Store)]
    assert [m.lanes for m in loads] == [4, 4]
    assert [s.value.lanes for s in stores] == [4, 4]
    assert all(isinstance(s.value, Pack) and all(v.lanes == 1 for v in s.value.values) for s in stores)


def test_an_unaligned_vector_is_scalars_on_cuda() -> None:
    late = legalize(kernel(Store("y", TX * 2, Mem("x", TX * 2, DType.F32, 2), DType.F32)), "cuda")
    assert all(s.value.lanes == 1 for s in late.body if isinstance(s, Let | Store))


def test_lanes_of_a_register_may_be_swapped() -> None:
    """Splitting must not read a lane that it has just overwritten."""
    acc = RegArray("acc", DType.F32, (), 2, 0.0)
    swap = RegSet(acc.at(), Pack((Lane(acc.at(), 1), Lane(acc.at(), 0))))
    late = legalize(kernel(acc, swap), "cuda")
    assert [type(s) for s in late.body] == [RegArray, Let, Let, RegSet, RegSet]
