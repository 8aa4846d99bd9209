"""``emmy run --profile``: the program once more under Nsight Compute, emmy's kernels beside PyTorch's."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from emmy.pipeline import Job, Workspace
    from emmy.schedule.knobs import KnobMap


def profile_one(work: Workspace, job: Job, pin: KnobMap, folder: Path | None) -> int:
    """Profiles the greedy picks and eager PyTorch; prints the table and writes both files into ``folder``.

    Where counters cannot be read this says why and is no failure. Returns the exit code.
    """
    from emmy.bench.artefact import build_artefact
    from emmy.bench.jobs import Row
    from emmy.comparison import greedy_picks
    from emmy.eager import oracle_reference, torch_source
    from emmy.report import ncu
    from emmy.search.structure import program_plan
    from emmy.search.variant import checked_sizes

    try:
        tool = ncu.find_ncu()
    except ncu.Unavailable as reason:
        click.echo(f"profile skipped: {reason}")
        return 0
    picks = greedy_picks(job, work.picker(), pin)
    plan = program_plan(job.program, [pick.variant for pick in picks])
    artefact = build_artefact(plan, work.caps.language, extra_sizes=checked_sizes(job.traced.region))
    lane = "fm" if any(pick.variant.lane == "fm" for pick in picks) else "std"
    row = Row("emmy", artefact, lane)
    refs = oracle_reference(job, plan, work.folder)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "job.json"
        content = {"row": row.to_json(), "refs": refs.to_json(), "source": asdict(torch_source(job))}
        path.write_text(json.dumps(content), encoding="utf-8")
        program = [sys.executable, "-m", "emmy.bench.profiled", str(path)]
        try:
            kernels = ncu.profile(program, [kernel.name for kernel in artefact.kernels], ncu=tool)
        except ncu.Unavailable as reason:
            click.echo(f"profile skipped: {reason}")
            return 0
    click.echo(f"{job.name} on {work.caps.name} under ncu, caches cold, clocks as they are")
    click.echo(ncu.text(kernels))
    for written in ncu.write(kernels, folder or work.folder / "profile"):
        click.echo(f"wrote {written}", err=True)
    return 0
