"""Whole layers as programs of regions."""

from __future__ import annotations

import re

import pytest

from emmy.frontend.trace import trace
from emmy.ir.expr import depth
from emmy.ir.nest import Program, verify
from emmy.passes.fuse import MOST_DEPTH, MOST_SIZE, size_of
from emmy.passes.partition import partition
from emmy.passes.roles import is_attention, is_contraction
from emmy.passes.split import operations
from emmy.target import Target, TargetKind
from tests.passes.programs import BERT, CASES, QWEN3, assert_same, bert_layer, case, qwen3_layer, traced

SEVERAL = {"silu_matmul": 2, "matmul_softmax": 2, "norm_linear": 2}


@pytest.mark.parametrize("name", CASES)
def test_partition_equals_oracle(name: str) -> None:
    region = case(name)
    program = partition(region)
    assert len(program.regions) == SEVERAL.get(name, 1)
    assert_same(region, program)


def anchors(program: Program) -> list[int]:
    """Contractions a region; the scores of an attention are one, its values none."""
    return [sum(1 for comp in region.comps if is_contraction(comp)) for region in program.regions]


@pytest.mark.parametrize(
    ("layer", "shapes", "most"), [(bert_layer, BERT, 9), (qwen3_layer, QWEN3, 14)], ids=["bert", "qwen3"]
)
def test_layer(layer: object, shapes: tuple[object, ...], most: int) -> None:
    region = traced(layer, *shapes)  # type: ignore[arg-type]
    program = partition(region, "layer")
    for part in program.regions:
        verify(part)
    assert max(anchors(program)) == 1
    assert sum(1 for part in program.regions if any(map(is_attention, part.comps))) == 1
    assert len(program.regions) <= most
    assert program.inputs == region.inputs
    assert_same(region, program)


def test_bert_layer_is_nine_kernels() -> None:
    program = partition(traced(bert_layer, *BERT))
    assert [operations(part) for part in program.regions] == [
        "linear", "linear", "linear", "sdpa_attention", "linear_add", "layer_norm", "linear_gelu", "linear_add",
        "layer_norm",
    ]  # fmt: skip
    assert all(re.fullmatch(r"k_\w+_[0-9a-f]{6}", part.name) for part in program.regions)


@pytest.mark.parametrize(
    "name",
    [
        "quick.matmul.256", "quick.matmul.256.dynM", "quick.softmax.1024x4096", "quick.rms_norm.1024x4096",
        "quick.rms_norm.512x1024.dynM", "quick.reduce.1024x4096", "quick.pointwise.1024x4096",
        "quick.attention.b1h4s256d64.causal", "attention.b1h16s512d128.causal.fp16.dynM", "softmax.512x4096.fp16.dynM",
    ],
)  # fmt: skip
def test_golden_shape_is_one_region(name: str) -> None:
    program = partition(trace(Target(TargetKind.GOLDEN, name)).region)
    assert len(program.regions) == 1
    (region,) = program.regions
    verify(region)
    assert [symbol.name for symbol in region.symbols] == [symbol.name for symbol in program.symbols]


@pytest.mark.parametrize(("step", "kernels"), [("y + 1", 7), ("torch.sin(y + x)", 14)])
def test_a_long_chain_is_cut_where_it_would_nest_too_deep(step: str, kernels: int) -> None:
    source = f"x = torch.randn(4, 4)\ny = x\nfor _ in range(400): y = {step}\ny"
    region = trace(Target(TargetKind.SNIPPET, source)).region
    program = partition(region)
    assert len(program.regions) == kernels
    assert_same(region, program)
    for one in program.regions:
        assert sum(depth(expr) for comp in one.comps for expr in comp.body) <= MOST_DEPTH


def test_a_value_that_is_used_twice_at_every_step_is_cut_before_it_doubles_too_often() -> None:
    source = "x = torch.randn(4, 4)\ny = x\nfor _ in range(30): y = torch.sin(y + y * 0.5)\ny"
    region = trace(Target(TargetKind.SNIPPET, source)).region
    program = partition(region)
    assert_same(region, program)
    assert 2 <= len(program.regions) <= 6
    for one in program.regions:
        assert max(size_of(comp) for comp in one.comps) <= MOST_SIZE
