"""Regions of their own from groups of a region's computations.

A result that another group reads becomes a tensor. Results of maps and contractions are what an operation of the traced
program returns, or an intermediate of such: they are stored in the program's own type (float16 stays float16), as
eager PyTorch stores them. Statistics of reductions (a sum, a maximum, a Welford triple) are few and are combined
further: they are stored in the compute type. Inside a region everything stays in the compute type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emmy.ir.expr import Expr, Load, cast
from emmy.ir.nest import Comp, Output, Program, Region, Tensor, region_key
from emmy.passes.rewrite import base, component, map_loads, result_tensor, tensors
from emmy.passes.roles import is_contraction, is_heavy

SHORT = {
    "scaled_dot_product_attention": "sdpa",
    "native_layer_norm": "layer_norm",
    "addmm": "linear",
    "safe_softmax": "softmax",
    "copy": "",
}
"""Operations whose names in kernels are shorter than ATen's; an empty one is left out."""


def split(region: Region, groups: Sequence[Sequence[Comp]]) -> tuple[Region, ...]:
    """One region a group, in the groups' order; tensors pass between them by name. Nothing is fused here.

    Raises ValueError where a group reads a result of a later one.
    """
    owner = {comp.name: n for n, group in enumerate(groups) for comp in group}
    known = tensors(region)
    handed: dict[str, Tensor] = {}
    for n, group in enumerate(groups):
        for comp in group:
            for load in comp.loads():
                source = owner.get(base(load.tensor))
                if source is not None and source > n:
                    raise ValueError(f"{region.name}: {comp.name} reads {load.tensor}, which a later region computes")
                if source is not None and source < n:
                    handed.setdefault(load.tensor, _handed(region, load.tensor))
    regions = []
    for n, group in enumerate(groups):
        comps = tuple(_reading_tensors(comp, owner, handed, n) for comp in group)
        read: dict[str, Tensor] = {}
        for comp in comps:
            for load in comp.loads():
                if base(load.tensor) not in owner or owner[base(load.tensor)] != n:
                    tensor = next((t for t in handed.values() if t.name == load.tensor), None)
                    read.setdefault(load.tensor, tensor or known[load.tensor])
        own = {comp.name for comp in group}
        outputs = [out for out in region.outputs if base(out.source) in own]
        written = {out.tensor.name for out in outputs}
        for result, tensor in handed.items():
            if base(result) in own and tensor.name not in written:
                outputs.append(Output(tensor, result))
        regions.append(Region(region.name, region.symbols, tuple(read.values()), comps, tuple(outputs)))
    return tuple(regions)


def _handed(region: Region, source: str) -> Tensor:
    """The tensor that holds result ``source`` between regions; an output of the program serves where there is one."""
    plain = source if component(source) else base(source)
    for out in region.outputs:
        if out.source == plain:
            return out.tensor
    comp = region.comp(source)
    tensor = result_tensor(comp, component(source))
    stored = comp.dtype if comp.is_map or is_contraction(comp) else tensor.dtype
    return replace(tensor, name=plain.replace(".", "_"), dtype=stored)


def _reading_tensors(comp: Comp, owner: dict[str, int], handed: dict[str, Tensor], group: int) -> Comp:
    """``comp`` with the results of other groups read from the tensors that hold them."""

    def rule(load: Load) -> Expr | None:
        if owner.get(base(load.tensor), group) == group:
            return None
        tensor = handed[load.tensor]
        return cast(Load(tensor.name, load.index, tensor.dtype), load.dtype)

    return map_loads(comp, rule)


def named(region: Region) -> Region:
    """``region`` named after its operations and a short hash of its key: ``k_linear_gelu_3fa2c1``."""
    return replace(region, name=f"k_{operations(region)}_{region_key(region)[:6]}")


def operations(region: Region, most: int = 3) -> str:
    """The operations a region realises, at most ``most`` of them: anchors before maps, then in order."""
    ranked: dict[str, tuple[int, int]] = {}
    place = 0
    for comp in region.comps:
        rank = 0 if is_heavy(comp) else 1 if not comp.is_map else 2
        for name in comp.origin or (comp.monoid or "map",):
            short = SHORT.get(name, name)
            if short:
                ranked[short] = min(ranked.get(short, (rank, place)), (rank, place))
                place += 1
    chosen = sorted(ranked, key=lambda name: ranked[name])[:most]
    return "_".join(sorted(chosen, key=lambda name: ranked[name][1])) or "copy"


def program(name: str, region: Region, regions: Sequence[Region]) -> Program:
    """Regions that realise ``region``, as a program with its inputs and outputs."""
    return Program(
        name, region.symbols, region.inputs, tuple(regions), tuple(out.tensor.name for out in region.outputs)
    )
