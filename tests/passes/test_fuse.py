"""Canonical and fused regions against the oracle, and what fuses into what."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Load, Var, call, cast, i32
from emmy.ir.nest import Axis, Comp, Output, Region, Symbol, Tensor, region_key, verify
from emmy.ir.nest_interp import run_region
from emmy.passes.canonical import canonical
from emmy.passes.fuse import fuse
from emmy.passes.rewrite import divisions
from tests.passes.programs import (
    BERT,
    CASES,
    QKV,
    QWEN3,
    assert_same,
    bert_layer,
    case,
    one_region,
    qwen3_layer,
    sdpa,
    traced,
)


@pytest.mark.parametrize("name", CASES)
def test_fused_equals_oracle(name: str) -> None:
    region = case(name)
    fused = fuse(region)
    verify(fused)
    assert_same(region, one_region(canonical(region)))
    assert_same(region, one_region(fused))


@pytest.mark.parametrize("name", CASES)
def test_fusing_again_changes_nothing(name: str) -> None:
    fused = fuse(case(name))
    assert fuse(fused) == fused


@pytest.mark.parametrize(("layer", "shapes"), [(bert_layer, BERT), (qwen3_layer, QWEN3)])
def test_layers_fused_equal_oracle(layer: object, shapes: tuple[object, ...]) -> None:
    region = traced(layer, *shapes)  # type: ignore[arg-type]
    assert_same(region, one_region(fuse(region)))


def monoids(region: Region) -> list[str]:
    return [comp.monoid or "map" for comp in region.comps]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear_gelu", ["sum", "map"]),
        ("scaled_matmul", ["sum"]),
        ("shifted_matmul", ["sum"]),
        ("silu_matmul", ["map", "sum"]),
        ("matmul_softmax", ["sum", "map", "online_softmax", "map"]),
        ("norm_linear", ["sum", "map", "sum"]),
        ("add_layer_norm", ["welford", "map"]),
        ("add_layer_norm_both", ["map", "welford", "map"]),
        ("rms_norm", ["sum", "map"]),
        ("softmax_mask", ["online_softmax", "map"]),
        ("explicit_softmax", ["online_softmax", "map"]),
        ("log_softmax", ["online_softmax", "map"]),
        ("row_sum", ["sum"]),
        ("silu_mul", ["map"]),
        ("rotary", ["map"]),
        *((name, ["sum", "online_attention", "map"]) for name in CASES if name.startswith("attention")),
    ],
)
def test_fused_form(name: str, expected: list[str]) -> None:
    assert sorted(monoids(fuse(case(name)))) == sorted(expected)


def test_norm_and_activation_stay_out_of_a_contraction() -> None:
    for name in ("norm_linear", "silu_matmul"):
        fused = fuse(case(name))
        product = next(c for c in fused.comps if c.monoid == "sum" and len(c.axes) == 2)
        assert all(isinstance(factor, Load) for factor in product.body[0].children), name


def test_linear_is_one_contraction_over_m_n_k() -> None:
    fused = fuse(case("linear_gelu"))
    product = fused.comps[0]
    assert [axis.extent for axis in (*product.axes, *product.reduce)] == [i32(10), i32(6), i32(8)]
    assert [tensor.shape for tensor in fused.inputs] == [(i32(10), i32(8)), (i32(6), i32(8)), (i32(6),)]
    assert fused.outputs[0].tensor.shape == (i32(10), i32(6))


def test_contiguous_chain_is_one_axis() -> None:
    fused = fuse(case("silu_mul"))
    assert [axis.extent for axis in fused.comps[0].axes] == [i32(105)]


def test_keys_do_not_follow_rows_where_heads_are_grouped() -> None:
    fused = fuse(case("attention_grouped"))
    assert [len(comp.axes) for comp in fused.comps] == [3, 2, 3]


def test_weights_that_are_an_output_keep_attention_apart() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = torch.softmax(q @ k.transpose(-1, -2), -1)
        return weights @ v, weights

    region = traced(attend, *QKV)
    assert "online_attention" not in monoids(fuse(region))
    assert_same(region, one_region(fuse(region)))


def test_masked_rows_give_zero_as_in_torch() -> None:
    region = case("attention_bool_mask")
    fused = fuse(region)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 4, 9, 8)).astype(np.float32) for _ in range(3))
    mask = np.zeros((2, 1, 1, 9), dtype=bool)
    mask[0] = True
    named = {"x0": q, "x1": k, "x2": v, "x3": mask}
    inputs = {t.name: named[t.name].reshape([int(e.value) for e in t.shape]) for t in fused.inputs}  # type: ignore[attr-defined]
    found = run_region(fused, inputs)["out"].reshape(2, 4, 9, 8)
    torched = F.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), attn_mask=torch.from_numpy(mask))
    np.testing.assert_allclose(found, torched.numpy(), rtol=1e-5, atol=1e-5)
    assert (found[1] == 0).all()


def test_symbolic_rows_stay_symbolic() -> None:
    rows = Var("S")
    axes = (Axis("b", i32(2)), Axis("s", rows), Axis("n", i32(6)))
    b, s, n, k = (Var(x) for x in "bsnk")
    product = call("mul", Load("x", (b, s, k), DType.F32), Load("w", (k, n), DType.F32))
    comp = Comp("y", axes, (product,), DType.F32, (Axis("k", i32(8)),), "sum")
    inputs = (Tensor("x", (i32(2), rows, i32(8)), DType.F32), Tensor("w", (i32(8), i32(6)), DType.F32))
    out = Output(Tensor("out", tuple(a.extent for a in axes), DType.F32), "y")
    region = Region("r", (Symbol("S", 5), Symbol("unused", 3)), inputs, (comp,), (out,))
    fused = fuse(region)
    assert [symbol.name for symbol in fused.symbols] == ["S"]
    assert len(fused.comps[0].axes) == 2
    for size in (5, 1, 12):
        assert_same(region, one_region(fused), {"S": size})


def test_names_are_not_in_the_key() -> None:
    one = fuse(traced(lambda x, w: F.relu(x @ w), (7, 8), (8, 6)))
    other = fuse(traced(lambda a, b: F.relu(torch.mm(a, b)), (7, 8), (8, 6)))
    assert region_key(one) == region_key(other)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    drop=st.integers(0, 3),
    swap=st.booleans(),
    half=st.booleans(),
)
def test_canonical_keeps_meaning(shape: list[int], drop: int, swap: bool, half: bool) -> None:
    """A map, a reduction over the last axis and a map of both, on operands broadcast, transposed or of 16 bits."""
    rank = len(shape)
    axes = tuple(Axis(f"a{n}", i32(size)) for n, size in enumerate(shape))
    index = tuple(axis.var for axis in axes)
    dtype = DType.F16 if half else DType.F32
    other = tuple(Const(0, DType.I32) if n == drop % rank else i for n, i in enumerate(index))
    turned = (index[1], index[0], *index[2:]) if swap else index
    turned_shape = (
        (axes[1].extent, axes[0].extent, *(a.extent for a in axes[2:])) if swap else tuple(a.extent for a in axes)
    )
    x = Tensor("x", turned_shape, dtype)
    y = Tensor("y", tuple(i32(1) if n == drop % rank else a.extent for n, a in enumerate(axes)), DType.F32)
    summed = call("add", cast(Load("x", turned, dtype), DType.F32), Load("y", other, DType.F32))
    comps = (
        Comp("m", axes, (summed,), DType.F32),
        Comp("s", axes[:-1], (Load("m", index, DType.F32),), DType.F32, axes[-1:], "sum"),
        Comp("o", axes, (call("mul", Load("m", index, DType.F32), Load("s", index[:-1], DType.F32)),), DType.F32),
    )
    shape_out = tuple(axis.extent for axis in axes)
    region = Region(
        "r", (), (x, y), comps,
        (Output(Tensor("o0", shape_out, DType.F32), "o"), Output(Tensor("s0", shape_out[:-1], DType.F32), "s")),
    )  # fmt: skip
    verify(region)
    for form in (canonical(region), fuse(region)):
        verify(form)
        assert_same(region, one_region(form))
        assert all(axis.extent != i32(1) for comp in form.comps for axis in comp.axes)
        for comp in form.comps:
            for load in comp.loads():
                assert not any(divisions(i) for i in load.index)


def test_sdpa_scale_and_causal_are_recorded() -> None:
    fused = fuse(traced(sdpa(is_causal=True), *QKV))
    attention = fused.comps[1]
    assert attention.origin
    assert attention.carried[0].extent == i32(8)
    assert any(isinstance(node, Const) and node.value == -math.inf for node in attention.body[0].children)
