"""References of regions, and a printed plan held to them on the device, the symbolic axis at its hint, 509 and 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emmy.bench.artefact import Artefact, build_artefact
from emmy.bench.client import Worker
from emmy.bench.inputs import InputSpec, generate
from emmy.bench.jobs import ReferenceSet, Reply, Row
from emmy.bench.records import Status
from emmy.bench.reference import BLOCK, check_sizes, index_limits, reference, scale_of
from emmy.ir.dtype import DType
from emmy.ir.expr import Load, Var, call, i32
from emmy.ir.nest import Axis, Comp, Output, Region, Symbol, Tensor
from emmy.schedule.knobs import KnobMap
from emmy.schedule.tiers.scalar import ScalarTier
from tests.passes.devices import CPU

ROW, COL, K = Var("i"), Var("j"), Var("k")


def matmul(rows: int | str, n: int = 24, k: int = 32) -> Region:
    m = Var(rows) if isinstance(rows, str) else i32(rows)
    product = call("mul", Load("x0", (ROW, K), DType.F32), Load("x1", (K, COL), DType.F32))
    axes = (Axis("i", m), Axis("j", i32(n)))
    comp = Comp("acc", axes, (product,), DType.F32, (Axis("k", i32(k)),), "sum")
    inputs = (Tensor("x0", (m, i32(k)), DType.F32), Tensor("x1", (i32(k), i32(n)), DType.F32))
    symbols = (Symbol(rows, 40),) if isinstance(rows, str) else ()
    return Region("mm", symbols, inputs, (comp,), (Output(Tensor("y", (m, i32(n)), DType.F32), "acc"),))


def test_a_scale_is_that_of_the_whole_array() -> None:
    array = np.random.default_rng(0).standard_normal((3, BLOCK // 2 + 11))
    array[1, 5], array[2, 7] = np.inf, np.nan
    rms = np.sqrt(np.mean(array[np.isfinite(array)] ** 2))
    np.testing.assert_allclose(scale_of(array, None), np.maximum(np.abs(array), rms).astype(np.float32), rtol=1e-6)
    wanted = np.maximum(2 * np.abs(array), 0.01 * rms).astype(np.float32)
    np.testing.assert_allclose(scale_of(array, 2 * array), wanted, rtol=1e-6)
    assert scale_of(np.zeros((0, 4)), None).shape == (0, 4)


def embedding(vocabulary: int) -> Region:
    ids, table = Tensor("ids", (i32(6),), DType.I64), Tensor("table", (i32(vocabulary), i32(4)), DType.F32)
    picked = Load("table", (Load("ids", (ROW,), DType.I64), COL), DType.F32)
    comp = Comp("out", (Axis("i", i32(6)), Axis("j", i32(4))), (picked,), DType.F32)
    return Region("emb", (), (ids, table), (comp,), (Output(Tensor("y", (i32(6), i32(4)), DType.F32), "out"),))


def test_reference_is_the_product_in_float64_with_its_scale(tmp_path: Path) -> None:
    refs = reference(matmul(16), tmp_path)
    (case,) = refs.cases
    a, b = (generate(0, spec).astype(np.float64) for spec in case.inputs)
    np.testing.assert_allclose(np.load(case.outputs["y"]), a @ b, rtol=1e-13)
    np.testing.assert_allclose(np.load(case.scales["y"]), np.abs(a) @ np.abs(b), rtol=1e-6)


def test_files_are_made_once_and_survive_the_trip_through_json(tmp_path: Path) -> None:
    first = reference(matmul("m"), tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")}
    second = reference(matmul("m"), tmp_path)
    assert first == second
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npy")} == stamps
    assert ReferenceSet.from_json(first.to_json()) == first
    assert [dict(case.symbols) for case in first.cases] == [{"m": 40}, {"m": 509}, {"m": 1}]
    assert reference(matmul("m"), tmp_path, seed=1).key != first.key


def test_names_do_not_decide_where_the_data_lies(tmp_path: Path) -> None:
    region = matmul(16)
    renamed = replace(region, outputs=(Output(replace(region.outputs[0].tensor, name="result"), "acc"),))
    assert reference(region, tmp_path).cases[0].outputs["y"] == reference(renamed, tmp_path).cases[0].outputs["result"]


def test_empty_programs_have_references(tmp_path: Path) -> None:
    from tests.gpu.cases import CASES

    for name, shape in (("attention.f32.b0", (0, 2, 40, 64)), ("batched.f32.b0", (0, 33, 40)), ("sum.f32.n0", (5,))):
        (path,) = reference(CASES[name].region(), tmp_path).cases[0].outputs.values()
        assert np.load(path).shape == shape


def test_indices_stay_inside_the_table(tmp_path: Path) -> None:
    assert index_limits(embedding(3), {}) == {"ids": 3}
    (case,) = reference(embedding(3), tmp_path).cases
    assert generate(0, case.inputs[0]).max() <= 2
    given = reference(embedding(3), tmp_path, kinds={"ids": InputSpec("ids", 0, (), "i64", "range", 1, 2)})
    assert generate(0, given.cases[0].inputs[0]).tolist() == [1] * 6


def plan(region: Region, knobs: str) -> Artefact:
    tier = ScalarTier()
    problem = tier.match(region, CPU)
    lowered = tier.lower(problem, CPU, tier.read(problem, KnobMap.parse(knobs)))
    return build_artefact(lowered, "opencl", extra_sizes=check_sizes(region.symbols))


@pytest.mark.parametrize("knobs", ["TILE=n1x1/f8x3/k1", "TILE=n1x1/f8x4/k2,REDUCE=g2k"])
def test_printed_plan_is_right_at_every_size(worker: Worker, tmp_path: Path, knobs: str) -> None:
    region = matmul("m")
    refs = reference(region, tmp_path)
    outcome = worker.submit({"job": "qualify", "row": Row("a", plan(region, knobs)).to_json(), "refs": refs.to_json()})
    reply = Reply.from_json(outcome.reply)
    assert reply.status == Status.OK, reply.error
    assert reply.rel_error is not None
    assert 0 < reply.rel_error < 1e-6


def test_error_at_another_size_names_the_size(worker: Worker, tmp_path: Path) -> None:
    region = matmul("m")
    artefact = plan(region, "TILE=n1x1/f8x3/k1")
    broken = [replace(s, grid=(s.grid[0] - 3, 1, 1)) for s in artefact.cases[1].steps]
    cases = (artefact.cases[0], replace(artefact.cases[1], steps=tuple(broken)), artefact.cases[2])
    row = Row("a", replace(artefact, cases=cases))
    outcome = worker.submit({"job": "qualify", "row": row.to_json(), "refs": reference(region, tmp_path).to_json()})
    reply = Reply.from_json(outcome.reply)
    assert reply.status == Status.WRONG_RESULT
    assert "{'m': 509}" in reply.error
    assert "not written" in reply.error
