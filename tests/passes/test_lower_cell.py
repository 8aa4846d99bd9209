"""Cell programs lowered to kernels, against the oracle: any type, rank and stride."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.errors import Refused
from emmy.ir.dtype import DType
from emmy.ir.expr import Const, Expr, Load, call, cast, f32, i32, select
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor, verify
from emmy.ir.plan import Plan
from emmy.passes.lower.cell import cell_program, lower_cell
from tests.passes import plans
from tests.passes.plans import assert_right, on_pocl
from tests.passes.test_lower_scalar import matmul

FORMS = [(1, 16, 8), (8, 4, 4), (4, 8, 2), (1, 1, 1)]
"""(threads, cells a thread, cells of a vector)."""


def lowered(region: Region, form: tuple[int, int, int]) -> Plan:
    return lower_cell(cell_program(region), *form, region.name, str(form))


def region_of(comps: list[Comp], inputs: list[Tensor], source: str, dtype: DType) -> Region:
    comp = next(c for c in comps if c.name == source.split(".")[0])
    out = Tensor("out", tuple(a.extent for a in comp.axes), dtype)
    region = Region("r", (), tuple(inputs), tuple(comps), (Output(out, source),))
    verify(region)
    return region


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [(3, 64), (5, 37), (1, 1)])
@pytest.mark.parametrize("monoid", ["sum", "max", "prod", "argmax", "argmin", "any", "welford"])
def test_rows(monoid: str, size: tuple[int, int], form: tuple[int, int, int]) -> None:
    region = plans.row_reduce(*size, monoid)
    assert_right(lowered(region, form), region)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["silu_mul", "bias", "column_sum"])
@pytest.mark.parametrize("sizes", [{"m": 13, "n": 40}, {"m": 1, "n": 3}, {"m": 33, "n": 1}])
def test_symbolic(name: str, sizes: dict[str, int], form: tuple[int, int, int]) -> None:
    region = getattr(plans, name)("m", "n")
    assert_right(lowered(region, form), region, sizes)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
def test_float_types(dtype: DType) -> None:
    for region in (plans.silu_mul(3, 21, dtype), plans.column_sum(5, 21, dtype)):
        assert_right(lowered(region, (2, 4, 4)), region)


@pytest.mark.parametrize("dtype", [DType.U8, DType.I8, DType.I16, DType.I32, DType.I64, DType.BOOL])
def test_other_types(dtype: DType) -> None:
    i, j = Axis("i", i32(3)), Axis("j", i32(19))
    x, y = (Load(n, (i.var, j.var), dtype) for n in ("x", "y"))
    tensors = [Tensor(n, (i32(3), i32(19)), dtype) for n in ("x", "y")]
    value = call("and", x, call("not", y)) if dtype == DType.BOOL else call("max", x, y)
    region = region_of([Comp("m", (i, j), (value,), dtype)], tensors, "m", dtype)
    assert_right(lowered(region, (2, 4, 4)), region)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_contractions(bias: bool, form: tuple[int, int, int]) -> None:
    for region in (matmul(5, 19, 7, bias=bias), matmul(3, 8, 5, nk=True, bias=bias), matmul(2, 9, 4, batch=2)):
        assert_right(lowered(region, form), region)


@pytest.mark.parametrize("form", FORMS)
def test_a_transposed_copy(form: tuple[int, int, int]) -> None:
    i, j = Axis("i", i32(7)), Axis("j", i32(21))
    value = Load("x", (j.var, i.var), DType.F32)
    region = region_of(
        [Comp("t", (i, j), (value,), DType.F32)], [Tensor("x", (i32(21), i32(7)), DType.F32)], "t", DType.F32
    )
    assert_right(lowered(region, form), region)


@pytest.mark.parametrize("form", FORMS)
def test_strided_inputs_and_outer_axes(form: tuple[int, int, int]) -> None:
    b, i, j, k = Axis("b", i32(2)), Axis("i", i32(3)), Axis("j", i32(10)), Axis("k", i32(5))
    x = Load("x", (b.var, j.var, i.var, k.var), DType.F32)
    tensor = Tensor("x", (i32(2), i32(10), i32(3), i32(5)), DType.F32, (i32(300), i32(1), i32(100), i32(20)))
    region = region_of([Comp("s", (b, i, j), (x,), DType.F32, (k,), "sum")], [tensor], "s", DType.F32)
    program = cell_program(region)
    assert program.columns[-1].name == "j"
    sizes: dict[str, int] = {}
    inputs = plans.random_inputs(region, sizes)
    memory = np.zeros(600, np.float32)
    index = np.arange(2)[:, None, None, None] * 300 + np.arange(10)[None, :, None, None]
    index = index + np.arange(3)[None, None, :, None] * 100 + np.arange(5)[None, None, None, :] * 20
    memory[index] = inputs["x"]
    got = plans.interpret(lowered(region, form), {"x": memory}, sizes)["out"]
    np.testing.assert_allclose(got, inputs["x"].sum(3).transpose(0, 2, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_gather(form: tuple[int, int, int]) -> None:
    i, j = Axis("i", i32(6)), Axis("j", i32(11))
    place = cast(Load("at", (i.var,), DType.I64), DType.I32)
    region = region_of(
        [Comp("e", (i, j), (Load("x", (place, j.var), DType.F32),), DType.F32)],
        [Tensor("at", (i32(6),), DType.I64), Tensor("x", (i32(10), i32(11)), DType.F32)], "e", DType.F32,
    )  # fmt: skip
    inputs = plans.random_inputs(region, {})
    inputs["at"] = np.array([3, 0, 9, 9, 1, 4])
    got = plans.interpret(lowered(region, form), inputs, {})["out"]
    np.testing.assert_array_equal(got, inputs["x"][inputs["at"]])


@pytest.mark.parametrize("form", FORMS)
def test_a_concatenation_reads_only_what_is_there(form: tuple[int, int, int]) -> None:
    i, j = Axis("i", i32(3)), Axis("j", i32(15))
    left = Load("x", (i.var, j.var), DType.F32)
    right = Load("y", (i.var, j.var + (-9)), DType.F32)
    value: Expr = select(call("lt", j.var, i32(9)), left, right)
    region = region_of(
        [Comp("c", (i, j), (value,), DType.F32)],
        [Tensor("x", (i32(3), i32(9)), DType.F32), Tensor("y", (i32(3), i32(6)), DType.F32)], "c", DType.F32,
    )  # fmt: skip
    assert_right(lowered(region, form), region)


@pytest.mark.parametrize("form", FORMS)
def test_components_that_carry_an_axis(form: tuple[int, int, int]) -> None:
    i, k, d = Axis("i", i32(4)), Axis("k", i32(6)), Axis("d", i32(10))
    body = (Load("s", (i.var, k.var), DType.F32), Load("v", (k.var, d.var), DType.F32))
    attention = Comp("o", (i,), body, DType.F32, (k,), "online_attention", (d,))
    out = Comp(
        "y", (i, d), (call("div", Load("o.2", (i.var, d.var), DType.F32), Load("o.1", (i.var,), DType.F32)),), DType.F32
    )
    tensors = (Tensor("s", (i32(4), i32(6)), DType.F32), Tensor("v", (i32(6), i32(10)), DType.F32))
    outputs = (
        Output(Tensor("out", (i32(4), i32(10)), DType.F32), "y"),
        Output(Tensor("peak", (i32(4),), DType.F32), "o.0"),
    )
    region = Region("attention", (), tensors, (attention, out), outputs)
    verify(region)
    assert_right(lowered(region, form), region)


def test_scalar_results() -> None:
    k = Axis("k", i32(9))
    x = Load("x", (k.var,), DType.F32)
    total = Comp("s", (), (x,), DType.F32, (k,), "sum")
    mean = Comp("m", (), (call("div", Load("s", (), DType.F32), f32(9.0)),), DType.F32)
    region = region_of([total, mean], [Tensor("x", (i32(9),), DType.F32)], "m", DType.F32)
    assert_right(lowered(region, (1, 1, 1)), region)


def test_empty_reductions_and_no_cells() -> None:
    region = plans.column_sum(0, 5)
    got = plans.interpret(lowered(region, (1, 4, 4)), {"x": np.zeros((0, 5), np.float32)}, {})["out"]
    np.testing.assert_array_equal(got, np.zeros(5, np.float32))
    plan = lowered(plans.silu_mul(0, 8), (1, 4, 4))
    assert plan.grid(plan.launches[0], {})[0] == 0
    plan = lowered(plans.silu_mul(3, 0), (1, 4, 4))
    assert plan.grid(plan.launches[0], {})[0] == 0


def test_several_reductions_are_refused() -> None:
    with pytest.raises(Refused, match="one_reduction_a_cell"):
        cell_program(plans.mean_and_max(3, 4))


def test_maps_over_other_cells_are_refused() -> None:
    with pytest.raises(Refused, match="epilogue_over_same_cells"):
        cell_program(plans.rms_norm(3, 4))


@settings(max_examples=30, deadline=None)
@given(
    monoid=st.sampled_from(["sum", "max", "argmax", "welford"]),
    rows=st.integers(0, 20),
    columns=st.integers(1, 40),
    across=st.booleans(),
    threads=st.sampled_from([1, 2, 8, 16]),
    cells=st.sampled_from([1, 2, 4, 8, 16]),
    access=st.sampled_from([1, 2, 4, 8]),
)
def test_any_leaf(monoid: str, rows: int, columns: int, across: bool, threads: int, cells: int, access: int) -> None:
    region = plans.column_sum(rows, columns) if across else plans.row_reduce(rows, columns, monoid)
    assert_right(lowered(region, (threads, cells, min(access, cells))), region)


@pytest.mark.parametrize("form", [(1, 16, 8), (8, 4, 4)])
def test_on_the_device(form: tuple[int, int, int]) -> None:
    for region in (plans.silu_mul(5, 37), plans.column_sum(7, 37), matmul(5, 19, 7, bias=True)):
        assert_right(lowered(region, form), region, run=on_pocl)


@pytest.mark.parametrize("dtype", [DType.F64, DType.I64, DType.U8, DType.BOOL])
def test_types_on_the_device(dtype: DType) -> None:
    i, j = Axis("i", i32(3)), Axis("j", i32(19))
    x = Load("x", (i.var, j.var), dtype)
    zero = Const(False, DType.BOOL) if dtype == DType.BOOL else cast(i32(3), dtype)
    value = call("or", x, zero) if dtype == DType.BOOL else select(call("lt", x, zero), zero, x)
    tensor = Tensor("x", (i32(3), i32(19)), dtype)
    region = region_of([Comp("m", (i, j), (value,), dtype)], [tensor], "m", dtype)
    assert_right(lowered(region, (1, 8, 4)), region, run=on_pocl)


def test_the_innermost_axis_is_the_contiguous_one() -> None:
    assert cell_program(plans.column_sum(4, 9)).columns[-1].extent == i32(9)


def test_an_epilogue_counts_once_a_cell_and_not_once_a_product() -> None:
    plain, fused = (lowered(matmul(8, 16, 64, bias=bias), (4, 4, 4)) for bias in (False, True))
    assert plain.flops == 2 * 8 * 16 * 64
    assert 0 < fused.flops - plain.flops <= 4 * 8 * 16
