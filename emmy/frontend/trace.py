"""One entrance: a target (snippet, golden shape, reproducer) → graph, nests, eager callable, example inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from emmy.errors import EmmyError, InputError
from emmy.frontend import reproducer
from emmy.frontend.export import export_graph
from emmy.frontend.inputs import Array, random_inputs, shape_of, to_numpy
from emmy.frontend.snippet import Snippet, failure, read_snippet
from emmy.frontend.types import TORCH
from emmy.ir.dtype import DType
from emmy.ir.graph import Graph
from emmy.ir.nest import Region
from emmy.passes.decompose import decompose
from emmy.target import DynamicSpec, Target, TargetKind


class InputLike(Protocol):
    """A declared input (emmy.goldens.dataset.InputSpec is one)."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def symbolic(self) -> tuple[tuple[int, str], ...]: ...


@dataclass(frozen=True, slots=True)
class Traced:
    """A program as traced.

    graph: its operations. region: the same as unfused nests. eager: the original function, called with torch tensors in
    the order of ``graph.inputs`` and returning a tuple of them; it is what eager and torch.compile are timed on.
    examples: values that the program itself gives some inputs (parameters, snippet tensors).
    """

    graph: Graph
    region: Region
    eager: Callable[..., tuple[torch.Tensor, ...]]
    examples: dict[str, torch.Tensor]

    def inputs(self, seed: int = 0, symbols: Mapping[str, int] | None = None) -> dict[str, Array]:
        """Inputs by name at the given symbolic sizes (the hints by default): the program's own values where they have
        that shape, random ones otherwise. bfloat16 is held as float32."""
        sizes = dict(self.graph.hints()) | dict(symbols or {})
        own = {
            tensor.name: to_numpy(self.examples[tensor.name])
            for tensor in self.graph.inputs
            if tensor.name in self.examples and tuple(self.examples[tensor.name].shape) == shape_of(tensor, sizes)
        }
        rest = [tensor.name for tensor in self.graph.inputs if tensor.name not in own]
        made = own | random_inputs(self.graph, seed, sizes, rest)
        return {tensor.name: made[tensor.name] for tensor in self.graph.inputs}


def trace(target: Target) -> Traced:
    """Trace a snippet or a golden shape, or read a reproducer.

    Raises InputError (exit code 2) for whatever is wrong with the target, UnsupportedOp for an operation without a row.
    """
    match target.kind:
        case TargetKind.SNIPPET:
            return trace_snippet(target.value, target.dynamic, target.seq_len)
        case TargetKind.REPRODUCER:
            return trace_reproducer(target.value)
        case TargetKind.GOLDEN:
            return trace_golden(target.value)
    raise InputError(f"{target.kind.value} {target.value}", expected="a snippet, a golden shape or a reproducer")


def trace_snippet(
    source: str, dynamic: Sequence[DynamicSpec] = (), seq_len: int | None = None, name: str = "snippet"
) -> Traced:
    """Trace a snippet (see emmy.frontend.snippet). ``seq_len`` resizes the symbolic axes of its example inputs."""
    if seq_len is not None and not dynamic:
        raise InputError(
            "--seq-len", found="a snippet without a symbolic axis", expected="--dynamic NAME@INPUT:AXIS beside it"
        )
    return _traced(name, _resized(read_snippet(source), dynamic, seq_len), dynamic)


def trace_callable(source: str, inputs: Sequence[InputLike], name: str = "program") -> Traced:
    """Trace the snippet ``source`` over declared inputs, which it does not create itself.

    inputs: name, shape, dtype and symbolic axes ((axis, symbol) pairs) of each, as ``Shape.inputs()`` of the golden
    dataset gives them. Their values are random; no memory is touched for them here.
    """
    try:
        given = {item.name: torch.empty(item.shape, dtype=TORCH[item.dtype]) for item in inputs}
    except RuntimeError as error:
        raise InputError(f"{name}: its inputs cannot be made", found=str(error).splitlines()[0]) from None
    dynamic = [DynamicSpec(symbol, item.name, axis) for item in inputs for axis, symbol in item.symbolic]
    return _traced(name, read_snippet(source, given), dynamic, examples=False)


def trace_golden(name: str) -> Traced:
    """Trace the golden shape ``name``. Raises InputError naming the nearest shapes for an unknown one."""
    from emmy.goldens.dataset import shape as golden_shape

    shape = golden_shape(name)
    return trace_callable(shape.snippet(), shape.inputs(), shape.name)


def trace_reproducer(path: str) -> Traced:
    """Read a ``.torch.json``; the eager callable replays it operation by operation."""
    graph = reproducer.load(path)
    names = [tensor.name for tensor in graph.inputs]

    def eager(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return reproducer.run_eager(graph, dict(zip(names, args, strict=True)))

    return Traced(graph, decompose(graph), eager, {})


def _traced(name: str, snippet: Snippet, dynamic: Sequence[DynamicSpec], *, examples: bool = True) -> Traced:
    try:
        exported = export_graph(name, snippet.function, snippet.inputs, dynamic, snippet.modules, snippet.locate)
    except EmmyError:
        raise
    except Exception as error:
        raise failure(snippet.source, error) from error
    own, targets = len(snippet.inputs), exported.targets
    names = [tensor.name for tensor in exported.graph.inputs]

    def eager(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if targets:  # parameters as given, so that the program runs on whatever device they are on
            held = {targets[name]: value for name, value in zip(names, args, strict=True) if name in targets}
            result: Any = torch.func.functional_call(exported.module, held, args[:own])
        else:
            result = snippet.function(*args[:own])
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    known = {**(snippet.inputs if examples else {}), **exported.constants}
    return Traced(exported.graph, decompose(exported.graph), eager, known)


def _resized(snippet: Snippet, dynamic: Sequence[DynamicSpec], seq_len: int | None) -> Snippet:
    if seq_len is None:
        return snippet
    inputs = dict(snippet.inputs)
    for spec in dynamic:
        tensor = inputs.get(spec.input)
        if tensor is not None and spec.axis < tensor.dim() and tensor.shape[spec.axis]:
            at = torch.arange(seq_len) % tensor.shape[spec.axis]
            inputs[spec.input] = tensor.index_select(spec.axis, at)
    return Snippet(snippet.source, snippet.function, inputs, snippet.modules)
