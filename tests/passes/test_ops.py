"""Every row of the operation table against eager torch, sample by sample and type by type."""

import zlib

import numpy as np
import pytest
import torch

from emmy.frontend.inputs import to_numpy
from emmy.frontend.types import TORCH, dtype_of
from emmy.ir import nest
from emmy.ir.dtype import DType
from emmy.ir.expr import i32
from emmy.ir.graph import Graph, Node, Ref, verify
from emmy.ir.nest import Tensor
from emmy.ir.nest_interp import run_region
from emmy.passes.decompose import decompose
from emmy.passes.ops import OPS, Sample, T

# (relative, absolute): a result in a 16-bit type may differ by a rounding, since torch rounds between its own steps
TOLERANCE = {
    DType.F64: (1e-12, 1e-12),
    DType.F32: (2e-5, 2e-6),
    DType.F16: (4e-3, 4e-3),
    DType.BF16: (3e-2, 3e-2),
}

CASES = [
    pytest.param(op.name, sample, dtype, id=f"{op.name}-{n}-{dtype.value}")
    for op in OPS.values()
    for n, sample in enumerate(op.samples)
    for dtype in sample.dtypes
]


class _Call:
    """One call of an operation: torch arguments, graph arguments and input arrays, from a sample."""

    def __init__(self, sample: Sample, dtype: DType, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.inputs: list[Tensor] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.torch_args = {}
        self.graph_args = []
        for name, value in sample.args:
            ours, theirs = self.argument(value)
            self.torch_args[name] = theirs
            self.graph_args.append((name, ours))

    def argument(self, value):
        if isinstance(value, T):
            return self.tensor(value)
        if isinstance(value, tuple):
            pairs = [self.argument(item) for item in value]
            return tuple(a for a, _ in pairs), [b for _, b in pairs]
        if isinstance(value, DType):
            return value, TORCH[value]
        return value, value

    def tensor(self, spec: T):
        dtype = spec.dtype or self.dtype
        if dtype.is_float:
            array = self.rng.uniform(spec.low, spec.high, spec.shape)
        elif dtype == DType.BOOL:
            array = self.rng.integers(0, 2, spec.shape)
        else:
            array = self.rng.integers(int(np.ceil(spec.low)), int(spec.high) + 1, spec.shape)
        name = f"x{len(self.inputs)}"
        self.tensors[name] = torch.tensor(np.asarray(array)).to(TORCH[dtype])
        self.inputs.append(Tensor(name, tuple(i32(n) for n in spec.shape), dtype))
        return Ref(name), self.tensors[name]

    def run(self, op: str):
        _, name, overload = op.split(".")
        result = getattr(getattr(torch.ops.aten, name), overload)(**self.torch_args)
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    def graph(self, op: str, results) -> Graph:
        tensors = tuple(
            Tensor(f"r{n}", tuple(i32(size) for size in result.shape), dtype_of(result.dtype))
            for n, result in enumerate(results)
        )
        node = Node(op, tuple(self.graph_args), tensors, "test")
        return Graph("test", (), tuple(self.inputs), (node,), tuple(t.name for t in tensors))


def check(got: np.ndarray, expected: torch.Tensor) -> None:
    assert got.shape == tuple(expected.shape)
    dtype = dtype_of(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(got, expected.numpy())
        return
    relative, absolute = TOLERANCE[dtype]
    np.testing.assert_allclose(
        got.astype(np.float64), to_numpy(expected).astype(np.float64), rtol=relative, atol=absolute, equal_nan=True
    )


@pytest.mark.parametrize(("op", "sample", "dtype"), CASES)
def test_row_agrees_with_torch(op: str, sample: Sample, dtype: DType) -> None:
    call = _Call(sample, dtype, zlib.crc32(f"{op}{sample}{dtype}".encode()))
    expected = call.run(op)
    graph = call.graph(op, expected)
    verify(graph)
    region = decompose(graph)
    nest.verify(region)
    got = run_region(region, {name: to_numpy(tensor) for name, tensor in call.tensors.items()})
    for array, reference in zip(got.values(), expected, strict=True):
        check(array, reference)


def test_rows_name_operations_that_exist() -> None:
    for op in OPS.values():
        _, name, overload = op.name.split(".")
        schema = getattr(getattr(torch.ops.aten, name), overload)._schema
        known = {argument.name for argument in schema.arguments}
        for sample in op.samples:
            assert {name for name, _ in sample.args} <= known, op.name
