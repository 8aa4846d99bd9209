"""From a target to what is tuned: traced, fused, partitioned into named regions; and the work folder's parts.

The command line and the flows both start here. Importing it imports torch only when something is traced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emmy.config import Settings
from emmy.device.base import Capabilities
from emmy.errors import InputError, OutOfMemory
from emmy.files import check_folder
from emmy.ir.expr import evaluate_int
from emmy.ir.nest import Program, Region
from emmy.priors.base import Prior
from emmy.search.pick import Picker
from emmy.search.screening import Bencher, Progress, TuneOptions
from emmy.search.tuner import Tuner
from emmy.target import Target, TargetKind

if TYPE_CHECKING:
    from emmy.bench.jobs import ReferenceSet
    from emmy.bench.protocol import Bench
    from emmy.frontend import Traced
    from emmy.goldens.dataset import Shape
    from emmy.store import Store


@dataclass(frozen=True, slots=True)
class Job:
    """One program to compile. name: of the golden shape, or of its only kernel, else of the target."""

    name: str
    target: Target
    traced: Traced
    program: Program
    shape: Shape | None = None

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.program.regions

    @property
    def symbols(self) -> dict[str, int]:
        return {symbol.name: symbol.hint for symbol in self.program.symbols}


def open_job(target: Target) -> Job:
    """Traces a target and cuts it into regions. Raises InputError, UnsupportedOp."""
    if target.kind is TargetKind.MODEL:
        raise InputError(
            f"model {target.value}",
            found="a model's name",
            expected="-c SNIPPET, --golden NAME or a reproducer",
            hint="models are not compiled yet: put the layer into a snippet",
        )
    from emmy.frontend import trace
    from emmy.goldens.dataset import shape
    from emmy.passes.partition import partition

    golden = shape(target.value) if target.kind is TargetKind.GOLDEN else None
    traced = trace(target)
    program = partition(traced.region)
    name = golden.name if golden else program.regions[0].name if len(program.regions) == 1 else traced.graph.name
    return Job(name, target, traced, program, golden)


def check_memory(job: Job, caps: Capabilities) -> None:
    """Raises OutOfMemory, naming the largest tensors, where inputs and outputs alone do not fit on the device."""
    region = job.traced.region
    hints = region.hints()
    tensors = (*region.inputs, *(out.tensor for out in region.outputs))
    sizes = {t.name: evaluate_int(t.elements(), hints) * t.dtype.nbytes for t in tensors}
    if sum(sizes.values()) > caps.memory_bytes:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:4]
        raise OutOfMemory(
            f"{job.name} does not fit on {caps.name}: " + ", ".join(f"{n} {sizes[n] / 2**30:.2f} GiB" for n in largest),
            found=f"{sum(sizes.values()) / 2**30:.2f} GiB",
            expected=f"at most {caps.memory_bytes / 2**30:.2f} GiB",
        )


def golden_targets(caps: Capabilities, groups: Sequence[str] = (), kernel: str | None = None) -> tuple[Target, ...]:
    """The dataset's shapes for a device: the groups given, else ``quick`` on a CPU device and all others on a GPU."""
    from emmy.goldens.dataset import shapes

    if groups:
        chosen = shapes(groups, kernel)
    elif caps.kind == "cpu":
        chosen = shapes("quick", kernel)
    else:
        chosen = tuple(shape for shape in shapes(None, kernel) if "quick" not in shape.groups)
    return tuple(Target(TargetKind.GOLDEN, shape.name) for shape in chosen)


@dataclass(frozen=True)
class Workspace:
    """The device, the store, the prior and the sweep that a command works with."""

    settings: Settings
    device: str
    caps: Capabilities
    store: Store
    prior: Prior

    @property
    def folder(self) -> Path:
        return self.settings.work_dir

    def picker(self, sweep: str | None = None) -> Picker:
        return Picker(self.caps, self.prior, self.store, self.settings.fast_math, sweep)

    def sweep(self, clean: bool = False) -> str:
        """The sweep to measure into: the device's current one, or a new one (``clean``, or where there is none)."""
        current = None if clean else self.store.current_sweep(self.caps.name)
        if current is not None:
            return current
        facts = {
            "driver": self.caps.driver,
            "compiler": self.caps.compiler,
            "patience": self.settings.patience,
            "o3_tol": self.settings.o3_tol,
            "fast_math": self.settings.fast_math,
            "o1": self.settings.o1,
        }
        if clean:
            return self.store.clean(
                self.caps.name, facts, forget=[p for p in (self.settings.online_file,) if p.exists()]
            )
        return self.store.start_sweep(self.caps.name, facts)

    def references(self, region: Region) -> ReferenceSet:
        """Inputs and expected outputs of a region, kept in the work folder."""
        from emmy.bench.reference import reference

        return reference(region, self.folder)

    @contextmanager
    def bench(self, sweep: str) -> Iterator[Bench]:
        """The bench of this device, its workers started; they end with the block."""
        from emmy.bench.protocol import Bench

        with Bench(self.device, self.caps, self.folder, sweep) as bench:
            yield bench

    def tuner(self, bench: Bencher, sweep: str, on_progress: Callable[[Progress], None] = lambda _: None) -> Tuner:
        own = self.settings
        options = TuneOptions(own.patience, own.o3_tol, own.fast_math, own.o1)
        preparer = None
        if self.caps.language == "cuda":
            from emmy.search.ahead import Preparer

            # The bench's own cache: what is compiled ahead is what the worker looks for.
            preparer = Preparer(self.caps, self.folder / "binaries" / sweep / "cuda", os.cpu_count() or 1)
        return Tuner(bench, self.store, self.caps, self.prior, self.references, sweep, options, on_progress, preparer)


def open_workspace(settings: Settings, *, target: str | None = None, measures: bool = True) -> Workspace:
    """Finds the device of this machine that the settings name, checks the store, and loads the prior.

    ``target``: a compile target in place of the device. ``measures``: whether rows are going to be stored. Raises
    MissingPrerequisite (what to install), StoreError, and InputError for a device that this machine does not have and
    for a dump folder that cannot be written; nothing has been started then.
    """
    from emmy.device.registry import capabilities, on_this_machine, resolve
    from emmy.priors.choose import choose_prior
    from emmy.store import Store

    if settings.dump_dir is not None:
        check_folder("EMMY_DUMP_DIR", settings.dump_dir)
    if target is None:
        settings = on_this_machine(settings)
    device = resolve(target or settings.device)
    store = Store(settings.tune_db)
    store.check(to_write=measures)
    caps = capabilities(device, settings.work_dir)
    return Workspace(settings, device, caps, store, choose_prior(settings, caps))
