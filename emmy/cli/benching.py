"""What ``emmy run`` shows: the error against PyTorch, or the tables of a bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from emmy.comparison import Comparison, Timed, candidates, compare, greedy_picks, weakest
from emmy.eager import eager_reference
from emmy.evaluate.table import number, table
from emmy.goldens.schema import goldens_by_name
from emmy.pipeline import Job, Workspace, open_job
from emmy.schedule.knobs import FAMILY_NAMES, KnobMap
from emmy.search.structure import program_plan
from emmy.search.variant import label_of
from emmy.target import Target

if TYPE_CHECKING:
    from emmy.bench.protocol import Bench


def check_one(work: Workspace, job: Job, bench: Bench, pin: KnobMap) -> int:
    """Compiles the greedy picks, runs the program once and compares it with eager PyTorch. Returns the exit code."""
    from emmy.bench.artefact import build_artefact
    from emmy.search.variant import checked_sizes

    picks = greedy_picks(job, work.picker(), pin)
    plan = program_plan(job.program, [pick.variant for pick in picks])
    artefact = build_artefact(plan, work.caps.language, extra_sizes=checked_sizes(job.traced.region))
    lane = "fm" if any(pick.variant.lane == "fm" for pick in picks) else "std"
    for pick in picks:
        decided = label_of(pick.variant.knobs) or "(all off)"
        click.echo(f"{pick.variant.region.name}  [{pick.source}]  {decided}")
        if pick.source == "uninformed":
            click.echo(f"  {pick.about}")
    reply = bench.qualify(artefact, eager_reference(job, plan, work.folder), "O3", lane)
    sizes = ", ".join("hint" if not case.symbols else _sizes(dict(case.symbols)) for case in artefact.cases)
    if not reply.ok:
        click.echo(f"{job.name}: {reply.status.value}: {reply.error}")
        return 1
    at = f" (checked at {sizes})" if job.symbols else ""
    click.echo(f"{job.name}: relative error against eager PyTorch {reply.rel_error:.2e}{at}")
    return 0


def _sizes(symbols: dict[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in symbols.items())


def bench_targets(work: Workspace, targets: Sequence[Target], bench: Bench, sweep: str) -> int:
    """``tune --bench``: the comparison of each target, after the search. Returns the exit code."""
    code = 0
    for target in targets:
        comparison = bench_one(work, open_job(target), bench, sweep)
        code = code or (0 if comparison.ok else 1)
    return code


def bench_one(
    work: Workspace,
    job: Job,
    bench: Bench,
    sweep: str,
    ab: Sequence[tuple[str, KnobMap]] = (),
    pin: KnobMap | None = None,
    backends: Sequence[str] = ("eager", "emmy"),
    *,
    quiet: bool = False,
) -> Comparison:
    """Times greedy, the recorded goldens of this device, the ``--ab`` rows and PyTorch; prints both tables."""
    goldens = goldens_by_name(job.name, work.caps.name) if job.shape is not None else ()
    rows = candidates(job, work.picker(), goldens, ab, pin)
    comparison = compare(job, work, bench, sweep, rows, backends)
    if not quiet:
        click.echo(backend_table(comparison))
        click.echo()
        click.echo(kernel_table(comparison))
    return comparison


def backend_table(comparison: Comparison) -> str:
    """``Backend … vs Eager``: eager / backend, above 1 is faster than eager."""
    backends = comparison.backends
    eager = backends.get("eager")
    lines = []
    for label, title in (("eager", "Eager PyTorch"), ("tcompile", "torch.compile"), ("emmy", "emmy")):
        if label in backends:
            us = backends[label]
            lines.append((title, number(us), f"{eager / us:.2f}x" if eager and us else "-"))
    text = f"{comparison.name} on {comparison.device}, O3, {comparison.protocol}"
    if comparison.symbols:
        text += (
            "\nbenched at " + ", ".join(f"{n}={hint}" for n, hint in comparison.symbols.items()) + " (symbolic hint)"
        )
    failed = [
        f"! {label}: {reply.status.value}: {reply.error}"
        for label, reply in comparison.references.items()
        if not reply.ok
    ]
    return "\n".join([text, table(("Backend", "us", "vs Eager"), lines, right=(1, 2)), *failed])


def kernel_table(comparison: Comparison) -> str:
    """One row a candidate: knobs by family, latency, and greedy/row (below 1: greedy is the faster one)."""
    rows = (comparison.greedy, *comparison.pinned)
    records = [_columns(row) for row in rows]
    families = [name for name in FAMILY_NAMES if any(name in record for record in records)]
    header = ("kernel", "us", "low", "high", "greedy/row", *families, "status")
    lines = []
    for row, record in zip(rows, records, strict=True):
        ratio = (
            comparison.greedy.us / row.us if comparison.greedy.us and row.us and row is not comparison.greedy else None
        )
        name = _title(comparison, row)
        lines.append(
            (
                name,
                number(row.us),
                number(row.low_us),
                number(row.high_us),
                "-" if ratio is None else f"{ratio:.3f}",
                *(record.get(name, "") for name in families),
                row.status.value,
            )
        )
    notes = [f"! {row.candidate.label}: {_note(row)}" for row in rows if not row.ok]
    return "\n".join([table(header, lines, right=(1, 2, 3, 4)), *notes])


def _title(comparison: Comparison, row: Timed) -> str:
    if row.candidate.origin != "greedy":
        return row.candidate.label
    return f"greedy {comparison.kernel} [{row.candidate.lane}] ({weakest(row.candidate.picks)})"


def _note(row: Timed) -> str:
    return row.reason + (", NOT benched" if row.status == "pin_unmatched" else "")


def _columns(row: Timed) -> dict[str, str]:
    """The realised value of each family; of a cut or of several kernels, each step's under its name."""
    picks = row.candidate.picks
    found: dict[str, list[str]] = {}
    for pick in picks:
        prefix = f"{pick.variant.region.name}:" if len(picks) > 1 else ""
        for name, value in pick.variant.knobs.items():
            family, _, step = name.partition("@")
            if str(value):
                found.setdefault(family, []).append(f"{prefix}{step + ':' if step else ''}{value}")
    return {family: " ".join(values) for family, values in found.items()}
