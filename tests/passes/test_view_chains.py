"""Random chains of views and moves mean what eager torch does, at fixed sizes and with a symbolic one."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from emmy.frontend.types import dtype_of
from emmy.ir.expr import Expr, Var, evaluate_int, i32
from emmy.ir.graph import Graph, Node, Ref, verify
from emmy.ir.nest import Symbol, Tensor
from emmy.ir.nest import verify as verify_region
from emmy.ir.nest_interp import run_region
from emmy.passes.decompose import decompose

KINDS = ("permute", "split", "merge", "slice", "flip", "unsqueeze", "cat", "pad", "roll", "expand")
ROWS = 6  # the symbolic size while a chain is drawn
SIZES = (1, 4, ROWS)


class Chain:
    """A graph grown node by node along with the torch tensor that it stands for, at several sizes of its symbol."""

    def __init__(self, shape: tuple[Expr, ...]) -> None:
        self.inputs = {n: np.random.default_rng(n).standard_normal(self.sized(shape, n)) for n in SIZES}
        self.held = {n: torch.tensor(array) for n, array in self.inputs.items()}
        self.nodes: list[Node] = []
        self.start = Tensor("x", shape, dtype_of(torch.float64))
        self.last = self.start

    @staticmethod
    def sized(shape: tuple[Expr, ...], n: int) -> tuple[int, ...]:
        return tuple(evaluate_int(extent, {"s": n}) for extent in shape)

    def step(self, op: str, out: tuple[Expr, ...], /, **args: object) -> None:
        name = f"n{len(self.nodes)}"
        result = Tensor(name, out, self.last.dtype)
        first = "tensors" if op == "aten.cat.default" else "self"
        bound = {
            first: (Ref(self.last.name), Ref(self.last.name)) if first == "tensors" else Ref(self.last.name),
            **args,
        }
        self.nodes.append(Node(op, tuple(bound.items()), (result,)))
        _, packet, overload = op.split(".")
        function = getattr(getattr(torch.ops.aten, packet), overload)
        for n, tensor in self.held.items():
            given = {k: self.number(v, n) for k, v in args.items()}
            self.held[n] = function(**({first: [tensor, tensor]} if first == "tensors" else {first: tensor}), **given)
            assert tuple(self.held[n].shape) == self.sized(out, n), op
        self.last = result

    def number(self, value: object, n: int) -> object:
        if isinstance(value, Expr):
            return evaluate_int(value, {"s": n})
        return [self.number(item, n) for item in value] if isinstance(value, tuple) else value

    def check(self) -> None:
        graph = Graph("chain", (Symbol("s", ROWS),), (self.start,), tuple(self.nodes), (self.last.name,))
        verify(graph)
        region = decompose(graph)
        verify_region(region)
        for n, expected in self.held.items():
            got = run_region(region, {"x": self.inputs[n]}, {"s": n})["out"]
            np.testing.assert_array_equal(got, expected.numpy(), err_msg=f"size {n}")


def grow(chain: Chain, draw: st.DrawFn) -> None:
    shape = chain.last.shape
    rank = len(shape)
    kind = draw(
        st.sampled_from(["permute", "split", "merge", "slice", "flip", "unsqueeze", "cat", "pad", "roll", "expand"])
    )
    at = draw(st.integers(0, rank - 1))
    before, extent, after = shape[:at], shape[at], shape[at + 1 :]
    fixed = extent.value if hasattr(extent, "value") else None
    if kind == "permute":
        order = tuple(draw(st.permutations(range(rank))))
        chain.step("aten.permute.default", tuple(shape[n] for n in order), dims=order)
    elif kind == "split" and fixed and fixed > 1:
        factor = draw(st.sampled_from([d for d in range(2, fixed + 1) if fixed % d == 0]))
        new = (*before, i32(factor), i32(fixed // factor), *after)
        chain.step("aten.view.default" if _viewable(chain, new) else "aten.reshape.default", new, **_size(chain, new))
    elif kind == "merge" and at + 1 < rank:
        new = (*before, extent * after[0], *after[1:])
        chain.step("aten.reshape.default", new, shape=new)
    elif kind == "slice" and fixed and fixed > 1:
        start, step = draw(st.integers(0, fixed - 1)), draw(st.integers(1, 3))
        length = -(-(fixed - start) // step)
        chain.step("aten.slice.Tensor", (*before, i32(length), *after), dim=at, start=start, end=2**63 - 1, step=step)
    elif kind == "flip":
        chain.step("aten.flip.default", shape, dims=(at,))
    elif kind == "unsqueeze" and rank < 5:
        chain.step("aten.unsqueeze.default", (*before, i32(1), *shape[at:]), dim=at)
    elif kind == "cat":
        chain.step("aten.cat.default", (*before, extent + extent, *after), dim=at)
    elif kind == "pad":
        pad = (0, 0) * (rank - 1 - at) + (draw(st.integers(0, 2)), 1)
        chain.step("aten.constant_pad_nd.default", (*before, extent + (pad[-2] + 1), *after), pad=pad, value=7.0)
    elif kind == "roll":
        chain.step("aten.roll.default", shape, shifts=(draw(st.integers(-5, 5)),), dims=(at,))
    elif kind == "expand" and fixed == 1:
        chain.step("aten.expand.default", (*before, i32(3), *after), size=(*before, i32(3), *after))


def _viewable(chain: Chain, shape: tuple[Expr, ...]) -> bool:
    return all(tensor.is_contiguous() for tensor in chain.held.values()) and len(shape) > 0


def _size(chain: Chain, shape: tuple[Expr, ...]) -> dict[str, object]:
    return {"size" if _viewable(chain, shape) else "shape": shape}


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from([(12,), (2, 6), (3, 4, 2), ("s", 4), (2, "s", 6), ("s", 1)]), st.integers(1, 6))
def test_chains(data: st.DataObject, shape: tuple[int | str, ...], length: int) -> None:
    chain = Chain(tuple(Var(item) if isinstance(item, str) else i32(item) for item in shape))
    for _ in range(length):
        data.draw(_grown(chain))
    chain.check()


@st.composite
def _grown(draw: st.DrawFn, chain: Chain) -> None:
    if max(tensor.numel() for tensor in chain.held.values()) < 4000:
        grow(chain, draw)
