"""Plans of row leaves: one kernel, or the two of a split."""

from __future__ import annotations

from emmy.ir.expr import Call, Expr, evaluate_int, i32, walk
from emmy.ir.kernel import Kernel
from emmy.ir.nest import Region, Tensor
from emmy.ir.plan import Launch, Memset, Plan, Step, Workspace
from emmy.ir.scalar import FUNCTIONS
from emmy.passes.lower.row import RowKernel
from emmy.passes.lower.row_leaf import RowLeaf
from emmy.passes.lower.row_map import MapKernel
from emmy.passes.lower.row_program import RowProgram
from emmy.passes.lower.row_split import AtomicKernel, FinishKernel, PartKernel, finish_grid, finish_leaf, partials


def lower_row(program: RowProgram, leaf: RowLeaf, name: str, knobs: str) -> Plan:
    """The plan of a leaf that the row tier's rules allow."""
    if program.is_map:
        kernel = MapKernel(program, leaf, name)
        return make_plan(program, name, knobs, (launch(kernel.kernel(), kernel.grid_rows()),))
    if leaf.parts == 1:
        whole = RowKernel(program, leaf, name)
        return make_plan(program, name, knobs, (launch(whole.kernel(), whole.grid_rows()),))
    if leaf.atomic:
        atomic = AtomicKernel(program, leaf, name, ())
        (reduction,) = program.reductions
        identity = reduction.algebra.identity_values(reduction.dtype)[0]
        steps: tuple[Step, ...] = (
            Memset(program.row_writes[0].tensor.name, identity),
            launch(atomic.kernel(), atomic.grid_rows(), i32(leaf.parts)),
        )
        exact = reduction.dtype.is_int
        return make_plan(program, name, knobs, steps, deterministic=exact)
    spaces = partials(program, leaf.parts)
    names = tuple(t.name for space in spaces for t in space.tensors)
    part = PartKernel(program, leaf, name, spaces)
    finish = FinishKernel(program, finish_leaf(program, leaf), f"{name}_finish", spaces)
    steps = (
        launch(part.kernel(writes=names), part.grid_rows(), i32(leaf.parts)),
        launch(finish.kernel(reads=names), finish.grid_rows(), finish_grid(program, leaf)),
    )
    works = tuple(Workspace(t.name, t.dtype, t.elements()) for space in spaces for t in space.tensors)
    return make_plan(program, name, knobs, steps, works)


def launch(kernel: Kernel, x: Expr, y: Expr | None = None) -> Launch:
    """A launch on ``x`` by ``y`` blocks, its arguments bound by name."""
    return Launch(kernel, (x, y or i32(1), i32(1)), tuple(p.name for p in kernel.params))


def make_plan(
    program: RowProgram, name: str, knobs: str, steps: tuple[Step, ...], works: tuple[Workspace, ...] = (),
    deterministic: bool = True,
) -> Plan:  # fmt: skip
    """The plan of a program with its roofline numbers."""
    region = program.region
    outputs = tuple(o.tensor for o in region.outputs)
    return Plan(
        name, region.symbols, region.inputs, outputs, works, steps, knobs, deterministic, flops=flops(program),
        bytes_min=bytes_min(region),
    )  # fmt: skip


def bytes_min(region: Region) -> int:
    """Bytes of all inputs and outputs, each once, at the hints."""
    return sum(_bytes(t, region) for t in (*region.inputs, *(o.tensor for o in region.outputs)))


def _bytes(tensor: Tensor, region: Region) -> int:
    return evaluate_int(tensor.elements(), region.hints()) * tensor.dtype.nbytes


def flops(program: RowProgram) -> int:
    """Arithmetic of the region as it is written, in operations (a multiply-add counts two), at the hints.

    What is reduced counts for every row and column; what is written for every element of the output, which has no
    reduce axes.
    """
    hints = program.region.hints()
    elements = evaluate_int(program.row_count(), hints) * evaluate_int(program.column_count(), hints)
    each = sum(operations(e) for r in program.reductions for e in (*r.values, *r.algebra.combine))
    written = sum(
        evaluate_int(w.tensor.elements(), hints) * operations(w.value) for w in (*program.writes, *program.row_writes)
    )
    return int(elements * each + written)


def operations(expr: Expr) -> float:
    """Cost of the functions in ``expr`` as emmy.ir.scalar.FUNCTIONS gives it."""
    return sum(FUNCTIONS[node.fn].cost for node in walk(expr) if isinstance(node, Call) and node.fn != "cast")
