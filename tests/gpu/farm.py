"""Leaves lowered, printed and compiled by all cores while the GPU checks those that are ready."""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from emmy.bench.jobs import ReferenceSet, Row
from emmy.bench.reference import reference
from emmy.device.base import Capabilities
from emmy.device.binaries import BinaryCache
from emmy.device.cuda import compile_options
from emmy.errors import EmmyError
from emmy.ir.nest import Region
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import enumerate_space
from emmy.search.pick import Picker
from emmy.search.pinned import Unmatched, pinned
from emmy.search.realise import realise
from emmy.search.variant import knobs_text, read_knobs

_FEW_SYMBOLIC = 6
"""Leaves of a symbolic case, each of which is checked at three sizes."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What of a case is checked. leaves: (tier, knobs as text). missing: pins that are not realised, and why.

    error: why there is nothing to check; such a case fails and the others go on.
    """

    leaves: tuple[tuple[str, str], ...]
    refs: ReferenceSet
    offered: dict[str, int]
    missing: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Built:
    """A leaf with its artefact; ``error``: why there is none. The binary is in the cache, or its failure is."""

    tier: str
    knobs: str
    row: Row | None
    error: str = ""


def survey(region: Region, caps: Capabilities, folder: Path, count: int, pins: Sequence[str]) -> Survey:
    """References, and ``count`` leaves of each tier, the same for the same region and space."""
    try:
        return _survey(region, caps, folder, count, pins)
    except Exception as error:
        return nothing(error)


def nothing(error: Exception) -> Survey:
    """The survey of a case that cannot be traced, has no references, or no space."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return Survey((), ReferenceSet("", 0, ()), {}, error=f"{type(error).__name__}: {error} ({where})")


def _survey(region: Region, caps: Capabilities, folder: Path, count: int, pins: Sequence[str]) -> Survey:
    refs = reference(region, folder)
    space = enumerate_space(region, caps, True)
    chosen: list[tuple[str, str]] = []
    for number, part in enumerate(space.parts):
        rng = np.random.default_rng([zlib.crc32(part.tier.name.encode()), len(part)])
        rows = rng.choice(len(part), min(count, len(part)), replace=False) if len(part) else ()
        chosen += [(part.tier.name, knobs_text(space.knobs(int(space.starts[number]) + int(row)))) for row in rows]
    picker, missing = Picker(caps, UninformedPrior("a test"), None, True), []
    for text in pins:
        found = pinned(picker, region, KnobMap.parse(text))
        if isinstance(found, Unmatched):
            missing.append(str(found))
        else:
            chosen.append(("pin", found.variant.text))
    return Survey(tuple(chosen), refs, {p.tier.name: len(p) for p in space.parts}, tuple(missing))


def build(region: Region, caps: Capabilities, folder: Path, tier: str, knobs: str) -> Built:
    """Lowers, prints and compiles one leaf."""
    try:
        variant = realise(region, caps, read_knobs(knobs))
        artefact = variant.artefact
    except EmmyError as error:
        return Built(tier, knobs, None, f"does not lower: {error}")
    except Exception as error:
        return Built(tier, knobs, None, f"does not lower: {type(error).__name__}: {error}")
    cache = BinaryCache(folder / "cuda")
    for kernel in artefact.kernels:
        binary = cache.compile(kernel.source, caps.arch, compile_options(artefact.options, "O3"))
        if binary.error:
            return Built(tier, knobs, None, f"does not compile: {binary.error} {binary.log[:400]}")
    return Built(tier, knobs, Row(artefact.name, artefact, variant.lane))


class Farm:
    """A process pool that prepares every case in the order given, so that the first one is ready first."""

    def __init__(self, caps: Capabilities, folder: Path, processes: int) -> None:
        self.caps, self.folder = replace(caps), folder
        self.pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
        self.regions: dict[str, Region] = {}
        self.surveys: dict[str, Future[Survey]] = {}
        self.builds: dict[str, list[Future[Built]]] = {}

    def survey(self, name: str, make: Callable[[], Region], leaves: int, pins: Sequence[str] = ()) -> None:
        """Starts on a case; ``make`` gives its region."""
        try:
            region = make()
        except Exception as error:
            self.surveys[name], self.builds[name] = Future(), []
            self.surveys[name].set_result(nothing(error))
            return
        count = min(leaves, _FEW_SYMBOLIC) if region.symbols else leaves
        self.regions[name] = region
        self.surveys[name] = self.pool.submit(survey, region, self.caps, self.folder, count, tuple(pins))

    def build(self, name: str) -> None:
        """Starts the leaves of a surveyed case."""
        if name in self.builds:
            return
        region = self.regions[name]
        self.builds[name] = [
            self.pool.submit(build, region, self.caps, self.folder, tier, knobs)
            for tier, knobs in self.surveys[name].result().leaves
        ]

    def built(self, name: str) -> Iterator[Built]:
        """The leaves of a case in the order they become ready."""
        from concurrent.futures import as_completed

        self.build(name)
        for done in as_completed(self.builds.pop(name)):
            yield done.result()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
