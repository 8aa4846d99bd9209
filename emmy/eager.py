"""The program as PyTorch runs it: what ``run`` compares with, and the source of rows timed beside emmy's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emmy.bench.inputs import generate, logical
from emmy.bench.jobs import ReferenceCase, ReferenceSet, TorchSource
from emmy.bench.reference import check_sizes, input_specs, reference
from emmy.errors import InputError
from emmy.ir.dtype import DType
from emmy.ir.expr import Call, Const, Expr, Var, evaluate_int
from emmy.ir.graph import Arg, Graph, Ref
from emmy.ir.nest import Region, Tensor
from emmy.ir.plan import Plan

if TYPE_CHECKING:
    from emmy.pipeline import Job


def oracle_reference(job: Job, plan: Plan, folder: Path) -> ReferenceSet:
    """Inputs in the program's own shapes and float64 outputs of its unfused nests, shaped like ``plan``'s outputs."""
    return _shaped(reference(job.traced.region, folder), plan.outputs)


def shared_reference(job: Job, region: Region, folder: Path) -> ReferenceSet | None:
    """``oracle_reference`` for a region that is its whole program: the data of the search serve the comparison as well.

    None where the region reads its inputs in other shapes than the program does.
    """
    whole = job.traced.region
    if job.regions != (region,) or {t.name: t for t in region.inputs} != {t.name: t for t in whole.inputs}:
        return None
    return _shaped(reference(whole, folder), [out.tensor for out in region.outputs])


def eager_reference(job: Job, plan: Plan, folder: Path) -> ReferenceSet:
    """The same inputs, and what eager PyTorch makes of them in the program's own types.

    Raises InputError where eager PyTorch cannot run it, for example for want of memory.
    """
    from emmy.frontend.inputs import to_torch

    region, graph = job.traced.region, job.traced.graph
    cases = []
    for values in (region.hints(), *check_sizes(region.symbols)):
        specs = input_specs(region, values, {})
        arrays = {spec.name: logical(generate(0, spec), spec.dtype) for spec in specs}
        try:
            tensors = to_torch(arrays, [t for t in graph.inputs if t.name in arrays])
            results = job.traced.eager(*(tensors[t.name] for t in graph.inputs))
        except (MemoryError, RuntimeError) as error:
            raise InputError(f"{job.name}: eager PyTorch cannot run it", found=str(error).splitlines()[0]) from None
        cases.append(ReferenceCase(dict(values), specs, _saved(job, results, folder / "eager")))
    digest = hashlib.sha256(repr([(c.inputs, c.outputs) for c in cases]).encode()).hexdigest()[:24]
    return _shaped(ReferenceSet(f"eager-{digest}", 0, tuple(cases)), plan.outputs)


def _saved(job: Job, results: tuple[Any, ...], folder: Path) -> dict[str, str]:
    from emmy.frontend import to_numpy

    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, str] = {}
    for name, result in zip(job.program.outputs, results, strict=True):
        array = np.ascontiguousarray(to_numpy(result))
        path = folder / f"{hashlib.sha256(array.tobytes()).hexdigest()[:24]}-{'x'.join(map(str, array.shape))}.npy"
        if not path.is_file():
            np.save(path, array, allow_pickle=False)
        found.setdefault(name, str(path))
    return found


def _shaped(refs: ReferenceSet, tensors: Sequence[Tensor]) -> ReferenceSet:
    """The set with outputs and scales in the shapes that are written, which may merge axes of the program's."""
    written = {tensor.name: tensor for tensor in tensors}
    cases = []
    for case in refs.cases:
        shapes = {name: tuple(evaluate_int(e, case.symbols) for e in t.shape) for name, t in written.items()}
        outputs = {n: _viewed(path, shapes[n]) for n, path in case.outputs.items() if n in shapes}
        scales = {n: _viewed(path, shapes[n]) for n, path in case.scales.items() if n in shapes}
        cases.append(ReferenceCase(case.symbols, case.inputs, outputs, scales))
    return ReferenceSet(refs.key, refs.seed, tuple(cases))


def _viewed(path: str, shape: tuple[int, ...]) -> str:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape == shape:
        return path
    other = Path(path).with_suffix(f".{'x'.join(map(str, shape))}.npy")
    if not other.is_file():
        scratch = other.with_suffix(f".{os.getpid()}.npy")
        np.save(scratch, array.reshape(shape), allow_pickle=False)
        scratch.replace(other)
    return str(other)


# ---------------------------------------------------------------------------------------------------- timed sources


def torch_source(job: Job, *, compiled: bool = False) -> TorchSource:
    """The program as a row of a comparison: a golden's own snippet, otherwise the traced operations one by one."""
    names = tuple(tensor.name for tensor in job.traced.graph.inputs)
    body = f"    return {job.shape.snippet()}" if job.shape is not None else graph_source(job.traced.graph)
    source = f"def f({', '.join(names)}):\n{body}\n"
    return TorchSource(source, names, compiled, "tcompile" if compiled else "eager")


def graph_source(graph: Graph) -> str:
    """The body of a function that calls the graph's operations in order. Input names are its parameters."""
    lines = [f"    {symbol.name} = {_symbol(graph, symbol.name)}" for symbol in graph.symbols]
    for node in graph.nodes:
        packet, _, overload = node.op.removeprefix("aten.").partition(".")
        args = ", ".join(f"{name}={_python(arg)}" for name, arg in node.args)
        results = ", ".join(tensor.name for tensor in node.results)
        # A parameter called ``self`` of an operator is passed by keyword all the same: torch's schemas name it so.
        lines.append(f"    {results} = torch.ops.aten.{packet}.{overload or 'default'}({args})")
    return "\n".join([*lines, f"    return ({', '.join(graph.outputs)},)"])


def _symbol(graph: Graph, name: str) -> str:
    for tensor in graph.inputs:
        for axis, extent in enumerate(tensor.shape):
            if isinstance(extent, Var) and extent.name == name:
                return f"{tensor.name}.shape[{axis}]"
    raise InputError(f"symbol {name}", found="no input axis of that size", expected="an input with it")


def _python(arg: Arg) -> str:
    match arg:
        case Ref(name):
            return name
        case DType():
            return f"torch.{_TORCH[arg.value]}"
        case Expr():
            return _size(arg)
        case tuple():
            return f"[{', '.join(_python(item) for item in arg)}]"
        case float() if arg != arg or arg in (float("inf"), float("-inf")):
            return f"float('{arg}')"
    return repr(arg)


_TORCH = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}


def _size(expr: Expr) -> str:
    match expr:
        case Const(value):
            return str(value)
        case Var(name):
            return name
        case Call(fn, (left, right)) if fn in _INFIX:
            return f"({_size(left)} {_INFIX[fn]} {_size(right)})"
        case Call(fn, args):
            return f"{fn}({', '.join(_size(a) for a in args)})"
    raise TypeError(f"not a size: {expr!r}")
