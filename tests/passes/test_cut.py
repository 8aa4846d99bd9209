"""Every fusion can be declined: cut programs against the oracle."""

from __future__ import annotations

import pytest

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.nest import region_key
from emmy.passes.cut import cut, cut_options, steps
from emmy.passes.fuse import fuse
from tests.passes.programs import CASES, assert_same, case, sdpa, traced

EXPECTED = {
    "linear_gelu": ["cut@epilogue"],
    "scaled_matmul": [],
    "shifted_matmul": ["cut"],
    "add_layer_norm": ["cut@epilogue"],
    "rms_norm": ["cut@epilogue"],
    "row_sum": [],
    "silu_mul": [],
    "attention": ["cut"],
    "attention_bool_mask": ["cut"],
}


@pytest.mark.parametrize("name", CASES)
def test_every_cut_equals_oracle(name: str) -> None:
    region = case(name)
    options = cut_options(region)
    if name in EXPECTED:
        assert [label for label, _ in options] == EXPECTED[name]
    for label, reason in options:
        program = cut(region, label)
        assert reason
        assert len(program.regions) > 1
        assert_same(region, program)


def test_attention_cut_is_three_kernels() -> None:
    region = case("attention_causal")
    assert [step.name for step in steps(region)] == ["qk", "softmax", "pv"]
    program = cut(region, "cut")
    monoids = [[comp.monoid for comp in part.comps] for part in program.regions]
    assert monoids == [["sum", None], ["online_softmax", None], ["sum"]]
    assert [part.name for part in cut(region, "cut@softmax").regions] == [part.name for part in program.regions]


def test_children_are_fused_and_have_keys_of_their_own() -> None:
    region = fuse(case("attention_grouped"))
    program = cut(region, "cut")
    keys = {region_key(part) for part in program.regions}
    assert len(keys) == 3
    assert region_key(region) not in keys
    for part in program.regions:
        assert fuse(part).comps == part.comps


def test_intermediates_take_the_programs_type_and_statistics_the_compute_type() -> None:
    import torch

    half = [torch.zeros(1, 2, 9, 8, dtype=torch.float16)] * 3
    program = cut(traced(sdpa(), *half), "cut")
    assert [out.tensor.dtype for part in program.regions for out in part.outputs] == [DType.F16] * 3
    norm = cut(traced(lambda x: torch.softmax(x, -1), torch.zeros(5, 8, dtype=torch.float16)), "cut@epilogue")
    assert {out.tensor.dtype for out in norm.regions[0].outputs} == {DType.F32}


@pytest.mark.parametrize("label", ["cut@nowhere", "cut@qk", "split", "cut@"])
def test_unknown_step_is_refused_with_the_steps_there_are(label: str) -> None:
    with pytest.raises(Refused) as caught:
        cut(case("attention"), label)
    assert caught.value.rule == "cut_in_front_of_step"
    assert caught.value.nearest == ("cut@softmax", "cut@pv")


def test_one_step_cannot_be_cut() -> None:
    with pytest.raises(Refused):
        cut(case("row_sum"), "cut")
