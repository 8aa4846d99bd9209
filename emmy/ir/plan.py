"""Plans: what a leaf lowers to. Ordered launches and memsets over inputs, outputs and workspaces, timed whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emmy.ir.dtype import DType
from emmy.ir.expr import Expr, Number, evaluate_int
from emmy.ir.kernel import Kernel
from emmy.ir.nest import Symbol, Tensor, show


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch memory between launches: ``elements`` (index expression over symbols) of ``dtype``."""

    name: str
    dtype: DType
    elements: Expr


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map over ``buffer``, encoded once per set of buffers: shape and strides (elements; index expressions).

    Box, type and swizzle are those of the kernel parameter it is bound to (TensorMapParam).
    """

    name: str
    buffer: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Memset:
    """Fills all elements of a buffer with ``value`` before the next step."""

    buffer: str
    value: Number


@dataclass(frozen=True, slots=True)
class Launch:
    """Runs ``kernel`` on ``grid`` blocks (x, y, z: index expressions over symbols; z in whole clusters).

    ``args``: the plan's buffer, symbol or tensor map name bound to each kernel parameter, in order.
    """

    kernel: Kernel
    grid: tuple[Expr, Expr, Expr]
    args: tuple[str, ...]


Step = Launch | Memset


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete realisation of a region.

    inputs, outputs: tensors by name, in call order. symbols: run-time sizes, passed as int32.
    knobs: the realised knob map, as text. deterministic: False when atomics order the additions.
    flops, bytes_min: arithmetic and the fewest bytes moved (index expressions would not fit int32: Python ints at the
    hints), for the roofline check.
    """

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    workspaces: tuple[Workspace, ...]
    steps: tuple[Step, ...]
    knobs: str = ""
    deterministic: bool = True
    flops: int = 0
    bytes_min: int = 0
    maps: tuple[TensorMap, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    def grid(self, launch: Launch, values: Mapping[str, int]) -> tuple[int, int, int]:
        """Blocks of ``launch`` at the given symbol values."""
        x, y, z = (evaluate_int(e, values) for e in launch.grid)
        return (x, y, z)


def text(plan: Plan) -> str:
    """The printed form of a plan: buffers, then steps in order."""
    out = [f"plan {plan.name}  {plan.knobs}".rstrip()]
    out += [f"  in   {t.name}: {t.dtype.value}[{', '.join(show(e) for e in t.shape)}]" for t in plan.inputs]
    out += [f"  out  {t.name}: {t.dtype.value}[{', '.join(show(e) for e in t.shape)}]" for t in plan.outputs]
    out += [f"  work {w.name}: {w.dtype.value}[{show(w.elements)}]" for w in plan.workspaces]
    out += [f"  map  {m.name}: {m.buffer}[{', '.join(show(e) for e in m.shape)}]" for m in plan.maps]
    for step in plan.steps:
        if isinstance(step, Memset):
            out.append(f"  memset {step.buffer} = {step.value}")
        else:
            grid = ", ".join(show(e) for e in step.grid)
            block = "x".join(str(n) for n in step.kernel.block)
            block += f", cluster {step.kernel.cluster}" if step.kernel.cluster > 1 else ""
            out.append(f"  launch {step.kernel.name}<grid ({grid}), block {block}>({', '.join(step.args)})")
    return "\n".join(out) + "\n"
