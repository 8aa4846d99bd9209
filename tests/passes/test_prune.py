"""What nothing uses is not printed; what has an effect, or is used in another scope, is."""

from __future__ import annotations

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Mem, Var, i32, lt
from emmy.ir.kernel import TID, Barrier, BufferParam, For, If, Kernel, Let, Shared, ShuffleXor, Stmt, Store, View
from emmy.passes.prune import prune

X, OUT = BufferParam("x", DType.F32), BufferParam("out", DType.F32, True)


def kernel(*body: Stmt, shared: tuple[Shared, ...] = ()) -> Kernel:
    return Kernel("k", (X, OUT), (32, 1), body, shared)


def out(value: Expr, at: Expr = TID) -> Store:
    return Store("out", at, value, DType.F32)


def load(buffer: str = "x", at: Expr = TID) -> Mem:
    return Mem(buffer, at, DType.F32)


def var(name: str, dtype: DType = DType.I32) -> Var:
    return Var(name, dtype)


def loop(name: str, *body: Stmt) -> For:
    return For(name, i32(0), i32(4), i32(1), body)


def test_a_chain_that_ends_nowhere_goes_as_a_whole() -> None:
    kept = out(load())
    found = prune(kernel(Let("a", TID + 1), Let("b", var("a") * 2), View("v", "x", i32(3), DType.F32), kept))
    assert found.body == (kept,)


def test_what_is_used_stays_in_its_order() -> None:
    body = (Let("a", TID + 1), View("v", "x", var("a"), DType.F32), Let("b", load("v")), out(var("b", DType.F32)))
    assert prune(kernel(*body)).body == body


def test_loops_and_conditions_that_are_left_empty_go() -> None:
    kept = out(load())
    empty = loop("i", Let("a", var("i") + 1), If(lt(TID, i32(3)), (Let("b", TID + 2),)))
    assert prune(kernel(empty, kept)).body == (kept,)
    effect = loop("i", If(lt(TID, i32(3)), (), (Barrier(),)))
    assert prune(kernel(effect, kept)).body == (effect, kept)


def test_sibling_scopes_with_one_name_are_told_apart() -> None:
    used = loop("j", Let("key", var("j") + 1), out(load(), var("key")))
    found = prune(kernel(loop("i", Let("key", var("i") + 2), out(load(), var("i"))), used))
    assert found.body == (loop("i", out(load(), var("i"))), used)


def test_an_inner_definition_does_not_hide_the_use_of_the_outer_one() -> None:
    inner = loop("i", Let("key", var("i") + 2), out(load(), var("key")))
    body = (Let("key", TID + 1), inner, out(load(), var("key")))
    assert prune(kernel(*body)).body == body


def test_scratch_memory_that_shuffles_do_without() -> None:
    arrays = (Shared("idle", DType.F32, 64), Shared("held", DType.F32, 32))
    body = (Store("held", TID, load(), DType.F32), Barrier(), ShuffleXor("other", load("held"), 1), out(load("held")))
    found = prune(kernel(*body, shared=arrays))
    assert found.shared == arrays[1:]
    assert found.body == body, "threads meet at a shuffle, whether its value is used or not"
    assert found.smem_bytes == 128
