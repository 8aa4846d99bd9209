"""Targets traced whole: golden shapes, symbolic axes, example inputs."""

import numpy as np
import pytest
import torch

from emmy.bench.reference import check_sizes
from emmy.errors import EmmyError, InputError, UnsupportedOp
from emmy.frontend import Traced, random_inputs, to_numpy, to_torch, trace, trace_callable, trace_golden, trace_snippet
from emmy.frontend.reproducer import dumps, loads
from emmy.goldens.dataset import InputSpec
from emmy.ir.dtype import DType
from emmy.ir.nest import verify
from emmy.ir.nest_interp import run_region
from emmy.target import DynamicSpec, Target, TargetKind

SEQ = DynamicSpec("seq_len", "x0", 0)


def error_of(traced: Traced, symbols: dict[str, int] | None = None) -> float:
    """Largest error of the oracle in float64 against eager in the program's own types, by the largest value."""
    inputs = traced.inputs(symbols=symbols)
    (expected,) = traced.eager(*to_torch(inputs, traced.graph.inputs).values())
    got = run_region(traced.region, inputs, symbols, dtype=np.float64)["out"]
    held = to_numpy(expected).astype(np.float64)
    return float(np.abs(got - held).max() / np.abs(held).max())


@pytest.mark.parametrize(
    "name",
    ["quick.matmul.64x512x256", "quick.matmul.256.dynM", "quick.softmax.1024x4096", "quick.rms_norm.1024x4096",
     "quick.rms_norm.512x1024.dynM", "quick.reduce.1024x4096", "quick.pointwise.1024x4096",
     "quick.attention.b1h4s256d64.causal", "softmax.512x4096.fp16.dynM"],
)  # fmt: skip
def test_golden_shapes_mean_what_eager_computes(name: str) -> None:
    traced = trace_golden(name)
    verify(traced.region)
    assert traced.graph.name == name
    limit = 2e-3 if "fp16" in name else 1e-5
    assert error_of(traced) < limit
    if "dynM" in name:
        assert [symbol.name for symbol in traced.graph.symbols] == ["seq_len"]
        for size in (1, 509):
            assert error_of(traced, {"seq_len": size}) < limit


def test_an_unknown_golden_lists_the_nearest() -> None:
    with pytest.raises(InputError, match=r"square\.512"):
        trace(Target(TargetKind.GOLDEN, "square.513"))


def test_a_callable_over_declared_inputs() -> None:
    specs = [InputSpec("x0", (512, 8), DType.F16, ((0, "rows"),)), InputSpec("x1", (8, 4), DType.F16)]
    traced = trace_callable("x0 @ x1", specs, "mine")
    assert traced.examples == {}
    assert error_of(traced, {"rows": 3}) < 2e-3


def test_one_symbol_may_stand_at_several_axes() -> None:
    specs = [SEQ, DynamicSpec("seq_len", "x1", 1)]
    traced = trace(Target(TargetKind.SNIPPET, "x0 = torch.randn(8, 4); x1 = torch.randn(3, 8); x1 @ x0", tuple(specs)))
    assert [symbol.name for symbol in traced.graph.symbols] == ["seq_len"]
    assert error_of(traced, {"seq_len": 5}) < 1e-5


def test_seq_len_sizes_the_example_and_not_the_hint() -> None:
    traced = trace_snippet("x0 = torch.randn(8, 4); x0 * 2", [SEQ], seq_len=32)
    assert traced.examples["x0"].shape == (32, 4)
    assert traced.graph.hints() == {"seq_len": 512}
    assert traced.inputs()["x0"].shape == (512, 4)


@pytest.mark.parametrize(
    ("source", "specs", "message"),
    [
        (
            "x0 = torch.randn(8, 4); x0 @ torch.randn(4, 8)",
            [DynamicSpec("n", "y", 0)],
            "--dynamic n@y:0: found no input y",
        ),
        ("x0 = torch.randn(8, 4); x0 + 1", [DynamicSpec("n", "x0", 2)], "--dynamic n@x0:2: found x0 has 2 axes"),
        (
            "x0 = torch.randn(8, 4); x0.view(2, 4, 4)",
            [DynamicSpec("n", "x0", 0)],
            "--dynamic n@x0:0: found a program that fixes",
        ),
        (
            "x0 = torch.randn(8, 4); x0 + torch.randn(8, 1)",
            [DynamicSpec("n", "x0", 0)],
            "--dynamic n@x0:0: found a program that fixes",
        ),
        ("x0 = torch.randn(8, 4); x0 * (2 if x0.shape[0] > 8 else 3)", [DynamicSpec("n", "x0", 0)], "--dynamic n@x0:0"),
        (
            "x0 = torch.randn(8, 4); x0 + 1",
            [DynamicSpec("n", "x0", 0), DynamicSpec("n", "x0", 1)],
            "expected 8, as at x0:0",
        ),
        ("x0 = torch.randn(1, 4); x0 + 1", [DynamicSpec("n", "x0", 0)], "an example size of 1"),
    ],
)
def test_symbolic_axes_that_cannot_be(source: str, specs: list[DynamicSpec], message: str) -> None:
    with pytest.raises(InputError) as caught:
        trace_snippet(source, specs)
    assert message in str(caught.value)


def test_seq_len_needs_a_symbolic_axis() -> None:
    with pytest.raises(InputError, match="--seq-len"):
        trace_snippet("torch.randn(3) + 1", seq_len=8)


def test_data_dependent_control_flow_is_refused() -> None:
    with pytest.raises(EmmyError) as caught:
        trace_snippet("x = torch.randn(3); x * 2 if x.sum() > 0 else x")
    assert isinstance(caught.value, UnsupportedOp)
    assert "snippet:1:" in str(caught.value)


def test_random_inputs_fit_their_use() -> None:
    traced = trace_snippet(
        "table = torch.randn(5, 3); ids = torch.randint(0, 5, (40,)); pick = torch.randint(0, 3, (40, 2))\n"
        "n = torch.randint(0, 3, (9,))\n"
        "flags = torch.ones(30, dtype=torch.bool); b = torch.randn(4, dtype=torch.bfloat16)\n"
        "F.embedding(ids.view(8, 5), table), torch.gather(table[ids], 1, pick), n * 2, flags.logical_not(), b * 2"
    )
    inputs = random_inputs(traced.graph, seed=3)
    assert set(np.unique(inputs["ids"])) == set(range(5))
    assert set(np.unique(inputs["pick"])) == set(range(3))
    assert set(np.unique(inputs["n"])) <= set(range(-8, 8))
    assert 0 < inputs["flags"].sum() < inputs["flags"].size
    np.testing.assert_array_equal(inputs["b"], to_numpy(torch.tensor(inputs["b"]).bfloat16()))
    again = random_inputs(traced.graph, seed=3, only=["n"])
    assert list(again) == ["n"]
    np.testing.assert_array_equal(again["n"], inputs["n"])
    assert not np.array_equal(random_inputs(traced.graph, seed=4)["n"], inputs["n"])


def test_own_values_are_used_where_they_fit() -> None:
    traced = trace_snippet("x0 = torch.full((512, 4), 3.0); w = nn.Linear(4, 4); w(x0)", [SEQ])
    assert (traced.inputs()["x0"] == 3).all()
    assert not (traced.inputs(symbols={"seq_len": 7})["x0"] == 3).all()
    np.testing.assert_array_equal(traced.inputs(symbols={"seq_len": 7})["w_weight"], traced.inputs()["w_weight"])


def test_eager_takes_parameters_as_arguments() -> None:
    traced = trace_snippet("w = nn.Linear(4, 3); torch.tanh(w(torch.randn(5, 4)))")
    x, weight, bias = torch.randn(5, 4), torch.randn(3, 4), torch.randn(3)
    assert [tensor.name for tensor in traced.graph.inputs] == ["x0", "w_weight", "w_bias"]
    (out,) = traced.eager(x, weight, bias)
    torch.testing.assert_close(out, torch.tanh(x @ weight.T + bias))


@pytest.mark.parametrize("name", ["x0", "i0", "k12"])
def test_a_symbol_has_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InputError, match=f"the name {name}"):
        trace_snippet("x0 = torch.randn(8, 4); x0 + 1", [DynamicSpec(name, "x0", 0)])


def test_an_upper_limit_of_a_size_is_kept() -> None:
    table = "table = torch.randn({0}, 4); x = torch.randn(8, 4); x + table[: x.shape[0]]"
    traced = trace_snippet(table.format(600), [DynamicSpec("rows", "x", 0)])
    assert [(symbol.name, symbol.most) for symbol in traced.graph.symbols] == [("rows", 600)]
    assert loads(dumps(traced.graph)) == traced.graph
    assert error_of(traced, {"rows": 600}) < 1e-5
    with pytest.raises(ValueError, match="rows: found size 601, expected at most 600"):
        run_region(traced.region, traced.inputs(symbols={"rows": 601}), {"rows": 601})
    with pytest.raises(InputError, match="right up to size 64"):
        trace_snippet(table.format(64), [DynamicSpec("rows", "x", 0)])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_the_lowest_integer_is_divided_toward_zero(dtype: str) -> None:
    lowest = torch.iinfo(getattr(torch, dtype)).min
    values = f"torch.tensor([{lowest}, {lowest + 1}, -7, 7], dtype=torch.{dtype})"
    traced = trace_snippet(f"x0 = {values}; torch.div(x0, 3, rounding_mode='trunc')")
    inputs = {"x0": np.array([lowest, lowest + 1, -7, 7], dtype)}
    (found,) = run_region(traced.region, inputs).values()
    np.testing.assert_array_equal(found, np.trunc(inputs["x0"] / 3.0))


@pytest.mark.parametrize(
    ("source", "least"),
    [
        ("x0.unfold(0, 4, 2)", 4), ("x0[:5] * 2", 5), ("x0[-4:] + 1", 4), ("x0.narrow(0, 0, 7)", 7), ("x0[2] + x0", 3),
        ("x0[:3].sum(0)", 3), ("torch.cat([x0[4:], x0[:4]])", 4), ("x0 * (2 if x0.shape[0] > 5 else 3)", 6),
        ("x0[1:] * x0[:-1]", 0), ("x0 + 1", 0),
    ],
)  # fmt: skip
def test_a_lower_limit_of_a_size_is_kept(source: str, least: int) -> None:
    traced = trace_snippet(f"x0 = torch.randn(64, 8); {source}", [DynamicSpec("rows", "x0", 0)])
    (symbol,) = traced.graph.symbols
    assert (symbol.least, symbol.most) == (least, None)
    assert loads(dumps(traced.graph)) == traced.graph
    assert error_of(traced, {"rows": max(least, 2)}) < 1e-5
    assert check_sizes(traced.region.symbols) == ({"rows": 509}, {"rows": max(least, 1)})
    if least:
        with pytest.raises(ValueError, match=f"rows: found size {least - 1}, expected at least {least}"):
            run_region(traced.region, traced.inputs(symbols={"rows": least - 1}), {"rows": least - 1})


def test_a_lower_limit_above_the_hint_is_refused() -> None:
    with pytest.raises(InputError, match="right from size 600 on"):
        trace_snippet("x0 = torch.randn(800, 4); x0[:600] + 1", [DynamicSpec("rows", "x0", 0)])


def test_writes_into_a_copy_are_traced() -> None:
    traced = trace_snippet("x = torch.randn(4, 8); y = x.clone(); y[:, 0] = 0; y[1:3] = y[0:2] * 2; y[:, ::3] += 1; y")
    assert error_of(traced) < 1e-6


def test_inputs_beyond_any_memory_are_bad_input() -> None:
    with pytest.raises(InputError, match="big: its inputs cannot be made"):
        trace_callable("x0 + 1", [InputSpec("x0", (99_999_999_999, 4096), DType.F32)], "big")
