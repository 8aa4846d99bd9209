"""The oracle of nests: shortcuts against the monoids' own trees, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.ir import nest_interp
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Load, Var, call, cast, i32, lt, select
from emmy.ir.nest import Axis, Comp, Output, Region, Symbol, Tensor, verify
from emmy.ir.nest_interp import run_region

S = Var("s")
R, J, K, D = Axis("i", i32(3)), Axis("j", i32(4)), Axis("k", i32(5)), Axis("d", i32(2))


def region(comps: list[Comp], inputs: list[Tensor], outputs: list[tuple[str, tuple[Expr, ...], DType]],
           symbols: tuple[Symbol, ...] = ()) -> Region:  # fmt: skip
    outs = tuple(Output(Tensor(f"o{n}", shape, dtype), source) for n, (source, shape, dtype) in enumerate(outputs))
    made = Region("r", symbols, tuple(inputs), tuple(comps), outs)
    verify(made)
    return made


def load(name: str, *axes: Axis | Expr, dtype: DType = DType.F32) -> Load:
    return Load(name, tuple(a.var if isinstance(a, Axis) else a for a in axes), dtype)


def reduction(monoid: str, extent: int, components: int, dtype: DType = DType.F32) -> Region:
    axis = Axis("k", i32(extent))
    comp = Comp("c", (R,), (load("x", R, axis, dtype=dtype),), dtype, (axis,), monoid)
    kinds = comp.algebra().component_dtypes(dtype)
    outs = [(f"c.{n}", (i32(3),), kinds[n]) for n in range(components)]
    return region([comp], [Tensor("x", (i32(3), i32(extent)), dtype)], outs)


SPECIAL = [0.0, -0.0, 1.0, -2.5, 3.25, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize(
    ("monoid", "components"),
    [
        ("sum", 1),
        ("prod", 1),
        ("max", 1),
        ("min", 1),
        ("argmax", 2),
        ("argmin", 2),
        ("welford", 3),
        ("online_softmax", 2),
    ],
)
@pytest.mark.parametrize("extent", [1, 2, 7, 16, 33])
def test_shortcut_equals_tree(monoid: str, components: int, extent: int) -> None:
    r = reduction(monoid, extent, components)
    x = np.random.default_rng(extent).standard_normal((3, extent)).astype(np.float32)
    x[1] = np.round(x[1])  # ties
    fast, slow = run_region(r, {"x": x}), run_region(r, {"x": x}, fast=False)
    for name in fast:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-5, atol=1e-5)
        assert fast[name].dtype == slow[name].dtype


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(SPECIAL), min_size=2, max_size=6),
    st.sampled_from(["sum", "max", "min", "argmax", "argmin"]),
)
def test_shortcut_equals_tree_for_special_values(values: list[float], monoid: str) -> None:
    components = 2 if monoid.startswith("arg") else 1
    r = reduction(monoid, len(values), components)
    x = np.tile(np.array(values, np.float32), (3, 1))
    fast, slow = run_region(r, {"x": x}), run_region(r, {"x": x}, fast=False)
    np.testing.assert_array_equal(fast[f"o{components - 1}"], slow[f"o{components - 1}"])


@pytest.mark.parametrize(("monoid", "identity"), [("sum", 0), ("prod", 1), ("max", -math.inf), ("min", math.inf)])
def test_an_empty_reduction_gives_the_identity(monoid: str, identity: float) -> None:
    assert (run_region(reduction(monoid, 0, 1), {"x": np.zeros((3, 0), np.float32)})["o0"] == identity).all()


@pytest.mark.parametrize("monoid", ["any", "all"])
def test_booleans(monoid: str) -> None:
    x = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 0]], bool)
    r = reduction(monoid, 3, 1, DType.BOOL)
    expected = getattr(x, monoid)(axis=1)
    for fast in (True, False):
        np.testing.assert_array_equal(run_region(r, {"x": x}, fast=fast)["o0"], expected)


def test_integers_keep_their_own_arithmetic() -> None:
    r = reduction("sum", 3, 1, DType.I64)
    x = np.full((3, 3), 2**60 + 1)
    assert (run_region(r, {"x": x})["o0"] == 3 * (2**60 + 1)).all()


def matmul(body: Expr, dtype: DType = DType.F32) -> Region:
    comp = Comp("c", (R, J), (body,), dtype, (K,), "sum")
    inputs = [Tensor("a", (i32(3), i32(5)), dtype), Tensor("b", (i32(5), i32(4)), dtype), Tensor("v", (i32(5),), dtype)]
    return region([comp], inputs, [("c", (i32(3), i32(4)), dtype)])


A, B, V = load("a", R, K), load("b", K, J), load("v", K)


@pytest.mark.parametrize(
    "body",
    [A * B, B * A, (A + 1.0) * B, call("exp", A) * (B * V), (A * V) * (B + V), A * V, V * V, A * (A + B)],
    ids=["ab", "ba", "prologue", "both", "shared", "no-columns", "no-axes", "not-a-product"],
)
def test_sum_of_products_equals_tree(body: Expr) -> None:
    r = matmul(body)
    rng = np.random.default_rng(0)
    x = {"a": rng.standard_normal((3, 5)), "b": rng.standard_normal((5, 4)), "v": rng.standard_normal(5)}
    x = {name: array.astype(np.float32) for name, array in x.items()}
    np.testing.assert_allclose(run_region(r, x)["o0"], run_region(r, x, fast=False)["o0"], rtol=1e-5, atol=1e-5)


def test_a_product_reads_its_operands_through_any_coordinates() -> None:
    comp = Comp("c", (R, J), (load("a", R, K.var * 2) * load("b", K, i32(1)),), DType.F32, (K,), "sum")
    r = region([comp], [Tensor("a", (i32(3), i32(10)), DType.F32), Tensor("b", (i32(5), i32(2)), DType.F32)],
               [("c", (i32(3), i32(4)), DType.F32)])  # fmt: skip
    a, b = np.arange(30, dtype=np.float32).reshape(3, 10), np.arange(10, dtype=np.float32).reshape(5, 2)
    expected = np.repeat((a[:, ::2] @ b[:, 1])[:, None], 4, axis=1)
    np.testing.assert_array_equal(run_region(r, {"a": a, "b": b})["o0"], expected)


def test_attention_equals_tree() -> None:
    score = select(lt(K.var, R.var + 2), load("s", R, K), Const(-math.inf, DType.F32))
    comp = Comp("c", (R,), (score, load("v", K, D)), DType.F32, (K,), "online_attention", (D,))
    r = region(
        [comp],
        [Tensor("s", (i32(3), i32(5)), DType.F32), Tensor("v", (i32(5), i32(2)), DType.F32)],
        [("c", (i32(3),), DType.F32), ("c.1", (i32(3),), DType.F32), ("c.2", (i32(3), i32(2)), DType.F32)],
    )
    rng = np.random.default_rng(0)
    x = {"s": rng.standard_normal((3, 5)).astype(np.float32), "v": rng.standard_normal((5, 2)).astype(np.float32)}
    fast, slow = run_region(r, x), run_region(r, x, fast=False)
    for name in fast:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-5)


def test_large_bodies_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    r = reduction("welford", 33, 2)
    x = np.random.default_rng(0).standard_normal((3, 33)).astype(np.float32)
    whole = run_region(r, {"x": x}, fast=False)
    monkeypatch.setattr(nest_interp, "CHUNK_ELEMENTS", 40)
    pieces = run_region(r, {"x": x}, fast=False)
    for name in whole:
        np.testing.assert_array_equal(whole[name], pieces[name])


def test_symbols_take_the_hint_or_the_given_size() -> None:
    axis = Axis("i", S)
    r = region([Comp("c", (axis,), (load("x", axis) * 2.0,), DType.F32)], [Tensor("x", (S,), DType.F32)],
               [("c", (S,), DType.F32)], (Symbol("s", 4),))  # fmt: skip
    assert run_region(r, {"x": np.ones(4, np.float32)})["o0"].shape == (4,)
    assert run_region(r, {"x": np.ones(7, np.float32)}, {"s": 7})["o0"].shape == (7,)
    assert run_region(r, {"x": np.ones(0, np.float32)}, {"s": 0})["o0"].shape == (0,)
    with pytest.raises(ValueError, match=r"input x: found shape \(7,\), expected \(4,\)"):
        run_region(r, {"x": np.ones(7, np.float32)})


def test_storage_types_round_and_float64_does_not() -> None:
    value = cast(cast(load("x", R), DType.BF16), DType.F32) + 1.0
    r = region(
        [Comp("c", (R,), (value,), DType.F16)], [Tensor("x", (i32(3),), DType.F32)], [("c", (i32(3),), DType.F16)]
    )
    x = np.array([1.003, 2.0, 1 / 3], np.float32)
    out = run_region(r, {"x": x})["o0"]
    assert out.dtype == np.float16
    assert out[0] == np.float16(2.0)  # 1.003 is 1.0 in bfloat16
    wide = run_region(r, {"x": x}, dtype=np.float64)["o0"]
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, x.astype(np.float64) + 1)


def test_a_load_out_of_range_is_an_error_unless_its_branch_is_not_taken() -> None:
    x = {"x": np.arange(3, dtype=np.float32)}
    inside = select(lt(R.var, i32(1)), Const(0.0, DType.F32), load("x", R.var - 1))
    r = region(
        [Comp("c", (R,), (inside,), DType.F32)], [Tensor("x", (i32(3),), DType.F32)], [("c", (i32(3),), DType.F32)]
    )
    np.testing.assert_array_equal(run_region(r, x)["o0"], [0, 0, 1])
    bad = region([Comp("c", (R,), (load("x", R.var - 1),), DType.F32)], [Tensor("x", (i32(3),), DType.F32)],
                 [("c", (i32(3),), DType.F32)])  # fmt: skip
    with pytest.raises(IndexError, match="x: coordinate -1 to 1 of 3"):
        run_region(bad, x)
