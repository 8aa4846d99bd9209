"""A reproducer for each kernel: its own operations, replayed to the same region; whole operations where it is cut."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from emmy.frontend import trace_reproducer, trace_snippet
from emmy.frontend.export import export_graph
from emmy.frontend.extract import Extract, extract, without_repeats
from emmy.frontend.reproducer import load, save
from emmy.ir.graph import Graph
from emmy.ir.nest import Program, Region, region_key
from emmy.ir.nest_interp import run_region
from emmy.passes.decompose import decompose, decompose_held
from emmy.passes.partition import partition
from emmy.search.structure import cuts
from emmy.target import DynamicSpec
from tests.passes.programs import BERT, CASES, QWEN3, arrays, bert_layer, qwen3_layer

LAYERS = {"bert": (bert_layer, BERT), "qwen3": (qwen3_layer, QWEN3)}
PROGRAMS = {**CASES, **LAYERS}

BLOCK = (
    "w = nn.Linear(8, 24); g = torch.ones(8); x = torch.randn(6, 8)\n"
    "h = w(F.rms_norm(x, (8,), g)).view(x.shape[0], 3, 8).transpose(0, 1)\n"
    "a = F.scaled_dot_product_attention(h, h, h, is_causal=True)\n"
    "F.softmax(a.transpose(0, 1).reshape(x.shape[0], 24) @ w.weight + x, -1)"
)


def graph_of(name: str) -> Graph:
    function, shapes = PROGRAMS[name]
    tensors = [s if isinstance(s, torch.Tensor) else torch.zeros(s) for s in shapes]
    return export_graph("f", function, {f"x{n}": t for n, t in enumerate(tensors)}).graph


def kernels_of(graph: Graph) -> tuple[Program, tuple[Extract, ...]]:
    program = partition(decompose(graph))
    return program, extract(graph, program.regions)


def replayed(one: Extract, folder: Path) -> tuple[Graph, Region]:
    """The graph and the unfused region of an extract, through its file."""
    path = folder / f"{one.region.name}.torch.json"
    save(one.graph, path, one.note)
    traced = trace_reproducer(str(path))
    assert traced.graph == one.graph
    return traced.graph, traced.region


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_reproducers_in_order_are_the_program(name: str, tmp_path: Path) -> None:
    graph = graph_of(name)
    program, found = kernels_of(graph)
    assert [one.region for one in found] == list(program.regions)
    whole = decompose(graph)
    held = arrays(whole)
    expected = run_region(whole, held)
    for one in found:
        alone, region = replayed(one, tmp_path)
        results = run_region(region, {t.name: held[t.name] for t in alone.inputs})
        held |= dict(zip(alone.outputs, results.values(), strict=True))
    for value, array in zip(without_repeats(graph)[0].outputs, expected.values(), strict=True):
        np.testing.assert_allclose(held[value], array, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_reproducer_makes_the_kernels_region(name: str, tmp_path: Path) -> None:
    _, found = kernels_of(graph_of(name))
    for one in found:
        regions = partition(replayed(one, tmp_path)[1]).regions
        assert region_key(one.region) in [region_key(region) for region in regions]
        if not one.note:
            (region,) = regions
            assert region.name == one.region.name
            values = arrays(region)
            renamed = {t.name: values[a.name] for t, a in zip(one.region.inputs, region.inputs, strict=True)}
            results = zip(run_region(region, values).values(), run_region(one.region, renamed).values(), strict=True)
            for own, kernel in results:
                np.testing.assert_array_equal(own, kernel)


def test_a_layer_needs_notes_only_inside_operations() -> None:
    assert not any(one.note for one in kernels_of(graph_of("bert"))[1])
    notes = [one.note for one in kernels_of(graph_of("qwen3"))[1] if one.note]
    assert len(notes) == 4  # the means of both heads' norms stand between two kernels each
    assert all("mean_1_sum" in note or "mean_2_sum" in note for note in notes)


def test_a_kernel_has_no_operation_of_another() -> None:
    _, found = kernels_of(graph_of("bert"))
    ops = [[node.op.split(".")[1] for node in one.graph.nodes] for one in found]
    assert ops[4] == ["transpose", "reshape", "linear", "add"]  # views between kernels belong to the one that reads
    assert ops[5:7] == [["layer_norm"], ["linear", "gelu"]]
    assert [len(one.graph.inputs) for one in found[4:7]] == [4, 3, 3]


def test_a_cut_inside_an_operation_holds_all_of_it(tmp_path: Path) -> None:
    graph = graph_of("bert")
    program, whole = kernels_of(graph)
    place = next(n for n, region in enumerate(program.regions) if "attention" in region.name)
    cut = next(one for one in cuts(program.regions[place]) if str(one.fuse) == "cut")
    kernels = [*program.regions[:place], *cut.children, *program.regions[place + 1 :]]
    found = extract(graph, program.regions, kernels)
    parts = found[place : place + len(cut.children)]
    assert len(parts) == 3
    for one in parts:
        assert one.graph.nodes == whole[place].graph.nodes
        assert all(child.name in one.note for child in cut.children)
        data = json.loads((tmp_path / f"{one.region.name}.torch.json").read_text()) if replayed(one, tmp_path) else {}
        assert data["note"] == one.note
    assert [one.graph for one in found[place + 3 :]] == [one.graph for one in whole[place + 1 :]]


def test_a_cut_between_operations_is_clean() -> None:
    graph = graph_of("matmul_softmax")
    program = partition(decompose(graph))
    cut = next(one for one in cuts(program.regions[0]) if len(one.children) == 2)
    found = extract(graph, program.regions, [*cut.children, *program.regions[1:]])
    assert [[node.op for node in one.graph.nodes] for one in found[:2]] == [
        ["aten.matmul.default"],
        ["aten.mul.Tensor"],
    ]
    assert not any(one.note for one in found)


def test_symbolic_sizes_stay(tmp_path: Path) -> None:
    graph = trace_snippet(BLOCK, [DynamicSpec("rows", "x", 0)]).graph
    program, found = kernels_of(graph)
    assert len(program.regions) >= 4
    whole, sizes = decompose(graph), {"rows": 5}
    held = arrays(whole, sizes=sizes)
    expected = run_region(whole, held, sizes)
    for one in found:
        alone, region = replayed(one, tmp_path)
        assert [symbol.name for symbol in alone.symbols] == [symbol.name for symbol in one.region.symbols] == ["rows"]
        results = run_region(region, {t.name: held[t.name] for t in alone.inputs}, sizes)
        held |= dict(zip(alone.outputs, results.values(), strict=True))
    np.testing.assert_allclose(held[graph.outputs[0]], expected["out"], rtol=2e-5, atol=2e-5)


def test_equal_operations_are_one() -> None:
    def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.softmax(F.silu(x) @ w, -1) + F.softmax(F.silu(x) @ w, -1)

    graph = export_graph("f", twice, {"x": torch.zeros(7, 8), "w": torch.zeros(8, 6)}).graph
    merged, same = without_repeats(graph)
    assert len(merged.nodes) == (len(graph.nodes) + 1) // 2
    assert set(same.values()) <= {node.name for node in merged.nodes}
    assert not any(one.note for one in kernels_of(graph)[1])


def test_results_say_which_value_they_hold() -> None:
    region, held = decompose_held(graph_of("explicit_softmax"))
    assert held["div"] == "div"
    assert set(held) <= {comp.name for comp in region.comps}
    region, held = decompose_held(graph_of("log_softmax"))
    inside = {comp.name for comp in region.comps} - set(held)
    assert inside  # the statistics are no values of the graph
    assert all(value in graph_of("log_softmax").tensors() for value in held.values())


def test_a_note_is_text_and_left_out_of_the_graph(tmp_path: Path) -> None:
    (one,) = kernels_of(graph_of("row_sum"))[1]
    path = tmp_path / "k.torch.json"
    save(one.graph, path, "why")
    assert load(path) == one.graph
    path.write_text(path.read_text().replace('"why"', "3"))
    with pytest.raises(Exception, match="note: found 3, expected text"):
        load(path)
