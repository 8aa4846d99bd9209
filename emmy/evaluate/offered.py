"""Which recorded configurations today's compiler offers on their device's architecture. Needs no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from emmy.device.base import Capabilities
from emmy.device.cuda_targets import cuda_target, target_of_gpu
from emmy.errors import EmmyError, Refused
from emmy.goldens.dataset import Shape
from emmy.ir.nest import Region
from emmy.schedule.knobs import GATES, OFF, AtomTile, Fuse, KnobMap
from emmy.schedule.space import Space, enumerate_space, refusal
from emmy.search.realise import realise

if TYPE_CHECKING:
    from emmy.goldens.entry import GoldenConfig

State = Literal["offered", "pinned only", "refused"]


@dataclass(frozen=True, slots=True)
class Place:
    """One entry. ``offered``: the enumeration has it; ``pinned only``: a pin reaches it, no search does; ``refused``:
    ``text`` names the rule and where it stands."""

    entry: GoldenConfig
    state: State
    text: str = ""


def capabilities_of(device: str) -> Capabilities | None:
    """Of a device by its name in a golden file: a GPU's compile target, or this machine's own CPU device."""
    arch = target_of_gpu(device)
    if arch is not None:
        return cuda_target(arch)
    if not device.startswith("pocl"):
        return None
    from emmy.device.registry import capabilities

    try:
        own = capabilities("opencl")
    except EmmyError:
        return None
    return own if own.name == device else None


def places(entries: Iterable[GoldenConfig], caps: Capabilities) -> list[Place]:
    """The place of every entry whose knobs the grammar knows, in the order given. Imports torch."""
    return [place_of(entry, caps) for entry in entries if not entry.knobs.raw]


def place_of(entry: GoldenConfig, caps: Capabilities) -> Place:
    """Where one entry stands on ``caps``."""
    shape = Shape(entry.name, entry.kernel, entry.dims, entry.dtype, (), entry.dynamic, entry.causal)
    try:
        regions = _regions(shape)
    except EmmyError as error:
        return Place(entry, "refused", f"does not compile: {error}")
    if len(regions) != 1:
        return Place(entry, "refused", f"is {len(regions)} kernels, and one map of knobs")
    region, fast_math = regions[0], entry.lane == "fm"
    cut = isinstance(entry.knobs.get("FUSE", OFF), Fuse)
    # A gate that is off is not spelled out in the maps of a tier that has no use for it.
    wanted = KnobMap(
        tuple((key, value) for key, value in entry.knobs.items_ if key.family not in GATES or value != OFF)
    )
    if not cut and len(space := _space(region, caps, fast_math)) and len(space.matching(wanted)):
        return Place(entry, "offered")
    try:
        realise(region, caps, wanted)
    except Refused as refused:
        return Place(entry, "refused", str(refused) if cut else _why(refused, wanted, region, caps))
    if cut:
        return Place(entry, "offered")
    return Place(entry, "pinned only", f"not enumerated, a pin reaches it: {wanted}")


def _why(refused: Refused, knobs: KnobMap, region: Region, caps: Capabilities) -> str:
    """The refusal of the tier that the knobs are meant for: several may have turned them down."""
    tile = next((value for key, value in knobs.items_ if key.family == "TILE"), OFF)
    if isinstance(tile, AtomTile) and tile.atom not in caps.atoms:
        atoms = ", ".join(caps.atoms) or "none"
        return str(Refused("atom_of_device", found=f"{tile.atom} on {caps.arch}", expected=atoms))
    return str(refusal(region, caps, knobs) or refused)


@lru_cache(maxsize=64)
def _regions(shape: Shape) -> tuple[Region, ...]:
    from emmy.frontend import trace_callable
    from emmy.passes.partition import partition

    return partition(trace_callable(shape.snippet(), shape.inputs(), shape.name).region).regions


@lru_cache(maxsize=4)
def _space(region: Region, caps: Capabilities, fast_math: bool) -> Space:
    return enumerate_space(region, caps, fast_math)
