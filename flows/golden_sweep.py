"""The golden sweep: tune → A/B per shape → reconfirm → categorise → patch proposal → report.

``python -m flows.golden_sweep --group quick`` runs it here and now; the deployment ``golden-sweep`` on a schedule.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, unmapped
from prefect.runtime import flow_run
from prefect.task_runners import ThreadPoolTaskRunner

from emmy import config
from flows.lock import sweep_lock
from flows.plan import Plan, plan_of
from flows.results import Incomplete, Results, settle
from tasks.ab import ab, reconfirm
from tasks.apply import apply_proposal
from tasks.categorise import categorise_shape
from tasks.propose import propose
from tasks.report import write_report
from tasks.session import Session, open_session
from tasks.sweep import open_sweep
from tasks.tune import tune

ONE_AT_A_TIME: Any = ThreadPoolTaskRunner(max_workers=1)
"""Two timings on one device disturb each other."""


@flow(name="golden-sweep", task_runner=ONE_AT_A_TIME)
def golden_sweep(
    group: str | None = None,
    kernel: str | None = None,
    patience: int | None = None,
    clean: bool = False,
    reconfirm_runs: int = 2,
    device: str | None = None,
    apply: bool = False,
    plans_dir: str | None = None,
) -> dict[str, Any]:
    """One sweep over the golden shapes of a device; returns the tally and where report and patch are.

    group: of the dataset (default: quick on a CPU device, all others on a GPU). kernel: only shapes with this in their
    name. patience: live attempts without a new best. clean: a new, cold sweep instead of the device's current one.
    reconfirm_runs: times a win has to come out again. apply: write the golden file without asking. plans_dir: where the
    report goes (default: plans/). Raises Incomplete after the report when a shape failed.
    """
    plan = plan_of(group, kernel, patience, reconfirm_runs, device, plans_dir)
    with sweep_lock(plan.work.folder), open_session(plan.work, plan.thresholds, plan.rounds) as session:
        result = run_steps(plan, session, clean, apply, plans_dir or str(config.plans_dir()))
    if result["failed"]:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in result["failed"].items())
        raise Incomplete(f"{len(result['failed'])} of {len(plan.lanes)} shapes failed: {reasons}", result)
    return result


def run_steps(plan: Plan, session: Session, clean: bool, apply: bool, plans_dir: str) -> dict[str, Any]:
    """The six steps. A shape that fails in one of them is left out of the next; the others go on."""
    session.sweep = open_sweep(str(flow_run.id), plan.work.caps.name, clean)["sweep"]
    found, run = Results(plan, session), unmapped(plan.run(session.sweep))
    session.reporter.plan(len(plan.names), len(plan.lanes))

    found.tuned = settle(tune.map(list(plan.names), run=run), plan.names, found.failed)
    found.tell_known("tune", found.tuned)

    lanes = [lane for lane in plan.lanes if lane.shape in found.tuned]
    found.first = settle(ab.map(**found.inputs(lanes), tuned=found.searches(lanes), run=run), lanes, found.failed)
    found.tell_known("ab", found.first)

    for number in range(1, plan.thresholds.reconfirm + 1):
        lanes = found.doubted(number)
        session.fresh_processes()
        repeated = reconfirm.map(**found.inputs(lanes), first=found.firsts(lanes), number=number, run=run)
        found.repeat(settle(repeated, lanes, found.failed))

    lanes = list(found.first)
    judged = categorise_shape.map(
        **found.inputs(lanes), first=found.firsts(lanes), again=found.repeats(lanes), run=run
    )  # fmt: skip
    found.verdicts = settle(judged, lanes, found.failed)

    patch = propose(found.operations(), str(found.folder))
    if apply and patch["count"]:
        apply_proposal(patch["json"])

    written = write_report(found.head(patch), found.outcomes(), str(found.folder), plans_dir)
    return found.close(patch, written)


if __name__ == "__main__":
    import sys

    from flows.command import main

    sys.exit(main(golden_sweep))
