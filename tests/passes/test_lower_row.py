"""Row programs lowered to kernels: every form against the oracle, at sizes that divide nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.codegen import render
from emmy.codegen.nvrtc import compile_cuda
from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Mem, call, evaluate_int, i32, walk
from emmy.ir.kernel import Combine, Shared, Store, statements
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor
from emmy.passes.lower.row_leaf import RowLeaf
from emmy.passes.lower.row_plan import lower_row
from emmy.passes.lower.row_program import row_program
from tests.codegen.compilers import require_nvrtc
from tests.codegen.expected import expect
from tests.passes import plans
from tests.passes.plans import assert_right, on_pocl

EXPECTED = Path(__file__).parent / "expected"

REGIONS = {
    "softmax": plans.softmax,
    "rms_norm": plans.rms_norm,
    "layer_norm": plans.layer_norm,
    "row_sum": plans.row_reduce,
    "mean_and_max": plans.mean_and_max,
    "column_softmax": plans.column_softmax,
    "column_sum": plans.column_sum,
    "silu_mul": plans.silu_mul,
    "bias": plans.bias,
}

ONE_BLOCK = {
    "vectors": RowLeaf(1, 16, 8, "reread"),
    "scalars": RowLeaf(2, 1, 1, "reread"),
    "rows in turn": RowLeaf(3, 8, 4, "reread"),
    "threads": RowLeaf(2, 8, 4, "reread", 4, spread=True),
    "a warp": RowLeaf(1, 4, 4, "reread", 32, spread=True),
}
RESIDENT = {
    "smem": RowLeaf(2, 8, 8, "smem"),
    "smem threads": RowLeaf(4, 4, 4, "smem", 8, spread=True),
    "registers": RowLeaf(2, 4, 4, "reg"),
    "registers threads": RowLeaf(1, 4, 2, "reg", 4, spread=True),
}
SPLIT = {
    "three parts": RowLeaf(2, 8, 4, "reread", parts=3),
    "two parts of threads": RowLeaf(2, 4, 4, "reread", 4, parts=2, spread=True),
}


def lowered(region: Region, leaf: RowLeaf):
    return lower_row(row_program(region), leaf, region.name, str(leaf))


@pytest.mark.parametrize("size", [(3, 64), (5, 37), (1, 1), (7, 130)])
@pytest.mark.parametrize("form", ONE_BLOCK)
@pytest.mark.parametrize("name", [n for n in REGIONS if not n.startswith("column")])
def test_one_block_a_row(name: str, form: str, size: tuple[int, int]) -> None:
    region = REGIONS[name](*size)
    assert_right(lowered(region, ONE_BLOCK[form]), region)


@pytest.mark.parametrize("size", [(3, 64), (1, 4), (9, 132)])
@pytest.mark.parametrize("form", RESIDENT)
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "mean_and_max"])
def test_a_row_kept_between_sweeps(name: str, form: str, size: tuple[int, int]) -> None:
    region = REGIONS[name](*size)
    leaf = RESIDENT[form]
    if leaf.residency == "smem" or size[1] % leaf.access == 0:
        assert_right(lowered(region, leaf), region)


@pytest.mark.parametrize("size", [(3, 64), (5, 37), (1, 1)])
@pytest.mark.parametrize("form", SPLIT)
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "layer_norm", "row_sum", "column_sum"])
def test_a_row_shared_by_blocks(name: str, form: str, size: tuple[int, int]) -> None:
    region = REGIONS[name](*size)
    leaf = SPLIT[form]
    if name == "column_sum":
        leaf = RowLeaf(8, 8, 4, "reread", parts=leaf.parts, spread=leaf.spread)
    assert_right(lowered(region, leaf), region)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("size", [(64, 3), (5, 37), (1, 1), (33, 130)])
@pytest.mark.parametrize("name", ["column_softmax", "column_sum"])
def test_vectors_across_rows(name: str, size: tuple[int, int], spread: bool) -> None:
    region = REGIONS[name](*size)
    program = row_program(region)
    assert program.across == (size[1] > 1)
    assert_right(lower_row(program, RowLeaf(8, 8, 4, "reread", spread=spread), region.name, ""), region)


@pytest.mark.parametrize("sizes", [{"m": 1}, {"m": 7}, {"m": 509}])
@pytest.mark.parametrize("form", ["vectors", "threads", "rows in turn"])
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "silu_mul", "bias"])
def test_symbolic_rows_at_sizes_other_than_the_hint(name: str, form: str, sizes: dict[str, int]) -> None:
    region = REGIONS[name]("m", 24)
    assert_right(lowered(region, ONE_BLOCK[form]), region, sizes)


@pytest.mark.parametrize("columns", [1, 3, 8, 33])
@pytest.mark.parametrize("form", ["vectors", "threads"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "row_sum", "silu_mul"])
def test_symbolic_columns(name: str, form: str, columns: int) -> None:
    region = REGIONS[name]("m", "n")
    assert_right(lowered(region, ONE_BLOCK[form]), region, {"m": 5, "n": columns})


@pytest.mark.parametrize("monoid", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"])
@pytest.mark.parametrize("form", ["vectors", "threads", "scalars"])
def test_every_monoid_of_rows(monoid: str, form: str) -> None:
    region = plans.row_reduce(4, 29, monoid)
    assert_right(lowered(region, ONE_BLOCK[form]), region)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
@pytest.mark.parametrize("name", ["softmax", "rms_norm", "row_sum", "silu_mul"])
def test_types(name: str, dtype: DType) -> None:
    region = REGIONS[name](3, 21, dtype=dtype)
    for form in ("vectors", "threads"):
        assert_right(lowered(region, ONE_BLOCK[form]), region)


@pytest.mark.parametrize("monoid", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U8])
def test_integer_rows(monoid: str, dtype: DType) -> None:
    region = plans.row_reduce(3, 21, monoid, dtype)
    if (monoid, dtype) == ("sum", DType.U8):
        return  # wraps around, which the oracle in wider arithmetic does not
    assert_right(lowered(region, ONE_BLOCK["vectors"]), region)


def test_empty_rows_give_the_identity() -> None:
    for monoid, want in (("sum", 0.0), ("max", -np.inf), ("prod", 1.0)):
        region = plans.row_reduce(3, 0, monoid)
        got = plans.interpret(lowered(region, ONE_BLOCK["vectors"]), {"x": np.zeros((3, 0), np.float32)}, {})
        np.testing.assert_array_equal(got["out"], np.full(3, want, np.float32))


def test_no_rows_are_no_blocks() -> None:
    for name in ("softmax", "silu_mul"):
        plan = lowered(REGIONS[name](0, 8), ONE_BLOCK["vectors"])
        assert [evaluate_int(e, {}) for e in plan.launches[0].grid] == [0, 1, 1]
        plan = lowered(REGIONS[name]("m", 8), ONE_BLOCK["vectors"])
        assert plan.grid(plan.launches[0], {"m": 0})[0] == 0


def test_a_resident_softmax_evaluates_one_exponential_an_element() -> None:
    source = render(lowered(plans.softmax(4, 64), RowLeaf(1, 8, 8, "smem")).launches[0].kernel, "opencl")
    body = source[source.index("__kernel") :]
    assert body.count("emmy_expx8(") == 1
    reread = render(lowered(plans.softmax(4, 64), RowLeaf(1, 8, 8, "reread")).launches[0].kernel, "opencl")
    assert reread[reread.index("__kernel") :].count("emmy_expx8(") > 1


def test_what_is_kept_needs_no_barrier_of_its_own() -> None:
    kernel = lowered(plans.softmax(4, 64), RESIDENT["smem threads"]).launches[0].kernel
    kept = [s for s in kernel.shared if s.name.startswith("kept")]
    assert kept == [Shared(kept[0].name, DType.F32, 4 * 64, 64)]
    stmts = list(statements(kernel.body))
    assert sum(isinstance(s, Combine) for s in stmts) == 2
    assert any(isinstance(s, Store) and s.buffer == kept[0].name for s in stmts)


def test_rows_of_infinities() -> None:
    x = np.full((2, 9), -np.inf, np.float32)
    x[1, 4] = 1.0
    for leaf in (ONE_BLOCK["vectors"], RESIDENT["smem"]):
        got = plans.interpret(lowered(plans.softmax(2, 9), leaf), {"x": x}, {})["out"]
        assert np.isnan(got[0]).all()
        np.testing.assert_array_equal(got[1], np.eye(9, dtype=np.float32)[4])


def test_atomics_join_a_plain_sum() -> None:
    region = plans.row_reduce(3, 40)
    plan = lowered(region, RowLeaf(1, 4, 4, "reread", 4, parts=2, atomic=True, spread=True))
    assert not plan.deterministic
    assert_right(plan, region)


def test_other_rows_are_refused() -> None:
    i, k = Axis("i", i32(4)), Axis("k", i32(4))
    from emmy.ir.expr import Load

    x = Load("x", (i.var, k.var), DType.F32)
    total = Comp("s", (i,), (x,), DType.F32, (k,), "sum")
    late = Comp("y", (i, k), (call("sub", x, Load("s", (call("sub", i32(3), i.var),), DType.F32)),), DType.F32)
    tensor = Tensor("x", (i32(4), i32(4)), DType.F32)
    region = Region("r", (), (tensor,), (total, late), (Output(Tensor("y0", tensor.shape, DType.F32), "y"),))
    with pytest.raises(Refused, match="shared_rows"):
        row_program(region)


def test_contractions_are_refused() -> None:
    from tests.passes.test_lower_scalar import matmul

    with pytest.raises(Refused, match="row_is_read_once"):
        row_program(matmul(4, 4, 4))


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(REGIONS)),
    rows=st.sampled_from([0, 1, 2, 5, 8, 17]),
    columns=st.sampled_from([1, 2, 7, 16, 31, 64, 97]),
    vec=st.sampled_from([1, 2, 4, 8, 16, 32]),
    access=st.sampled_from([1, 2, 4, 8]),
    threads=st.sampled_from([1, 2, 8, 32]),
    block_rows=st.sampled_from([1, 2, 4, 8]),
    parts=st.sampled_from([1, 2, 5]),
    residency=st.sampled_from(["reread", "smem", "reg"]),
    spread=st.booleans(),
)
def test_any_leaf_equals_the_oracle(
    name: str, rows: int, columns: int, vec: int, access: int, threads: int, block_rows: int, parts: int,
    residency: str, spread: bool,
) -> None:  # fmt: skip
    region = REGIONS[name](rows, columns)
    program = row_program(region)
    access = min(access, vec)
    simple = not program.is_map and all(not s.reductions for s in program.sweeps()[1:])
    if program.across:
        threads, residency, block_rows = 1, "reread", block_rows * access
    if program.is_map or (parts > 1 and simple) or name == "column_softmax":
        residency = "reread"
    if residency == "reg" and columns % access:
        access = 1
    leaf = RowLeaf(block_rows, vec, access, residency, threads, parts if simple else 1, spread=spread)
    assert_right(lower_row(program, leaf, region.name, str(leaf)), region)


# -------------------------------------------------------------------------------------------- printed and run


def test_printed_softmax() -> None:
    plan = lowered(plans.softmax(1024, 4096), RowLeaf(1, 16, 8, "smem"))
    expect(EXPECTED / "row_softmax.cl", render(plan.launches[0].kernel, "opencl"))


def test_printed_rms_norm() -> None:
    plan = lowered(plans.rms_norm("m", 1024), RowLeaf(2, 4, 4, "reg", 128, spread=True))
    expect(EXPECTED / "row_rms_norm.cu", render(plan.launches[0].kernel, "cuda"))


def test_weights_are_read_before_the_reduction() -> None:
    body = lowered(plans.rms_norm(64, 1024), RowLeaf(1, 4, 4, "reg", 128, spread=True)).launches[0].kernel.body
    combine = next(n for n, stmt in enumerate(body) if isinstance(stmt, Combine))
    reads = {
        n: node for n, stmt in enumerate(body) for expr in stmt.exprs for node in walk(expr)
        if isinstance(node, Mem) and node.buffer == "w"
    }  # fmt: skip
    assert len(reads) == 2
    assert max(reads) < combine
    assert all(node.early for node in reads.values())
    # where they would take more than 128 bytes of registers they stay where they are used
    body = lowered(plans.rms_norm(64, 2048), RowLeaf(1, 4, 4, "reg", 32, spread=True)).launches[0].kernel.body
    combine = next(n for n, stmt in enumerate(body) if isinstance(stmt, Combine))
    texts = [str(stmt.exprs) for stmt in body[combine:]]
    assert sum("buffer='w'" in text for text in texts) == 16


def test_quotients_of_logistic_functions_have_no_branch() -> None:
    text = render(lowered(plans.silu_mul(16, 1024), CUDA["silu_mul"]).launches[0].kernel, "cuda")
    assert "emmy_near_div_f32" in text
    text = render(lowered(plans.layer_norm(16, 1024), CUDA["layer_norm"]).launches[0].kernel, "cuda")
    assert "emmy_near_div_f32" not in text


CUDA = {
    "softmax": RowLeaf(2, 8, 4, "smem", 128, spread=True),
    "rms_norm": RowLeaf(1, 4, 4, "reg", 256, spread=True),
    "layer_norm": RowLeaf(4, 4, 4, "reread", 32, spread=True),
    "mean_and_max": RowLeaf(1, 8, 4, "reread", 64, spread=True),
    "row_sum": RowLeaf(1, 4, 4, "reread", 64, parts=4, spread=True),
    "column_softmax": RowLeaf(256, 4, 4, "reread", spread=True),
    "silu_mul": RowLeaf(2, 8, 4, "reread", 128, spread=True),
}


@pytest.mark.parametrize("name", CUDA)
def test_cuda_compiles(name: str) -> None:
    plan = lowered(REGIONS[name](512, 1024), CUDA[name])
    require_nvrtc()
    for launch in plan.launches:
        assert compile_cuda(render(launch.kernel, "cuda"), "sm_80").cubin


POCL = [
    ("softmax", RESIDENT["smem"], (5, 37)),
    ("softmax", ONE_BLOCK["vectors"], ("m", 40)),
    ("rms_norm", RowLeaf(2, 8, 4, "reread", parts=3), (3, 133)),
    ("layer_norm", RESIDENT["smem threads"], (6, 100)),
    ("mean_and_max", RESIDENT["registers"], (3, 32)),
    ("row_sum", ONE_BLOCK["threads"], (5, 37)),
    ("column_softmax", RowLeaf(8, 16, 8, "reread"), (19, 37)),
    ("silu_mul", RowLeaf(3, 16, 8, "reread"), (5, 37)),
]


@pytest.mark.parametrize(("name", "leaf", "size"), POCL)
def test_on_the_device(name: str, leaf: RowLeaf, size: tuple) -> None:
    region = REGIONS[name](*size)
    assert_right(lowered(region, leaf), region, run=on_pocl)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
def test_types_on_the_device(dtype: DType) -> None:
    region = plans.rms_norm(3, 21, dtype)
    leaf = RowLeaf(1, 8, 4, "reread")
    assert_right(lowered(region, leaf), region, run=on_pocl)


def test_roofline_numbers() -> None:
    plan = lowered(plans.silu_mul(16, 32), ONE_BLOCK["vectors"])
    assert plan.bytes_min == 3 * 16 * 32 * 4
    assert plan.flops > 16 * 32
