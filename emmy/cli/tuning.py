"""What ``emmy tune`` does once its options are read: shape after shape, an attempt a line that a person can follow."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import click

from emmy.errors import DeviceLost, EmmyError, FullDisk, InputError, MissingPrerequisite, StoreError
from emmy.evaluate.table import number
from emmy.ir.nest import Region
from emmy.pipeline import Job, Workspace, check_memory, open_job
from emmy.search.screening import Progress
from emmy.search.tuner import Tuned
from emmy.search.variant import Variant, label_of
from emmy.target import Target

PATIENCE_FLOOR = 50
TOLERANCE_FLOOR = 0.10


@dataclass
class Log:
    """Lines for the terminal and for ``tune.log``; an attempt's line replaces the one before it on a terminal."""

    file: TextIO
    live: bool = field(default_factory=lambda: sys.stderr.isatty())
    _open: bool = False

    def line(self, text: str) -> None:
        self._end()
        click.echo(text)
        self.file.write(text + "\n")
        self.file.flush()

    def attempt(self, text: str) -> None:
        """Goes to the log whole; to the terminal as a line that the next one overwrites."""
        self.file.write(text + "\n")
        if self.live:
            click.echo("\r\x1b[K" + text[:118], nl=False, err=True)
            self._open = True

    def _end(self) -> None:
        if self._open:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._open = False


def warnings_of(patience: int, o3_tol: float) -> list[str]:
    """What to say about settings that are known to lose winners."""
    found: list[str] = []
    if patience < PATIENCE_FLOOR:
        found.append(
            f"warning: patience {patience} is below {PATIENCE_FLOOR}: with a cold start wide TILE forks are found late"
        )
    if o3_tol < TOLERANCE_FLOOR:
        low = f"EMMY_O3_TOL {o3_tol:g} is below {TOLERANCE_FLOOR:.2f}"
        found.append(f"warning: {low}: a contender that the screening misplaces is never measured again")
    return found


def run_tune(work: Workspace, targets: Sequence[Target], *, clean: bool = False, then_bench: bool = False) -> int:
    """Tunes the targets into one sweep. Returns the exit code: 1 when a row or a target failed."""
    started = time.perf_counter()
    jobs = [open_job(targets[0])] if len(targets) == 1 else []
    for job in jobs:
        check_memory(job, work.caps)
    work.folder.mkdir(parents=True, exist_ok=True)
    tuned: list[Tuned] = []
    broken: list[str] = []
    lost_device = False
    with (
        (work.folder / "tune.log").open("a", encoding="utf-8") as file,
        work.bench(sweep := work.sweep(clean)) as bench,
    ):
        log = Log(file)
        log.line(
            f"device {work.caps.name}, sweep {sweep}{' (new)' if clean else ''}, patience {work.settings.patience}"
        )
        log.line(f"{work.prior.name} prior: {work.prior.about}")
        for text in warnings_of(work.settings.patience, work.settings.o3_tol):
            log.line(text)
        tuner = work.tuner(bench, sweep, on_progress=lambda p: log.attempt(progress_line(p)))
        for place, target in enumerate(targets, start=1):
            head = f"[{place}/{len(targets)}] "
            try:
                job = jobs[0] if jobs else open_job(target)
                check_memory(job, work.caps)
                for region in job.regions:
                    one = tuner.tune(region, job.name if job.shape else "")
                    tuned.append(one)
                    log.line(head + summary(job.name, one))
                if work.settings.dump_dir is not None:
                    dump(work, job, work.settings.dump_dir, log.line)
            except DeviceLost as lost:
                log.line(f"{head}{target.value}: {lost}")
                left = [one.value for one in targets[place - 1 :]]
                log.line(f"! stopped: {len(left)} of {len(targets)} targets are not done")
                broken += left
                lost_device = True
                break
            except FullDisk:
                raise
            except (InputError, MissingPrerequisite, StoreError):
                if len(targets) == 1:
                    raise
                broken.append(target.value)
                log.line(f"{head}{target.value}: {_reason()}")
            except Exception as error:
                # One shape that cannot be compiled must not lose the others; a fault of emmy's own is named as one.
                if len(targets) == 1 and not isinstance(error, EmmyError):
                    raise
                broken.append(target.value)
                kind = "" if isinstance(error, EmmyError) else f"internal error: {type(error).__name__}: "
                log.line(f"{head}{target.value}: {kind}{_reason()}")
            head = " " * len(head)
        work.store.fold()
        ok, failed = sum(t.ok for t in tuned), sum(t.failed for t in tuned)
        kernels = len({t.region.name for t in tuned})
        unmet = [t.region.name for t in tuned if t.best is None and t.skipped != "an equal kernel was tuned"]
        for name in unmet:
            log.line(f"! {name}: nothing ran")
        code = 1 if failed or broken or unmet else 0
        if then_bench and not lost_device:
            from emmy.cli.benching import bench_targets

            code = max(code, bench_targets(work, targets, bench, sweep))
        seconds = time.perf_counter() - started
        log.line(f"done: {kernels} kernels, {ok + failed} variants ({ok} ok / {failed} failed) in {seconds:.1f} s")
    return code


def _reason() -> str:
    return str(sys.exc_info()[1])


def progress_line(p: Progress) -> str:
    """``k_matmul_3fa2c1 17/6746  412.3 us  TILE=…  best 398.1 us  since best 5``."""
    reply = p.reply
    outcome = (
        f"{number(reply.median_us)} us"
        if reply.ok
        else f"{reply.status}: {reply.error.splitlines()[0] if reply.error else ''}"
    )
    marks = "".join(
        m for m in (" known" if not p.live else "", " abandoned" if reply.abandoned else "", f" {p.origin}")
    )
    build = f"{p.regime} " if p.regime != "O3" else ""
    best = f"{build}best {number(p.best_us)} us" if p.best_us is not None else "no best yet"
    return f"{p.region} {p.attempt}/{p.offered}  {build}{outcome}{marks}  {p.label}  {best}, {p.since_best} since"


def summary(name: str, tuned: Tuned) -> str:
    """One line on how a region's search ended."""
    kernel = "" if tuned.region.name == name else f" {tuned.region.name}"
    if tuned.skipped and tuned.best is None:
        return f"{name}{kernel}: {tuned.skipped}"
    failures = f", {tuned.failed} failed" if tuned.failed else ""
    tried = f"{tuned.live} of {tuned.offered} leaves measured" + (f", {tuned.known} known" if tuned.known else "")
    tried += f", {tuned.again} again in O3" if tuned.again else ""
    best = f"{number(tuned.us)} us  {label_of(tuned.best.knobs)}" if tuned.best else "no result"
    cuts = "".join(f"\n      step {child.region.name}: {number(child.us)} us" for child in tuned.children)
    return f"{name}{kernel}: {best}  ({tried}{failures}, {tuned.seconds:.1f} s){cuts}"


def dump(work: Workspace, job: Job, folder: Path, say: Callable[[str], None]) -> None:
    """Writes the plan and the source of each region's pick, and a reproducer of each region and of what it is cut into.

    Equal regions have one name and share their files.
    """
    from emmy.frontend import reproducer
    from emmy.frontend.extract import extract
    from emmy.ir.plan import text

    folder.mkdir(parents=True, exist_ok=True)
    suffix = "cu" if work.caps.language == "cuda" else "cl"
    kernels: list[Region] = []
    for region in job.regions:
        pick = work.picker().greedy(region)
        kernels += _parts(pick.variant)
        (folder / f"{region.name}.plan.txt").write_text(text(pick.variant.plan), encoding="utf-8")
        sources = "\n".join(kernel.source for kernel in pick.variant.artefact.kernels)
        (folder / f"{region.name}.{suffix}").write_text(sources, encoding="utf-8")
    graph = job.traced.graph
    found = [*extract(graph, job.regions), *extract(graph, job.regions, kernels)]
    # the last of a name is written: its own operations alone, where there is such a one
    named = {one.region.name: one for one in sorted(found, key=lambda one: not one.note)}
    for name, one in named.items():
        reproducer.save(one.graph, folder / f"{name}.torch.json", one.note)
    say(f"wrote {len(job.regions)} kernels and {len(named)} reproducers to {folder}")


def _parts(variant: Variant) -> list[Region]:
    """The regions of a variant's kernels: its own, or those it is cut into, however deep."""
    if not variant.children:
        return [variant.region]
    return [region for child in variant.children.values() for region in _parts(child)]
