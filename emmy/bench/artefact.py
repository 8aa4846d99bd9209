"""The artefact of a plan: everything the bench worker needs, as JSON. Printed sources, launches, buffers, checks.

It is data: the worker that reads it needs NumPy and the device's library alone, never the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from emmy.bench.anonymous import anonymous, names_of, places
from emmy.bench.records import digest
from emmy.ir.expr import evaluate_int
from emmy.ir.fragment import Mma
from emmy.ir.kernel import BufferParam, statements
from emmy.ir.nest import Tensor
from emmy.ir.pipeline import Wgmma
from emmy.ir.plan import Launch, Memset, Plan


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """A buffer at one set of sizes, in elements; no strides: row-major. role: ``in``, ``out`` or ``work``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    strides: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """A kernel's source. ``args``: (parameter name, ``buffer`` | ``scalar`` | ``map``, dtype) in order.

    names: what the kernel names beside them; they are the kernel's own affair and enter no digest.
    """

    name: str
    source: str
    block: tuple[int, int]
    smem_bytes: int
    args: tuple[tuple[str, str, str], ...]
    names: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """The kernel without names."""
        source = anonymous(self.source, self.name, {*self.names, *(arg[0] for arg in self.args)})
        args = [arg[1:] for arg in self.args]
        return {"source": source, "block": self.block, "smem_bytes": self.smem_bytes, "args": args}


@dataclass(frozen=True, slots=True)
class StepSpec:
    """A launch (kernel, grid, bindings) or a memset (``kernel`` empty: ``bindings[0]`` filled with ``value``)."""

    kernel: str
    grid: tuple[int, int, int]
    bindings: tuple[str, ...]
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """The plan at one set of symbol values: concrete buffers and grids."""

    symbols: Mapping[str, int]
    buffers: tuple[BufferSpec, ...]
    steps: tuple[StepSpec, ...]

    def content(self, kernels: Mapping[str, int]) -> dict[str, Any]:
        """The case without names: symbols, buffers and ``kernels`` by their places."""
        bound = (name for step in self.steps for name in step.bindings)
        at = places((*self.symbols, *(buffer.name for buffer in self.buffers), *bound))
        return {
            "symbols": list(self.symbols.values()),
            "buffers": [[at[b.name], b.dtype, b.shape, b.role, b.strides] for b in self.buffers],
            "steps": [
                [kernels[s.kernel] if s.kernel else None, s.grid, [at[name] for name in s.bindings], s.value]
                for s in self.steps
            ],
        }


@dataclass(frozen=True, slots=True)
class Artefact:
    """A printed plan. ``cases[0]`` is the benched size; the others are checked for correctness only.

    flops, bytes_min: arithmetic and the fewest bytes moved at the benched size, for the roofline check; ``tensor``: its
    peak is that of matrix atoms.
    """

    name: str
    language: str
    options: tuple[str, ...]
    kernels: tuple[KernelSpec, ...]
    cases: tuple[Case, ...]
    flops: int
    bytes_min: int
    deterministic: bool = True
    tensor: bool = False

    @property
    def plan_digest(self) -> str:
        """Digest of sources, options, arguments and sizes; the compiler's version is a field of the measurement.

        Names are not in it: the plans of equal regions have equal digests, whatever their tensors are called.
        """
        numbers = places(kernel.name for kernel in self.kernels)
        content = {
            "language": self.language,
            "options": self.options,
            "kernels": [kernel.content() for kernel in self.kernels],
            "cases": [case.content(numbers) for case in self.cases[:1]],
        }
        return digest(content)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Artefact:
        """Inverse of to_json after a trip through JSON text."""
        return cls(
            data["name"],
            data["language"],
            tuple(data["options"]),
            tuple(_kernel(k) for k in data["kernels"]),
            tuple(_case(c) for c in data["cases"]),
            data["flops"],
            data["bytes_min"],
            data["deterministic"],
            data["tensor"],
        )


def _kernel(data: Mapping[str, Any]) -> KernelSpec:
    args = tuple((a[0], a[1], a[2]) for a in data["args"])
    block = (data["block"][0], data["block"][1])
    return KernelSpec(data["name"], data["source"], block, data["smem_bytes"], args, tuple(data["names"]))


def _case(data: Mapping[str, Any]) -> Case:
    buffers = tuple(
        BufferSpec(b["name"], b["dtype"], tuple(b["shape"]), b["role"], tuple(b["strides"])) for b in data["buffers"]
    )
    steps = tuple(
        StepSpec(s["kernel"], (s["grid"][0], s["grid"][1], s["grid"][2]), tuple(s["bindings"]), s["value"])
        for s in data["steps"]
    )
    return Case(dict(data["symbols"]), buffers, steps)


def build_artefact(
    plan: Plan, language: str, options: tuple[str, ...] = (), extra_sizes: tuple[Mapping[str, int], ...] = ()
) -> Artefact:
    """Prints ``plan`` for ``language`` at the symbols' hints, plus a checked case for each of ``extra_sizes``."""
    from emmy.codegen.source import prepare, printed

    kernels: dict[str, KernelSpec] = {}
    for launch in plan.launches:
        kernel = launch.kernel
        if kernel.name not in kernels:
            args = tuple(
                (p.name, "buffer", p.dtype.value)
                if isinstance(p, BufferParam)
                else (p.name, "scalar", str(getattr(p, "dtype", "map")))
                for p in kernel.params
            )
            ready = prepare(kernel, language)
            source, names = printed(ready, language), names_of(ready)
            kernels[kernel.name] = KernelSpec(kernel.name, source, kernel.block, ready.smem_bytes, args, names)
    sizes = ({s.name: s.hint for s in plan.symbols}, *extra_sizes)
    cases = tuple(_case_at(plan, values) for values in sizes)
    flops, bytes_min = plan.flops, plan.bytes_min
    tensor = any(isinstance(s, Mma | Wgmma) for launch in plan.launches for s in statements(launch.kernel.body))
    return Artefact(
        plan.name, language, options, tuple(kernels.values()), cases, flops, bytes_min, plan.deterministic, tensor
    )


def _tensor_at(tensor: Tensor, role: str, values: Mapping[str, int]) -> BufferSpec:
    shape = tuple(evaluate_int(e, values) for e in tensor.shape)
    strides = () if tensor.strides is None else tuple(evaluate_int(e, values) for e in tensor.strides)
    return BufferSpec(tensor.name, tensor.dtype.value, shape, role, strides)


def _case_at(plan: Plan, values: Mapping[str, int]) -> Case:
    buffers = [_tensor_at(t, "in", values) for t in plan.inputs] + [_tensor_at(t, "out", values) for t in plan.outputs]
    buffers += [BufferSpec(w.name, w.dtype.value, (evaluate_int(w.elements, values),), "work") for w in plan.workspaces]
    steps: list[StepSpec] = []
    for step in plan.steps:
        match step:
            case Launch(kernel, _, args):
                steps.append(StepSpec(kernel.name, plan.grid(step, values), args))
            case Memset(buffer, value):
                steps.append(StepSpec("", (0, 0, 0), (buffer,), float(value)))
    return Case(dict(values), tuple(buffers), tuple(steps))
