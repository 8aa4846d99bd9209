"""Reproducers: saved and loaded unharmed, replayed in eager torch, strict about what they read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from emmy.errors import InputError, UnsupportedOp
from emmy.frontend import to_numpy, to_torch, trace, trace_golden, trace_snippet
from emmy.frontend.reproducer import dumps, load, loads, run_eager, save
from emmy.ir.graph import Graph
from emmy.ir.nest_interp import run_region
from emmy.target import DynamicSpec, Target, TargetKind

LAYER = (
    "w = nn.Linear(8, 24); x = torch.randn(6, 8, dtype=torch.float32); h = w(x).view(x.shape[0], 3, 8)\n"
    "a = F.scaled_dot_product_attention(h, h, h, is_causal=True)\n"
    "torch.cat([a, h], 0).masked_fill(torch.ones(3, 8, dtype=torch.bool).tril(), float('-inf')).to(torch.bfloat16), "
    "h[..., 1:].clamp(max=1.0), x[:-1] * torch.arange(x.shape[0] - 1)[:, None]"
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return trace_snippet(LAYER, [DynamicSpec("rows", "x", 0)]).graph


def test_round_trip(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "k.torch.json"
    save(graph, path)
    assert load(path) == graph
    assert dumps(load(path)) == dumps(graph)


def test_it_replays_at_other_sizes(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "k.torch.json"
    save(graph, path)
    traced = trace(Target(TargetKind.REPRODUCER, str(path)))
    inputs = traced.inputs(symbols={"rows": 5})
    expected = traced.eager(*to_torch(inputs, traced.graph.inputs).values())
    got = run_region(traced.region, inputs, {"rows": 5})
    for array, reference in zip(got.values(), expected, strict=True):
        np.testing.assert_allclose(array, to_numpy(reference), rtol=2e-2, atol=1e-5)


def test_eager_replay_is_the_original_program() -> None:
    traced = trace_golden("quick.attention.b1h4s256d64.causal")
    tensors = to_torch(traced.inputs(), traced.graph.inputs)
    (expected,) = traced.eager(*tensors.values())
    (replayed,) = run_eager(loads(dumps(traced.graph)), tensors)
    torch.testing.assert_close(replayed, expected)


def test_it_holds_data_and_no_code(graph: Graph) -> None:
    data = json.loads(dumps(graph))
    assert set(data) == {"version", "name", "symbols", "inputs", "nodes", "outputs"}
    assert data["symbols"] == {"rows": 512}


def _set(data: dict, path: list, value: object) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["version"], 2, "version: found 2, expected 1"),
        (["extra"], 1, "expected the fields version, name"),
        (["nodes"], {}, "file.nodes"),
        (["symbols", "rows"], 0, "symbols.rows: found 0"),
        (["inputs", 0, "dtype"], "f8", r'inputs\[0\].dtype: found "f8", expected bool, u8'),
        (["inputs", 0, "shape"], ["other"], r'inputs\[0\].shape: found "other"'),
        (["inputs", 0, "shape"], [["__import__", 1, 2]], r"inputs\[0\].shape"),
        (["inputs", 0, "name"], "x y", r"inputs\[0\].name"),
        (["nodes", 0, "args", "input"], {"ref": "nobody"}, "reads nobody before it is defined"),
        (["nodes", 0, "args", "input"], {"code": "x"}, r"nodes\[0\].args.input"),
        (["nodes", 0, "where"], 3, r"nodes\[0\].where"),
        (["outputs"], [], "outputs: found"),
        (["outputs"], ["nobody"], "output nobody is not computed"),
    ],
)
def test_strict_loading(graph: Graph, path: list, value: object, message: str) -> None:
    data = json.loads(dumps(graph))
    _set(data, path, value)
    with pytest.raises(InputError, match=message) as caught:
        loads(json.dumps(data), "k.torch.json")
    assert str(caught.value).startswith("k.torch.json: ")


SOFTMAX = "x = torch.randn(6, 24); w = torch.randn(16, 24); torch.softmax(F.gelu(F.linear(x, w)).to(torch.float16), -1)"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["nodes", 0, "args", "foo"], 1, r"nodes\[0\] \(linear = aten.linear.default\).args: found \"foo\""),
        (["nodes", 0, "args"], {"input": {"ref": "x"}}, r"nodes\[0\].*found \[\"input\"\], expected weight as well"),
        (["nodes", 0, "args", "weight"], 3, r"args.weight: found \"3\", expected a value of type Tensor"),
        (["nodes", 1, "args", "self"], True, r"args.self: found \"True\", expected a value of type Tensor"),
        (["nodes", 1, "args", "self"], [{"ref": "x"}], r"args.self: found \"\[x\]\""),
        (["nodes", 1, "args", "approximate"], "foo", r"nodes\[1\] .*torch refuses .* either none or tanh"),
        (["nodes", 2, "args", "dtype"], "f16", r"args.dtype: found \"'f16'\", expected a value of type"),
        (["nodes", 2, "args", "dtype"], {"dtype": "c64"}, r"nodes\[2\].args.dtype: found \"c64\", expected bool"),
        (
            ["nodes", 3, "args", "dim"],
            {"ref": "x"},
            r"nodes\[3\] .*args.dim: found \"x\", expected a value of type int",
        ),
        (["nodes", 3, "args", "dim"], 1.5, r"args.dim: found \"1.5\""),
        (["nodes", 3, "args", "dim"], 7, r"args.dim: found 7, expected an axis of f16\[6, 16\]"),
        (["nodes", 1, "results", 0, "shape"], [6, 17], r"gelu: found \"f32\[6, 17\]\", expected f32\[6, 16\]"),
        (["nodes", 1, "results", 0, "dtype"], "f16", r"gelu: found \"f16\[6, 16\]\", expected f32\[6, 16\]"),
        (["inputs", 1, "shape"], [16, 25], r"nodes\[0\] .*torch refuses its arguments"),
        (["inputs", 1, "shape"], [16, -24], r"inputs, w.shape: found \[16, -24\]"),
        (["inputs", 1, "dtype"], "f16", r"found \"f32\[6, 24\], f16\[16, 24\]\", expected tensors of one dtype"),
    ],
)
def test_arguments_and_results_are_checked_by_the_operator(path: list, value: object, message: str) -> None:
    data = json.loads(dumps(trace_snippet(SOFTMAX).graph))
    loads(json.dumps(data))
    _set(data, path, value)
    with pytest.raises(InputError, match=message) as caught:
        loads(json.dumps(data), "k.torch.json")
    assert caught.value.exit_code == 2


def test_more_results_than_the_operator_has() -> None:
    data = json.loads(dumps(trace_snippet(SOFTMAX).graph))
    data["nodes"][1]["results"].append({"name": "more", "dtype": "f32", "shape": [1]})
    with pytest.raises(InputError, match=r"nodes\[1\] .*results: found 2, expected 1 at most"):
        loads(json.dumps(data))


def test_only_operations_of_the_table(graph: Graph) -> None:
    data = json.loads(dumps(graph))
    data["nodes"][0]["op"] = "aten.sort.default"
    with pytest.raises(UnsupportedOp, match=r"aten\.sort"):
        loads(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[1]", "nan", "[" * 100_000], ids=["empty", "cut", "list", "word", "deep"])
def test_not_a_reproducer(text: str) -> None:
    with pytest.raises(InputError):
        loads(text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.torch\.json"):
        load(tmp_path / "nothing.torch.json")
    (tmp_path / "b.torch.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load(tmp_path / "b.torch.json")
