"""Fused attention lowered to kernels: interpreted against the oracle, printed in both languages."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.errors import Refused
from emmy.frontend.export import export_graph
from emmy.ir.expr import evaluate_int
from emmy.ir.interp import run_kernel
from emmy.ir.kernel_verify import verify as verify_kernel
from emmy.ir.nest import Region
from emmy.ir.nest_interp import run_region
from emmy.ir.plan import Plan
from emmy.passes.attention_parts import match_attention
from emmy.passes.decompose import decompose
from emmy.passes.fuse import fuse
from emmy.passes.lower.attention import lower_attention
from emmy.passes.lower.attention_leaf import AttentionLeaf, shared_elements
from emmy.target import DynamicSpec
from tests.codegen.compilers import require_nvrtc, run_opencl
from tests.passes.programs import arrays, sdpa, traced

ONE = AttentionLeaf(1, 1, 16, 4, 4, 16, 8)
MANY = AttentionLeaf(4, 2, 2, 2, 2, 16, 1)


@lru_cache
def attention(
    heads: int = 2, shared: int = 2, rows: int = 19, keys: int = 23, d: int = 8, *, causal: bool = False,
    mask: str = "", dtype: str = "float32", dynamic: bool = False,
) -> Region:  # fmt: skip
    """``mask``: '', bool (rows × keys), padding (keys a batch) or float."""
    kind = getattr(torch, dtype)
    q, k = torch.zeros(1, heads, rows, d, dtype=kind), torch.zeros(1, shared, keys, d, dtype=kind)
    inputs = {"q": q, "k": k, "v": k.clone()}
    if mask:
        shape = (1, 1, 1, keys) if mask == "padding" else (rows, keys)
        inputs["mask"] = torch.zeros(shape, dtype=kind if mask == "float" else torch.bool)
    function = sdpa(is_causal=causal, enable_gqa=heads != shared)
    specs = [DynamicSpec("S", name, 2) for name in ("q", "k", "v")] if dynamic else []
    return fuse(decompose(export_graph("attention", function, inputs, specs).graph))


def check(region: Region, leaf: AttentionLeaf, sizes: dict[str, int] | None = None) -> Plan:
    """Interprets the plan on outputs full of NaN and compares with the oracle."""
    plan = lower_attention(match_attention(region), leaf, "attention", "")
    (launch,) = plan.launches
    verify_kernel(launch.kernel)
    values = dict(region.hints()) | (sizes or {})
    inputs = arrays(region, sizes=values)
    half = region.outputs[0].tensor.dtype == "f16"
    args: dict[str, Any] = {name: array.ravel() for name, array in inputs.items()} | values
    for tensor in plan.outputs:
        count = evaluate_int(tensor.elements(), values)
        args[tensor.name] = np.full(count, np.nan, np.float16 if half else np.float32)
    run_kernel(launch.kernel, plan.grid(launch, values), args)
    expected = run_region(region, inputs, values)
    tolerance = 2e-3 if half else 2e-5
    for name, value in expected.items():
        np.testing.assert_allclose(args[name], value.ravel(), rtol=tolerance, atol=tolerance)
    return plan


@pytest.mark.parametrize("leaf", [ONE, MANY], ids=["one", "many"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"causal": True, "keys": 19}, {"mask": "bool"}, {"mask": "padding"}, {"mask": "float"},
        {"heads": 4, "causal": True, "keys": 19}, {"dtype": "float16"}, {"rows": 32, "keys": 32, "causal": True},
        {"rows": 2, "keys": 37}, {"causal": True, "rows": 9, "keys": 40},
    ],
    ids=str,
)  # fmt: skip
def test_against_oracle(options: dict[str, Any], leaf: AttentionLeaf) -> None:
    check(attention(**options), leaf)


@pytest.mark.parametrize(
    "leaf",
    [
        AttentionLeaf(1, 1, 16, 16, 8, 16, 8),
        AttentionLeaf(1, 1, 8, 2, 8, 32, 8, stage=True),
        AttentionLeaf(1, 1, 5, 3, 4, 12, 1),
        AttentionLeaf(8, 2, 1, 1, 1, 16, 1, stage=True),
        AttentionLeaf(4, 4, 1, 4, 1, 16, 1),
        AttentionLeaf(2, 1, 4, 4, 2, 8, 1, stage=True, fast_exp=True),
    ],
    ids=str,
)
def test_tiles(leaf: AttentionLeaf) -> None:
    check(attention(causal=True, keys=19), leaf)
    check(attention(mask="float"), leaf)


@pytest.mark.parametrize("leaf", [ONE, MANY, AttentionLeaf(1, 1, 16, 4, 4, 16, 8, stage=True)], ids=str)
def test_symbolic_length_is_one_kernel_for_all_sizes(leaf: AttentionLeaf) -> None:
    region = attention(rows=19, keys=19, causal=True, dynamic=True)
    texts = set()
    for size in (19, 1, 16, 33):
        plan = check(region, leaf, {"S": size})
        texts.add(render(plan.launches[0].kernel, "opencl"))
    assert len(texts) == 1


def test_masked_rows_are_zero() -> None:
    region = attention(mask="padding")
    plan = lower_attention(match_attention(region), ONE, "attention", "")
    (launch,) = plan.launches
    inputs = arrays(region)
    mask = next(t.name for t in region.inputs if t.dtype == "bool")
    args = {name: array.ravel() for name, array in inputs.items()}
    args[mask] = np.zeros_like(args[mask])
    out = plan.outputs[0]
    args[out.name] = np.full(evaluate_int(out.elements(), {}), np.nan, np.float32)
    run_kernel(launch.kernel, plan.grid(launch, {}), args)
    assert (args[out.name] == 0).all()


def test_causal_loops_skip_what_no_row_sees() -> None:
    problem = match_attention(attention(rows=32, keys=32, causal=True))
    assert problem.above is not None
    assert problem.below is None
    assert problem.inner != problem.x
    assert problem.visible == pytest.approx(33 / 64)
    assert match_attention(attention()).visible == 1.0


def test_sliding_window_is_bounded_below() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        row, key = torch.arange(40)[:, None], torch.arange(40)[None, :]
        seen = (key <= row) & (key > row - 5)
        scores = torch.where(seen, q @ k.transpose(-1, -2), -torch.inf)
        return torch.softmax(scores, -1) @ v

    region = fuse(traced(attend, (1, 2, 40, 8), (1, 2, 40, 8), (1, 2, 40, 8)))
    problem = match_attention(region)
    assert problem.above is not None
    assert problem.below is not None
    check(region, ONE)
    check(region, MANY)


@pytest.mark.parametrize("leaf", [ONE, MANY, AttentionLeaf(1, 1, 16, 4, 4, 16, 8, stage=True)], ids=str)
@pytest.mark.parametrize("language", ["opencl", "cuda"])
def test_prints(leaf: AttentionLeaf, language: str) -> None:
    plan = lower_attention(match_attention(attention(mask="bool")), leaf, "attention", "")
    source = render(plan.launches[0].kernel, language)
    assert source.count("attention(") == 1
    assert ("barrier" in source or "__syncthreads" in source) == (leaf.threads > 1)


@pytest.mark.parametrize("leaf", [MANY, AttentionLeaf(8, 4, 2, 2, 1, 32, 1, stage=True, fast_exp=True)], ids=str)
def test_compiles_as_cuda(leaf: AttentionLeaf) -> None:
    require_nvrtc()
    for region in (attention(causal=True, keys=19), attention(mask="float", dtype="float16")):
        plan = lower_attention(match_attention(region), leaf, "attention", "")
        assert compile_cuda(render(plan.launches[0].kernel, "cuda"), "sm_90a").cubin


@pytest.mark.parametrize("leaf", [ONE, MANY], ids=["one", "many"])
def test_runs_as_opencl(leaf: AttentionLeaf) -> None:
    region = attention(causal=True, keys=19)
    plan = lower_attention(match_attention(region), leaf, "attention_cl", "")
    (launch,) = plan.launches
    inputs = arrays(region)
    out = plan.outputs[0]
    args = {name: array.ravel() for name, array in inputs.items()}
    args[out.name] = np.full(evaluate_int(out.elements(), {}), np.nan, np.float32)
    run_opencl(launch.kernel, plan.grid(launch, {}), args)
    expected = run_region(region, inputs)[out.name]
    np.testing.assert_allclose(args[out.name], expected.ravel(), rtol=2e-5, atol=2e-5)


def test_shared_memory_is_what_the_kernel_declares() -> None:
    plan = lower_attention(match_attention(attention()), MANY, "attention", "")
    kernel = plan.launches[0].kernel
    assert {a.name: a.elements for a in kernel.shared} == shared_elements(MANY, 8, 8)


def test_other_regions_are_refused_by_name() -> None:
    with pytest.raises(Refused) as caught:
        match_attention(fuse(traced(lambda x, w: x @ w, (7, 8), (8, 6))))
    assert caught.value.rule == "one_attention"
