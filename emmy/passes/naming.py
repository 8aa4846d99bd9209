"""Names a lowering can trust: what a user called a tensor or a size never meets a kernel's own names.

Lowerings name their loops, registers and pointers as they like; a region is lowered under safe names, and its plan is
bound to the user's again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from emmy.ir.expr import Expr, Load, Var, transform
from emmy.ir.nest import Axis, Comp, Output, Region, Tensor
from emmy.ir.plan import Launch, Memset, Plan, Step

PLAIN = re.compile(r"(x|out)\d*")
"""Names that no lowering uses for anything of its own; all others get a suffix that none uses either."""

SUFFIX = "_arg"


@dataclass(frozen=True, slots=True)
class Renamed:
    """A region under safe names. names: the user's name of each tensor and symbol, by the safe one."""

    region: Region
    names: Mapping[str, str]

    def restore(self, plan: Plan, original: Region) -> Plan:
        """A plan of the renamed region, bound to the original's names."""
        if not self.names:
            return plan

        def named(step: Step) -> Step:
            if isinstance(step, Launch):
                x, y, z = (self._user(e) for e in step.grid)
                return replace(step, grid=(x, y, z), args=tuple(self.names.get(a, a) for a in step.args))
            return Memset(self.names.get(step.buffer, step.buffer), step.value)

        inputs = {t.name: t for t in original.inputs}
        outputs = {o.tensor.name: o.tensor for o in original.outputs}
        return replace(
            plan,
            symbols=original.symbols,
            inputs=tuple(inputs[self.names.get(t.name, t.name)] for t in plan.inputs),
            outputs=tuple(outputs[self.names.get(t.name, t.name)] for t in plan.outputs),
            workspaces=tuple(replace(w, elements=self._user(w.elements)) for w in plan.workspaces),
            steps=tuple(map(named, plan.steps)),
        )

    def _user(self, expr: Expr) -> Expr:
        return _renamed(expr, self.names)


def safe(region: Region) -> Renamed:
    """The region with every tensor and symbol that is not plainly named (``x0``, ``out``) given a safe name."""
    names = [t.name for t in region.inputs] + [o.tensor.name for o in region.outputs] + [s.name for s in region.symbols]
    new = {name: f"{name}{SUFFIX}" for name in names if not PLAIN.fullmatch(name)}
    if not new:
        return Renamed(region, {})

    def axis(a: Axis) -> Axis:
        return Axis(a.name, _renamed(a.extent, new))

    def tensor(t: Tensor) -> Tensor:
        strides = None if t.strides is None else tuple(_renamed(e, new) for e in t.strides)
        return Tensor(new.get(t.name, t.name), tuple(_renamed(e, new) for e in t.shape), t.dtype, strides)

    def comp(c: Comp) -> Comp:
        return replace(
            c,
            axes=tuple(map(axis, c.axes)),
            reduce=tuple(map(axis, c.reduce)),
            carried=tuple(map(axis, c.carried)),
            body=tuple(_renamed(e, new) for e in c.body),
        )

    renamed = replace(
        region,
        symbols=tuple(replace(s, name=new.get(s.name, s.name)) for s in region.symbols),
        inputs=tuple(map(tensor, region.inputs)),
        comps=tuple(map(comp, region.comps)),
        outputs=tuple(Output(tensor(o.tensor), o.source) for o in region.outputs),
    )
    return Renamed(renamed, {safe_name: name for name, safe_name in new.items()})


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    def rule(node: Expr) -> Expr | None:
        match node:
            case Load(name, index, dtype, lanes) if name in names:
                return Load(names[name], index, dtype, lanes)
            case Var(name, dtype, lanes) if name in names:
                return Var(names[name], dtype, lanes)
        return None

    return transform(expr, rule)
