"""The GPU's bars: ``python -m benchmarks.h200 --minutes 8 --group fp16 --out DIR``.

Tunes the shapes of the chosen bars cold into one sweep, times each tuned best beside eager PyTorch (and torch.compile,
with ``--tcompile``), and prints every bar with its rows, ratios and shares of the ceiling. It stops in time: what was
measured stays in the store and in the results beside it, and the next call goes on from there. ``--clean`` starts over
in a new sweep, ``--report`` only prints what is there, ``--from FILE`` what a file of results holds; neither needs a
measurement, and the latter no GPU. ``--retime FILE`` times the tuned bests of such a file again, without a search: what
another protocol, driver or code generator makes of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.h200_report import Result, patience_of, report
from benchmarks.h200_results import Results, read, results_of
from benchmarks.h200_shapes import GROUPS, Subject
from emmy.cli.main import guarded
from emmy.errors import DeviceLost, EmmyError, InputError
from emmy.files import check_folder

if TYPE_CHECKING:
    from emmy.bench.jobs import ReferenceSet
    from emmy.bench.protocol import Bench
    from emmy.device.base import Capabilities
    from emmy.ir.nest import Region
    from emmy.pipeline import Job, Workspace
    from emmy.schedule.knobs import KnobMap
    from emmy.search.pick import Pick
    from emmy.search.tuner import Tuned, Tuner

GRACE_S = 20.0
"""Time kept at the end for the report; the process is killed when even that has passed."""

LAST_START_S = 5.0
"""A subject is not begun when less is left. What is begun and not finished stays in the store, for the next call."""

PROCESSES, ROUNDS = 2, 4


class TimeUp(BaseException):
    """The time limit. No ordinary handler of exceptions catches it."""


@dataclass(slots=True)
class Metered:
    """A bench that notes how long its calls take: the rest of a search is the parent's own work."""

    bench: Bench
    seconds: dict[str, float] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.bench, name)
        if not callable(call):
            return call

        def metered(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started

        return metered

    def take(self) -> dict[str, float]:
        """Seconds by call since the last time."""
        found, self.seconds = self.seconds, {}
        return found


class Data:
    """Reference data, computed once for the search and the comparison of a subject."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.job: Job | None = None

    def references(self, region: Region) -> ReferenceSet:
        from emmy.eager import shared_reference

        shared = shared_reference(self.job, region, self.work.folder) if self.job is not None else None
        return shared or self.work.references(region)


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    options = _options()
    if options.source is not None:
        return _from_file(options)
    from benchmarks.needs import gpu_workspace
    from emmy import config

    if options.debug:
        os.environ["EMMY_DEBUG"] = "1"
    if options.out is not None:
        check_folder("--out", options.out)
    started = time.monotonic()
    groups, subjects = _chosen(options)
    recorded = results_of(options.retime).rows if options.retime is not None else None
    work = gpu_workspace("h200", config.load(device=options.device, patience=options.patience))
    path = work.folder / "h200.jsonl"
    lines = read(path) if path.exists() else []
    sweep = _stored_sweep(work) if options.report else _sweep(work, options.clean)
    results = Results(path, lines, sweep)
    say(f"{_about(work.caps)}, sweep {sweep}, {work.prior.name} prior")
    limit = started + 60 * options.minutes - GRACE_S
    if not options.report:
        say(f"{len(subjects)} subjects, patience {work.settings.patience}, {options.minutes:g} minutes")
        results.set_device(work.caps)
        _under_limit(limit, lambda: _measure(work, sweep, subjects, results, recorded, options, limit))
    text, passed = report(groups, results.rows, results.ceilings, work.caps)
    say(text)
    whole = _counted(subjects, results)
    say(f"{time.monotonic() - started:.0f} s")
    _export(work, results, text, options.out)
    return 0 if passed and whole else 1


def _sweep(work: Workspace, clean: bool) -> str:
    work.folder.mkdir(parents=True, exist_ok=True)
    return work.sweep(clean)


def _stored_sweep(work: Workspace) -> str:
    """The sweep to report; none is opened. Raises InputError where there is none."""
    found = work.store.current_sweep(work.caps.name)
    if found is None:
        raise InputError(
            "--report", found=f"no sweep on {work.caps.name} in {work.store.path}", expected="one",
            hint="run without --report first, or set EMMY_TUNE_DB",
        )  # fmt: skip
    return found


def _from_file(options: argparse.Namespace) -> int:
    """The tables of a file of results."""
    from emmy.device.cuda_targets import cuda_target

    groups, subjects = _chosen(options)
    results = results_of(options.source)
    caps = results.device or cuda_target("sm_90a")
    say(f"{_about(caps)}, sweep {', '.join(results.sweeps)}, read from {options.source.name}")
    text, passed = report(groups, results.rows, results.ceilings, caps)
    say(text)
    return 0 if _counted(subjects, results) and passed else 1


def _chosen(options: argparse.Namespace) -> tuple[list[str], list[Subject]]:
    """The bars, and their subjects, each once. Raises InputError for a part of a name that no subject has."""
    groups = options.group or list(GROUPS)
    subjects = {s.name: s for group in groups for s in GROUPS[group] if options.kernel in s.name}
    if not subjects:
        raise InputError("--kernel", found=repr(options.kernel), expected=f"part of a name in {', '.join(groups)}")
    return groups, list(subjects.values())


def _about(caps: Capabilities) -> str:
    return ", ".join(filter(None, (caps.name, f"driver {caps.driver}" if caps.driver else "", caps.compiler)))


def _counted(subjects: list[Subject], results: Results) -> bool:
    """Says how many subjects were measured, and with which patience; whether all were."""
    done = [results.rows[s.name] for s in subjects if s.name in results.rows]
    say(f"{len(done)} of {len(subjects)} subjects measured, patience {patience_of(done)}")
    return len(done) == len(subjects)


def _under_limit(limit: float, run: Any) -> None:
    """Runs until it ends or time is up; a process that hangs beyond the grace is killed by the kernel."""

    def stop(*_: Any) -> None:
        raise TimeUp

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, limit - time.monotonic()))
    try:
        run()
    except TimeUp:
        say("time is up")
    except DeviceLost as lost:
        say(str(lost))
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, GRACE_S - 2)


def _measure(
    work: Workspace, sweep: str, subjects: list[Subject], results: Results, recorded: dict[str, Result] | None,
    options: argparse.Namespace, limit: float,
) -> None:  # fmt: skip
    """recorded: bests to time again; None: search."""
    with work.bench(sweep) as plain:
        bench = Metered(plain)
        # torch workers take seconds to start; they do so while the first shape is searched
        _prestart(plain)
        if not results.ceilings:
            from benchmarks.streaming import ceilings

            results.set_ceilings(ceilings())
            say("streaming: " + ", ".join(
                f"{name} {value['bytes_s'] / 1e12:.2f} TB/s" for name, value in results.ceilings.items()
                if isinstance(value, dict)
            ))  # fmt: skip
        data = Data(work)
        tuner = work.tuner(bench, sweep)
        tuner._references = data.references
        try:
            for place, subject in enumerate(subjects, start=1):
                if not _due(results.rows.get(subject.name), options):
                    continue
                if limit - time.monotonic() < LAST_START_S:
                    say(f"stopped before {subject.name}")
                    break
                if recorded is None:
                    result = _subject(work, sweep, subject, tuner, bench, data, options)
                elif (found := recorded.get(subject.name)) is not None and found.ok:
                    result = _retimed(work, sweep, subject, found, bench, data, options)
                else:
                    continue
                results.add(result)
                say(f"[{place}/{len(subjects)}] {result.line()}")
        finally:
            preparer = getattr(tuner, "preparer", None)
            if preparer is not None:
                preparer.close()
        work.store.fold()


def _due(result: Result | None, options: argparse.Namespace) -> bool:
    """Whether a subject has to be measured: not yet done, failed, without torch.compile, or asked for again."""
    return result is None or not result.ok or options.again or (options.tcompile and _wants_tcompile(result))


def _prestart(bench: Bench) -> None:
    from emmy.bench.client import Worker

    while len(bench._confirm) < PROCESSES:
        bench._confirm.append(Worker(bench.device, bench.cache_dir, torch=True, threads=bench.caps.units))
    for worker in bench._confirm:
        worker.start()


def _wants_tcompile(result: Result) -> bool:
    return result.name in {s.name for s in GROUPS["rows"]} and result.tcompile_us is None


def _subject(
    work: Workspace, sweep: str, subject: Subject, tuner: Tuner, bench: Metered, data: Data,
    options: argparse.Namespace,
) -> Result:  # fmt: skip
    from emmy.pipeline import open_job
    from emmy.search.pick import Pick

    result = Result(subject.name, patience=work.settings.patience)
    started = time.perf_counter()
    try:
        job = data.job = open_job(subject.target)
        for region in job.regions:
            tuner.references(region)
        result.open_s = time.perf_counter() - started
        bench.take()
        tuned = [tuner.tune(region, job.name if job.shape else "") for region in job.regions]
        result.tune_s = time.perf_counter() - started
        _search_facts(result, tuned, bench.take())
        if all(one.best is not None for one in tuned):
            picks = tuple(Pick(one.best, "evidence", one.us, "tuned") for one in tuned if one.best is not None)
            _timed(work, sweep, job, picks, bench, result, options.tcompile and _wants_tcompile(result))
        else:
            result.status, result.reason = "bench_fail", "; ".join(_why(one) for one in tuned)
    except DeviceLost:
        raise
    except Exception as error:
        # One shape must not lose the others; what failed is in the table.
        kind = "" if isinstance(error, EmmyError) else f"{type(error).__name__}: "
        result.status, result.reason = "error", f"{kind}{str(error).splitlines()[0] if str(error) else ''}"
        if options.debug:
            raise
    result.total_s = time.perf_counter() - started
    return result


def _retimed(
    work: Workspace, sweep: str, subject: Subject, recorded: Result, bench: Metered, data: Data,
    options: argparse.Namespace,
) -> Result:  # fmt: skip
    """A recorded best beside the references; how its search went stays as recorded."""
    from emmy.pipeline import open_job
    from emmy.search.pinned import Unmatched, pinned

    result = replace(recorded, emmy_us=None, reason="")
    try:
        job = data.job = open_job(subject.target)
        picks = []
        for region, knobs in zip(job.regions, recorded.knobs.split(" | "), strict=True):
            data.references(region)
            pick = pinned(work.picker(sweep), region, whole(knobs))
            if isinstance(pick, Unmatched):
                raise ValueError(str(pick))
            picks.append(pick)
        _timed(work, sweep, job, tuple(picks), bench, result, options.tcompile and recorded.tcompile_us is not None)
    except Exception as error:
        result.status, result.reason = "error", f"{type(error).__name__}: {error}"
    return result


def whole(label: str) -> KnobMap:
    """The knob map of a label, in which families that are off are left out; those of a cut's parts stay open."""
    from emmy.schedule.knobs import FAMILY_NAMES, KnobMap

    given = label.split()
    said = {part.partition("=")[0] for part in given}
    off = [f"{name}=" for name in FAMILY_NAMES if name not in said and "FUSE" not in said]
    return KnobMap.parse(",".join([*given, *off]))


def _why(tuned: Tuned) -> str:
    statuses = ", ".join(f"{count} {status}" for status, count in tuned.statuses.items())
    return tuned.skipped or f"nothing ran: {statuses}"


def _search_facts(result: Result, tuned: list[Tuned], seconds: dict[str, float]) -> None:
    from emmy.search.variant import label_of

    result.live = sum(one.live for one in tuned)
    result.offered = sum(one.offered for one in tuned)
    for one in tuned:
        for status, count in one.statuses.items():
            result.statuses[str(status)] = result.statuses.get(str(status), 0) + count
    result.knobs = " | ".join(label_of(one.best.knobs) for one in tuned if one.best is not None)
    result.lane = "fm" if any(one.best is not None and one.best.lane == "fm" for one in tuned) else "std"
    result.screen_s = seconds.get("screen", 0.0)
    result.confirm_s = seconds.get("confirm", 0.0)
    search = sum(one.seconds for one in tuned)
    result.parent_s = max(0.0, search - sum(seconds.values()))


def _timed(
    work: Workspace, sweep: str, job: Job, picks: tuple[Pick, ...], bench: Metered, result: Result, tcompile: bool
) -> None:
    """The tuned best beside the references, interleaved, in the same processes."""
    from emmy.comparison import GREEDY, Candidate, compare
    from emmy.schedule.knobs import KnobMap

    row = Candidate(GREEDY, "greedy", KnobMap(), picks)
    backends = ("eager", "tcompile", "emmy") if tcompile else ("eager", "emmy")
    found = compare(job, work, bench, sweep, [row], backends, processes=PROCESSES, rounds=ROUNDS)  # type: ignore[arg-type]
    result.protocol, result.status, result.reason = found.protocol, found.greedy.status.value, found.greedy.reason
    result.emmy_us, result.low_us, result.high_us = found.greedy.us, found.greedy.low_us, found.greedy.high_us
    backends_us = found.backends
    result.eager_us, result.tcompile_us = backends_us.get("eager"), backends_us.get("tcompile")
    for label, reply in found.references.items():
        if not reply.ok:
            result.reason += f" {label}: {reply.error}"
    artefacts = [pick.variant.artefact for pick in picks]
    result.flops, result.bytes_min = sum(a.flops for a in artefacts), sum(a.bytes_min for a in artefacts)
    result.tensor = any(a.tensor for a in artefacts)
    if found.result is not None:
        own = found.result.replies[GREEDY]
        result.registers, result.spills = own.registers, own.spills
        result.sm_clock_mhz, result.throttle = own.sm_clock_mhz, own.throttle


def _export(work: Workspace, results: Results, text: str, out: Path | None) -> None:
    """Results, report, and the measurements as Parquet, into a folder that is brought home."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    facts = {"device": work.caps.name, "driver": work.caps.driver, "compiler": work.caps.compiler,
             "sweep": results.sweep, "ceilings": results.ceilings}  # fmt: skip
    content = facts | {"rows": [asdict(row) for row in results.rows.values()]}
    (out / "h200.json").write_text(json.dumps(content, indent=1))
    (out / "h200.txt").write_text(text + "\n")
    for table in ("measurement", "variant", "decision"):
        work.store.frame(table).write_parquet(out / f"{table}.parquet")
    if results.path.exists() and out.resolve() != results.path.parent.resolve():
        shutil.copy(results.path, out / results.path.name)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200", description=__doc__)
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="a bar (repeatable; default: all)")
    parser.add_argument("--kernel", default="", metavar="SUBSTR", help="only subjects with SUBSTR in their name")
    parser.add_argument("--minutes", type=float, default=9.0, help="the hard limit (default: 9)")
    parser.add_argument("--patience", type=int, help="as in emmy tune")
    parser.add_argument("--device", help="as in emmy tune")
    parser.add_argument("--clean", action="store_true", help="start over in a new sweep")
    parser.add_argument("--again", action="store_true", help="time subjects again that have a result")
    parser.add_argument("--tcompile", action="store_true", help="time torch.compile as well where a bar asks for it")
    parser.add_argument("--report", action="store_true", help="measure nothing, print what is there")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="print what FILE (h200.jsonl) holds")
    parser.add_argument("--retime", type=Path, metavar="FILE", help="time the bests of FILE again, without a search")
    parser.add_argument("--debug", action="store_true", help="a shape that fails ends the run with its traceback")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for results that are brought home")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(guarded(main))
