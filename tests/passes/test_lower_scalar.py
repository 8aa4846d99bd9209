"""Contractions lowered to scalar threads: interpreted plans against the oracle, at sizes that divide nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.codegen import render
from emmy.device.registry import cuda_target
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Load, Var, call, cast, evaluate_int, i32
from emmy.ir.interp import run_kernel
from emmy.ir.kernel import Let
from emmy.ir.kernel_verify import verify as verify_kernel
from emmy.ir.nest import Axis, Comp, Output, Region, Symbol, Tensor, verify
from emmy.ir.nest_interp import run_region
from emmy.ir.plan import Memset, Plan
from emmy.ir.scalar import numpy_dtype
from emmy.passes.contraction import match_contraction
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.scalar import ScalarTier
from tests.passes.devices import CPU

TIER = ScalarTier()


def matmul(
    m: int | str, n: int, k: int, *, batch: int = 0, dtype: DType = DType.F32, nk: bool = False, bias: bool = False
) -> Region:
    """``y[b?, m, n] = relu?(sum_k x0[b?, m, k] * x1[k, n]) (+ bias[n])``; a string m is symbolic."""
    rows: Expr = Var(m) if isinstance(m, str) else i32(m)
    axes = (Axis("i", rows), Axis("j", i32(n)))
    k_axis = Axis("k", i32(k))
    i, j, kk = Var("i"), Var("j"), Var("k")
    a_index, b_index = (i, kk), (j, kk) if nk else (kk, j)
    a_shape: tuple[Expr, ...] = (rows, i32(k))
    b_shape: tuple[Expr, ...] = (i32(n), i32(k)) if nk else (i32(k), i32(n))
    if batch:
        axes = (Axis("b", i32(batch)), *axes)
        a_index, a_shape = (Var("b"), *a_index), (i32(batch), *a_shape)
    left, right = Load("x0", a_index, dtype), Load("x1", b_index, dtype)
    product = call("mul", cast(left, dtype.compute), cast(right, dtype.compute))
    comps = [Comp("acc", axes, (product,), dtype.compute, (k_axis,), "sum")]
    inputs = [Tensor("x0", a_shape, dtype), Tensor("x1", b_shape, dtype)]
    source = "acc"
    if bias:
        inputs.append(Tensor("x2", (i32(n),), dtype))
        read = Load("acc", tuple(a.var for a in axes), dtype.compute)
        value = call("add", read, cast(Load("x2", (j,), dtype), dtype.compute))
        comps.append(Comp("out", axes, (call("max", value, cast(i32(0), dtype.compute)),), dtype.compute))
        source = "out"
    out = Tensor("y", tuple(a.extent for a in axes), dtype)
    symbols = (Symbol(m, 13),) if isinstance(m, str) else ()
    region = Region("k_matmul", symbols, tuple(inputs), tuple(comps), (Output(out, source),))
    verify(region)
    return region


def random_inputs(region: Region, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        t.name: rng.standard_normal([evaluate_int(e, sizes) for e in t.shape]).astype(numpy_dtype(t.dtype))
        for t in region.inputs
    }


def interpret(plan: Plan, inputs: dict[str, np.ndarray], sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Runs a plan in the interpreter of kernel IR; outputs and workspaces start as NaN."""
    buffers: dict[str, np.ndarray] = {name: np.ascontiguousarray(a).ravel() for name, a in inputs.items()}
    shapes = {t.name: [evaluate_int(e, sizes) for e in t.shape] for t in plan.outputs}
    for t in plan.outputs:
        buffers[t.name] = np.full(int(np.prod(shapes[t.name])), np.nan, numpy_dtype(t.dtype))
    for w in plan.workspaces:
        buffers[w.name] = np.full(evaluate_int(w.elements, sizes), np.nan, numpy_dtype(w.dtype))
    for step in plan.steps:
        if isinstance(step, Memset):
            buffers[step.buffer][:] = step.value
            continue
        verify_kernel(step.kernel)
        args = {
            p.name: buffers[a] if a in buffers else sizes[a] for p, a in zip(step.kernel.params, step.args, strict=True)
        }
        run_kernel(step.kernel, plan.grid(step, sizes), args)
    return {t.name: buffers[t.name].reshape(shapes[t.name]) for t in plan.outputs}


def check(region: Region, knobs: str, caps=CPU, sizes: dict[str, int] | None = None) -> Plan:
    sizes = region.hints() if sizes is None else sizes
    problem = TIER.match(region, caps)
    plan = TIER.lower(problem, caps, TIER.read(problem, KnobMap.parse(knobs)))
    inputs = random_inputs(region, sizes)
    got = interpret(plan, inputs, sizes)["y"]
    want = run_region(region, inputs, sizes)["y"]
    tolerance = 1e-5 if region.outputs[0].tensor.dtype == DType.F32 else 2e-2
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 8)
    return plan


CASES = [
    "TILE=n1x1/f8x3/k1",
    "TILE=n1x1/f16x6/k4",
    "TILE=n1x1/f24x2/k2,RASTER=g4",
    "TILE=n1x1/f8x4/k2,REDUCE=g2k",
    "TILE=n2x2/f8x2/k4",
    "TILE=n1x2/f16x4/k8,STAGE=d1/sync",
    "TILE=n2x2/f8x3/k8,STAGE=d2/sync",
    "TILE=n2x4/f4x2/k8,STAGE=d3/async,REDUCE=g2k",
    "TILE=n8x4/f4x3/k8,STAGE=d2/async",
    "TILE=n8x4/f4x2/k16,STAGE=d3/async,REDUCE=g2k",
    "TILE=n16x8/f4x1/k4,STAGE=d3/async",
]


@pytest.mark.parametrize("knobs", CASES)
@pytest.mark.parametrize("size", [(24, 32, 16), (13, 48, 21), (7, 37, 11), (1, 24, 17)])
def test_every_form_equals_the_oracle(knobs: str, size: tuple[int, int, int]) -> None:
    caps = cuda_target("sm_80") if "async" in knobs else CPU
    region = matmul(*size)
    problem = TIER.match(region, caps)
    refused = TIER.refuse(problem, caps, TIER.read(problem, KnobMap.parse(knobs)))
    if refused is None:
        check(region, knobs, caps)
    else:
        # a split or a tile larger than such a small problem is refused by name, never resolved silently
        assert refused.rule in {"split_within_k", "tile_within_problem", "group_within_rows"}


@pytest.mark.parametrize(
    "knobs", ["TILE=n1x1/f8x3/k2", "TILE=n1x2/f8x2/k8,STAGE=d1/sync", "TILE=n1x1/f8x3/k2,REDUCE=g2k"]
)
@pytest.mark.parametrize(
    "form", [{"batch": 3}, {"nk": True}, {"bias": True}, {"dtype": DType.F16}, {"dtype": DType.BF16}]
)
def test_batches_layouts_epilogues_and_types(knobs: str, form: dict) -> None:
    check(matmul(11, 24, 19, **form), knobs)


GPU_FORMS = [{"batch": 2}, {"nk": True}, {"bias": True}, {"dtype": DType.F16}, {"dtype": DType.BF16}]


@pytest.mark.parametrize("knobs", ["TILE=n16x8/f8x2/k16,STAGE=d2/async", "TILE=n8x8/f4x2/k8,STAGE=d3/async"])
@pytest.mark.parametrize("size", [(32, 128, 32), (21, 80, 40), (19, 90, 37)])
def test_warps_share_a_staged_tile(knobs: str, size: tuple[int, int, int]) -> None:
    caps = cuda_target("sm_90a")
    plan = check(matmul(*size), knobs, caps)
    source = render(plan.launches[0].kernel, "cuda")
    for form in GPU_FORMS if size == (21, 80, 40) else []:
        check(matmul(*size, **form), knobs, caps)
    if size == (32, 128, 32):
        assert "emmy_copy_async<16>" in source
        assert "emmy_copy_async<4>(emmy_shared(as" in source  # k-major: turned round by the copies
        assert "emmy_copy_async<4>(emmy_shared(bs" not in source


@pytest.mark.parametrize(
    "knobs",
    [
        "TILE=n8x4/f4x4/k32,REDUCE=c4,STAGE=d2/async",
        "TILE=n8x4/f4x4/k32,REDUCE=g2c/c4,STAGE=d2/async",
        "TILE=n8x4/f4x8/k32,REDUCE=g2k/c2,STAGE=d3/async",
        "TILE=n8x8/f4x4/k16,REDUCE=g4c,STAGE=d2/sync",
        "TILE=n8x4/f4x8/k8,REDUCE=g8c,STAGE=d2/async",
    ],
)
@pytest.mark.parametrize("size", [(32, 64, 128), (21, 36, 70)])
def test_k_is_shared_out_over_slices_and_clusters(knobs: str, size: tuple[int, int, int]) -> None:
    caps = cuda_target("sm_90a")
    plan = check(matmul(*size), knobs, caps)
    split = knobs.partition("REDUCE=")[2][:3]
    assert len(plan.launches) == (2 if split == "g2k" else 1)
    assert plan.launches[0].kernel.cluster == (int(split[1]) if split in ("g2c", "g4c", "g8c") else 1)
    assert plan.deterministic
    check(matmul(*size, bias=True), knobs, caps)


def test_clusters_are_offered_where_the_device_has_them() -> None:
    with pytest.raises(Refused, match="cluster_on_device"):
        check(matmul(32, 64, 128), "TILE=n8x8/f4x4/k16,REDUCE=g4c,STAGE=d2/async", cuda_target("sm_80"))


def test_transposed_left_operand_is_staged_along_its_rows() -> None:
    region = matmul(32, 64, 16)
    i, k = Var("i"), Var("k")
    turned = Load("x0", (k, i), DType.F32)
    comp = region.comps[0]
    factor = Load("x1", (k, Var("j")), DType.F32)
    comp = Comp("acc", comp.axes, (call("mul", turned, factor),), DType.F32, comp.reduce, "sum")
    inputs = (Tensor("x0", (i32(16), i32(32)), DType.F32), region.inputs[1])
    plan = check(Region("k_t", (), inputs, (comp,), region.outputs), "TILE=n8x4/f4x4/k8,STAGE=d2/async",
                 cuda_target("sm_80"))  # fmt: skip
    assert "emmy_copy_async<4>" not in render(plan.launches[0].kernel, "cuda")


def test_lanes_of_a_warp_read_few_words_at_once() -> None:
    """Half a warp reads four rows and four columns, pairs of neighbouring lanes the same column; a block is covered."""
    caps = cuda_target("sm_90a")
    problem = TIER.match(matmul(64, 128, 32), caps)
    plan = TIER.lower(problem, caps, TIER.read(problem, KnobMap.parse("TILE=n16x8/f4x4/k8,STAGE=d2/async")))
    lets = {s.name: s.value for s in plan.launches[0].kernel.body if isinstance(s, Let)}
    places = []
    for tid in range(128):
        at = {"tid": tid}
        at |= {name: evaluate_int(lets[name], at) for name in ("lane", "warp")}
        places.append(tuple(evaluate_int(lets[name], at) for name in ("thread_x", "thread_y")))
    assert sorted(places) == [(x, y) for x in range(16) for y in range(8)]
    for half in range(0, 128, 16):
        x, y = zip(*places[half : half + 16], strict=True)
        assert len(set(x)) == len(set(y)) == 4
        assert all(x[i] == x[i ^ 1] and y[i] == y[i ^ 2] for i in range(16))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_slot_of_a_ring_is_carried(depth: int) -> None:
    """Of a mask of the step number the compiler makes two instructions for each access of the loop."""
    plan = check(matmul(16, 32, 64), f"TILE=n8x4/f4x4/k8,STAGE=d{depth}/async", cuda_target("sm_90a"))
    text = render(plan.launches[0].kernel, "cuda")
    assert f"as_at = turn{depth}_0 * " in text
    assert not re.search(r"step( \+ \d+)?\)? [&%] ", text)


@pytest.mark.parametrize("rows", [13, 1, 40])
@pytest.mark.parametrize("knobs", ["TILE=n1x1/f8x6/k2", "TILE=n1x2/f8x2/k4,STAGE=d2/sync"])
def test_symbolic_rows_serve_every_size(knobs: str, rows: int) -> None:
    check(matmul("s", 24, 12), knobs, sizes={"s": rows})


def test_float64_uses_its_own_arithmetic() -> None:
    plan = check(matmul(9, 16, 8, dtype=DType.F64), "TILE=n1x1/f8x2/k2")
    assert "double" in render(plan.launches[0].kernel, "opencl")


def test_atomics_join_a_split_where_the_device_has_them() -> None:
    plan = check(matmul(8, 16, 32), "TILE=n2x2/f4x2/k8,REDUCE=g4a", cuda_target("sm_80"))
    assert not plan.deterministic
    assert isinstance(plan.steps[0], Memset)


@given(
    m=st.integers(1, 40), n=st.integers(8, 70), k=st.integers(1, 40), fn=st.sampled_from([8, 16, 24]),
    fm=st.integers(1, 6), step=st.sampled_from([1, 2, 4]),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_size_and_fragment(m: int, n: int, k: int, fn: int, fm: int, step: int) -> None:
    region = matmul(m, n, k)
    knobs = KnobMap.parse(f"TILE=n1x1/f{fn}x{fm}/k{step}")
    problem = TIER.match(region, CPU)
    if TIER.refuse(problem, CPU, TIER.read(problem, knobs)) is None:
        check(region, str(knobs))


def test_a_rule_names_itself_and_its_place() -> None:
    problem = match_contraction(matmul(64, 64, 64))
    refused = TIER.refuse(problem, CPU, TIER.read(problem, KnobMap.parse("TILE=n1x1/f64x16/k1")))
    assert refused is not None
    assert refused.rule == "registers_fit"
    assert refused.where.startswith("emmy/schedule/tiers/scalar.py:")


def test_what_is_not_a_contraction_is_refused() -> None:
    region = matmul(4, 8, 4)
    comp = region.comps[0]
    loads = Comp("acc", comp.axes, (Load("x0", (Var("i"), Var("k")), DType.F32),), DType.F32, comp.reduce, "sum")
    with pytest.raises(Refused, match="sum_of_products"):
        match_contraction(Region("r", (), region.inputs, (loads,), region.outputs))


def test_both_languages_print() -> None:
    problem = TIER.match(matmul(64, 64, 64), cuda_target("sm_80"))
    knobs = KnobMap.parse("TILE=n8x8/f4x4/k16,STAGE=d2/async")
    plan = TIER.lower(problem, cuda_target("sm_80"), TIER.read(problem, knobs))
    assert "__global__" in render(plan.launches[0].kernel, "cuda")
    plan = TIER.lower(problem, CPU, TIER.read(problem, KnobMap.parse("TILE=n1x1/f16x4/k2")))
    assert "__kernel" in render(plan.launches[0].kernel, "opencl")
