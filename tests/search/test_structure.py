"""Cuts: children scheduled on their own, one plan, one knob map with a key a step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emmy.device.base import Capabilities
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Load, i32
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor, region_key, verify
from emmy.ir.plan import Launch
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import Fuse, KnobMap
from emmy.schedule.space import enumerate_space
from emmy.search import pick as picks
from emmy.search import pinned as pins
from emmy.search import structure
from emmy.search import tuner as tuners
from emmy.search.pick import Pick, Picker
from emmy.search.pinned import Unmatched, pinned
from emmy.search.realise import realise
from emmy.search.structure import Cut, composed, joined, step_knobs
from emmy.search.tuner import CUT_SLACK, Tuner
from emmy.search.variant import Variant, read_knobs


def matrix(name: str, size: int) -> Tensor:
    return Tensor(name, (i32(size), i32(size)), DType.F32)


def product(name: str, left: str, right: str, size: int) -> Comp:
    i, j, k = (Axis(axis, i32(size)) for axis in "ijk")
    body = Call("mul", (Load(left, (i.var, k.var), DType.F32), Load(right, (k.var, j.var), DType.F32)), DType.F32)
    return Comp(name, (i, j), (body,), DType.F32, (k,), "sum", origin=("matmul",))


@pytest.fixture
def parent() -> Region:
    """(x0 @ x1) @ x2, which the toy tier does not take whole."""
    comps = (product("qk", "x0", "x1", 64), product("pv", "qk", "x2", 64))
    region = Region(
        "k_chain", (), tuple(matrix(f"x{n}", 64) for n in range(3)), comps, (Output(matrix("out", 64), "pv"),)
    )
    verify(region)
    return region


@pytest.fixture
def cut(toy: Capabilities, monkeypatch: pytest.MonkeyPatch) -> Cut:
    """The one cut of ``parent``; its children are equal but for the names of their tensors."""
    first = Region("k_one", (), (matrix("x0", 64), matrix("x1", 64)), (product("qk", "x0", "x1", 64),),
                   (Output(matrix("t", 64), "qk"),))  # fmt: skip
    second = Region("k_one", (), (matrix("t", 64), matrix("x2", 64)), (product("pv", "t", "x2", 64),),
                    (Output(matrix("out", 64), "pv"),))  # fmt: skip
    assert region_key(first) == region_key(second)
    made = Cut(Fuse(), ("qk", "pv"), (first, second))
    for module in (tuners, picks, pins, structure):
        monkeypatch.setattr(module, "cuts", lambda region: (made,) if len(region.comps) == 2 else ())
    return made


def leaf(region: Region, caps: Capabilities, text: str) -> Variant:
    space = enumerate_space(region, caps)
    number = space.find(KnobMap.parse(text).merge(KnobMap.parse("FUSE=,STAGE=,WSPEC=,RASTER=")))
    assert number is not None
    return Variant(region, caps, space.knobs(number), space.lower(number))


def test_a_composed_plan_hands_results_on_in_a_workspace(toy: Capabilities, parent: Region, cut: Cut) -> None:
    children = [leaf(child, toy, "TILE=n1x1/f4x4/k2,REDUCE=") for child in cut.children]
    plan = composed(parent, toy, cut, children).plan
    assert [t.name for t in plan.inputs] == ["x0", "x1", "x2"]
    assert [t.name for t in plan.outputs] == ["out"]
    assert [(w.name, w.dtype) for w in plan.workspaces] == [("t", DType.F32)]
    assert [step.args for step in plan.steps if isinstance(step, Launch)] == [("t",), ("out",)]
    assert plan.bytes_min == 4 * 64 * 64 * 4


def test_kernels_of_one_name_and_other_code_are_told_apart(toy: Capabilities, parent: Region, cut: Cut) -> None:
    """The toy kernels of both children have one name; they write to parameters of other names."""
    children = [leaf(child, toy, "TILE=n1x1/f4x4/k2,REDUCE=") for child in cut.children]
    names = [launch.kernel.name for launch in composed(parent, toy, cut, children).plan.launches]
    assert len(set(names)) == 2
    assert names[1] == f"{names[0]}_pv"


def test_equal_kernels_are_one(toy: Capabilities, parent: Region, cut: Cut) -> None:
    same = replace(cut, children=(cut.children[0], cut.children[0]))
    children = [leaf(child, toy, "TILE=n1x1/f4x4/k2,REDUCE=") for child in same.children]
    artefact = composed(parent, toy, same, children).artefact
    assert len(artefact.kernels) == 1
    assert len(artefact.cases[0].steps) == 2


def test_one_map_with_a_key_a_step_where_the_steps_differ(cut: Cut) -> None:
    first = KnobMap.parse("FUSE=,TILE=n1x1/f4x4/k2,REDUCE=,STAGE=,WSPEC=,RASTER=")
    second = first.merge(KnobMap.parse("TILE=n1x1/f8x4/k2"))
    whole = joined(cut, [first, second])
    assert {k: str(v) for k, v in whole.items() if str(v)} == {
        "FUSE": "cut", "TILE@qk": "n1x1/f4x4/k2", "TILE@pv": "n1x1/f8x4/k2",
    }  # fmt: skip
    assert step_knobs(whole, "qk") == first.merge(KnobMap.parse("FAST_EXP=false"))
    same = joined(cut, [first, first])
    assert "TILE" in same
    assert "TILE@qk" not in same


def test_a_stored_map_of_a_cut_is_realised_again(toy: Capabilities, parent: Region, cut: Cut) -> None:
    children = [leaf(c, toy, f"TILE=n1x1/f{n}x4/k2,REDUCE=g2k") for n, c in zip((4, 8), cut.children, strict=True)]
    variant = composed(parent, toy, cut, children)
    again = realise(parent, toy, read_knobs(variant.text))
    assert again.text == variant.text
    assert again.digest == variant.digest


def test_a_cut_region_is_tuned_by_its_children_and_timed_whole(
    toy: Capabilities,
    parent: Region,
    cut: Cut,
    recording: Callable[..., Path],
    make_tuner: Callable[..., Tuner],
    true_us: Callable[[KnobMap], float],
) -> None:
    best = [leaf(child, toy, "TILE=n1x1/f16x4/k4,REDUCE=") for child in cut.children]
    first = [leaf_of_prior(child, toy) for child in cut.children]
    whole, guess = composed(parent, toy, cut, best), composed(parent, toy, cut, first)
    path = recording(cut.children[0], also=[(whole, 210.0), (guess, 800.0)])
    tuner = make_tuner(path, patience=60)
    tuned = tuner.tune(parent, "toy.chain")
    assert tuned.best is not None
    assert tuned.best.text == whole.text
    assert tuned.us == pytest.approx(210.0)
    assert [child.us for child in tuned.children] == [pytest.approx(100.0)] * 2
    assert tuned.children[1].skipped == "an equal kernel was tuned"
    assert tuned.children[1].live == 0
    tuner.store.start_sweep(toy.name, sweep="s1")
    pick = Picker(toy, UninformedPrior("a test"), tuner.store).greedy(parent)
    assert (pick.source, pick.us, pick.variant.text) == ("evidence", tuned.us, whole.text)


def leaf_of_prior(region: Region, caps: Capabilities) -> Variant:
    space = enumerate_space(region, caps)
    number = int(np.argmin(UninformedPrior("a test").scores(space)))
    return Variant(region, caps, space.knobs(number), space.lower(number))


@pytest.mark.parametrize(("ratio", "tuned"), [(CUT_SLACK * 0.9, True), (CUT_SLACK * 1.1, False)])
def test_a_cut_far_behind_the_whole_kernel_is_not_tuned_further(
    toy: Capabilities,
    parent: Region,
    cut: Cut,
    recording: Callable[..., Path],
    make_tuner: Callable[..., Tuner],
    ratio: float,
    tuned: bool,
) -> None:
    guess = composed(parent, toy, cut, [leaf_of_prior(child, toy) for child in cut.children])
    tuner = make_tuner(recording(also=[(guess, 100.0 * ratio)]))
    _, children, replies = tuner._cut(parent, cut, "", 100.0, {})
    assert len(replies) == 1
    assert bool(children) is tuned


def test_the_prior_pick_of_an_untuned_region_without_a_tier_is_its_cut(
    toy: Capabilities, parent: Region, cut: Cut
) -> None:
    pick = Picker(toy, UninformedPrior("a test")).greedy(parent)
    assert pick.source == "uninformed"
    assert str(pick.variant.knobs["FUSE"]) == "cut"
    assert len(pick.variant.plan.launches) >= 2


def test_a_pin_may_name_a_step(toy: Capabilities, parent: Region, cut: Cut) -> None:
    picker = Picker(toy, UninformedPrior("a test"))
    found = pinned(picker, parent, KnobMap.parse("TILE@pv=n1x1/f8x2/k4"))
    assert isinstance(found, Pick), str(found)
    assert str(found.variant.knobs.at("pv")["TILE"]) == "n1x1/f8x2/k4"
    missing = pinned(picker, parent, KnobMap.parse("TILE@softmax=n1x1/f8x2/k4"))
    assert isinstance(missing, Unmatched)
    assert (missing.rule, missing.nearest) == ("no_such_step", ("qk", "pv"))
    refused = pinned(picker, parent, KnobMap.parse("FUSE=cut,TILE@qk=n1x1/f32x16/k4"))
    assert isinstance(refused, Unmatched)
    assert refused.rule == "toy_area"
    assert "at step qk" in refused.reason
