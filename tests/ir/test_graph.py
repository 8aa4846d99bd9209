"""Graph IR: printed form and verifier."""

import pytest

from emmy.ir.dtype import DType
from emmy.ir.expr import Var, i32
from emmy.ir.graph import Arg, Graph, Node, Ref, text, verify
from emmy.ir.nest import Symbol, Tensor

S = Var("seq_len")
X = Tensor("x", (S, i32(8)), DType.F16)
Y = Tensor("y", (S, i32(8)), DType.F16)


def graph(*nodes: Node, outputs: tuple[str, ...] = ("y",), symbols: tuple[Symbol, ...] = (Symbol("seq_len"),)) -> Graph:
    return Graph("g", symbols, (X,), nodes, outputs)


def add(*args: tuple[str, Arg], result: Tensor = Y) -> Node:
    return Node("aten.add.Tensor", args, (result,), "snippet:1:5")


def test_printed_form() -> None:
    node = add(("self", Ref("x")), ("other", Ref("x")), ("alpha", 2.5))
    view = Node(
        "aten.view.default",
        (("self", Ref("y")), ("size", (S * 2, 4, DType.F32, None))),
        (Tensor("v", (S * 8,), DType.F16),),
    )
    assert text(graph(node, view, outputs=("y", "v"))) == (
        "graph g seq_len=512\n"
        "  in  x: f16[seq_len, 8]\n"
        "  y: f16[seq_len, 8] = aten.add.Tensor(self=x, other=x, alpha=2.5)  # snippet:1:5\n"
        "  v: f16[(seq_len * 8)] = aten.view.default(self=y, size=[(seq_len * 2), 4, f32, None])\n"
        "  out y\n"
        "  out v\n"
    )


def test_references_are_found_inside_lists() -> None:
    node = Node("aten.cat.default", (("tensors", (Ref("x"), Ref("x"))), ("dim", 1)), (Y,))
    assert node.refs() == ("x", "x")


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (graph(add(("self", Ref("z")))), r"g.y \(aten.add.Tensor\): reads z before it is defined"),
        (graph(add(("self", Ref("x")), result=X)), "x is defined twice"),
        (graph(add(("self", Ref("x"))), outputs=("z",)), "output z is not computed"),
        (graph(add(("self", Ref("x"))), symbols=()), "x has unknown size seq_len"),
        (graph(add(("self", Ref("x")), ("alpha", Var("n")))), "alpha has unknown size n"),
        (graph(Node("aten.add.Tensor", (), ())), "aten.add.Tensor has no result"),
    ],
)
def test_verifier(broken: Graph, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        verify(broken)


def test_a_sound_graph_passes() -> None:
    verify(graph(add(("self", Ref("x")), ("other", Ref("x")))))
