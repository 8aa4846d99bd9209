"""Structural leaves: a region cut into kernels, each child scheduled on its own, composed into one plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emmy.device.base import Capabilities
from emmy.errors import Refused
from emmy.ir.expr import evaluate_int
from emmy.ir.kernel import Kernel
from emmy.ir.nest import Program, Region, Symbol, Tensor
from emmy.ir.plan import Launch, Memset, Plan, Step, Workspace
from emmy.schedule.knobs import OFF, Fuse, KnobKey, KnobMap, KnobValue, parse_value
from emmy.search.variant import Variant


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to cut a region: the FUSE value, and in execution order a name and a region for each kernel."""

    fuse: Fuse
    steps: tuple[str, ...]
    children: tuple[Region, ...]


def cuts(region: Region) -> tuple[Cut, ...]:
    """Every cut of a region; none for a region that cannot be cut."""
    from emmy.passes.cut import cut, cut_options

    found = []
    for label, _ in cut_options(region):
        children = cut(region, label).regions
        found.append(Cut(_fuse(label), _step_names(region, label, children), children))
    return tuple(found)


def _fuse(label: str) -> Fuse:
    value = parse_value("FUSE", label)
    assert isinstance(value, Fuse)
    return value


def _step_names(region: Region, label: str, children: Sequence[Region]) -> tuple[str, ...]:
    """A name a child: that of the first reduction among its steps, numbered where it is not unique."""
    from emmy.passes.cut import steps

    chain = steps(region)
    _, at, name = label.partition("@")
    pieces: list[list[str]] = []
    for place, step in enumerate(chain):
        if not place or (step.name == name if at else step.reduces):
            pieces.append([])
        pieces[-1].append(step.name)
    reducing = {step.name for step in chain if step.reduces}
    heads = [next((one for one in piece if one in reducing), piece[0]) for piece in pieces]
    if len(heads) != len(children):
        # A piece fell into several kernels: they are numbered through, since no step names them apart.
        return tuple(f"s{place}" for place in range(len(children)))
    return tuple(head if heads.count(head) == 1 else f"{head}_{place}" for place, head in enumerate(heads))


def cut_of(region: Region, fuse: Fuse) -> Cut:
    """The cut that a FUSE value names. Raises Refused with the cuts there are."""
    every = cuts(region)
    for one in every:
        if one.fuse == fuse:
            return one
    raise Refused(
        "no_such_cut",
        found=f"FUSE={fuse}",
        expected=", ".join(str(c.fuse) for c in every) or "FUSE off",
        nearest=[c.fuse for c in every],
    )


def composed(region: Region, caps: Capabilities, cut: Cut, picks: Sequence[Variant]) -> Variant:
    """The cut plan: the picks' plans one after the other, what they exchange in workspaces."""
    knobs = joined(cut, [pick.knobs for pick in picks])
    named = dict(zip(cut.steps, picks, strict=True))
    outputs = tuple(o.tensor for o in region.outputs)
    plan = sequence(region.name, region.symbols, region.inputs, outputs, cut.steps, cut.children, picks, str(knobs))
    return Variant(region, caps, knobs, plan, named)


def program_plan(program: Program, picks: Sequence[Variant]) -> Plan:
    """The plan of a whole program: one pick a region, in order."""
    if len(picks) == 1:
        return picks[0].plan
    tensors = {o.tensor.name: o.tensor for region in program.regions for o in region.outputs}
    tensors |= {t.name: t for t in program.inputs}
    names = [f"r{place}" for place in range(len(picks))]
    outputs = tuple(tensors[name] for name in dict.fromkeys(program.outputs))
    return sequence(program.name, program.symbols, program.inputs, outputs, names, program.regions, picks, "")


def joined(cut: Cut, maps: Sequence[KnobMap]) -> KnobMap:
    """One map of all steps: FUSE, and each step's families under ``FAMILY@step`` where the steps differ."""
    values: dict[str, KnobValue] = {"FUSE": cut.fuse}
    for step, knobs in zip(cut.steps, maps, strict=True):
        values |= {f"{family}@{step}": value for family, value in knobs.items() if family != "FUSE"}
    whole = KnobMap(tuple((KnobKey.parse(name), value) for name, value in values.items()))
    return KnobMap.parse(whole.record(cut.steps))


def step_knobs(knobs: KnobMap, step: str) -> KnobMap:
    """What a map of a cut decides for one step, as the complete map of a whole plan."""
    return knobs.at(step).merge(KnobMap.parse({"FUSE": OFF}))


def sequence(
    name: str,
    symbols: tuple[Symbol, ...],
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    steps: Sequence[str],
    regions: Sequence[Region],
    picks: Sequence[Variant],
    knobs: str,
) -> Plan:
    """One plan of several regions' plans in order. What one writes and another reads is a workspace."""
    outside = {t.name for t in (*inputs, *outputs)}
    kernels: dict[str, Kernel] = {}
    workspaces: dict[str, Workspace] = {}
    launched: list[Step] = []
    for step, child, pick in zip(steps, regions, picks, strict=True):
        plan = pick.plan
        bound: dict[str, str] = {s.name: mine.name for s, mine in zip(plan.symbols, child.symbols, strict=True)}
        mine: tuple[Tensor, ...] = (*child.inputs, *(o.tensor for o in child.outputs))
        bound |= {t.name: m.name for t, m in zip((*plan.inputs, *plan.outputs), mine, strict=True)}
        for tensor in (m for m in mine if m.name not in outside):
            workspaces.setdefault(tensor.name, Workspace(tensor.name, tensor.dtype, tensor.elements()))
        for work in plan.workspaces:
            bound[work.name] = f"{step}_{work.name}"
            workspaces[bound[work.name]] = replace(work, name=bound[work.name])
        for one in plan.steps:
            if isinstance(one, Memset):
                launched.append(replace(one, buffer=bound[one.buffer]))
            else:
                kernel = _unique(one.kernel, kernels, step)
                launched.append(Launch(kernel, one.grid, tuple(bound.get(name, name) for name in one.args)))
    hints = {symbol.name: symbol.hint for symbol in symbols}
    return Plan(
        name,
        symbols,
        inputs,
        outputs,
        tuple(workspaces.values()),
        tuple(launched),
        knobs,
        all(pick.plan.deterministic for pick in picks),
        sum(pick.plan.flops for pick in picks),
        sum(_bytes(t, hints) for t in (*inputs, *outputs)),
    )


def _unique(kernel: Kernel, taken: dict[str, Kernel], step: str) -> Kernel:
    """The kernel, renamed where another one of the plan has its name; equal kernels are compiled once."""
    if taken.setdefault(kernel.name, kernel) == kernel:
        return kernel
    other = replace(kernel, name=f"{kernel.name}_{step}")
    taken[other.name] = other
    return other


def _bytes(tensor: Tensor, hints: Mapping[str, int]) -> int:
    return evaluate_int(tensor.elements(), hints) * tensor.dtype.nbytes
