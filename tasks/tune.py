"""Step: tune one shape."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from prefect import task

from emmy.errors import EmmyError
from emmy.evaluate.table import number
from emmy.goldens.dataset import shape as golden_shape
from emmy.search.tuner import Tuned
from emmy.search.variant import label_of, record_knobs
from tasks.keys import content_policy
from tasks.session import current


class NothingRan(EmmyError):
    """No variant of a shape ended well, so there is nothing to compare."""


@task(
    name="tune",
    task_run_name="tune {shape}",
    cache_policy=content_policy(
        "tune", lambda inputs: {"snippet": golden_shape(inputs["shape"]).snippet()}, without=("rules",)
    ),
    persist_result=True,
    result_serializer="json",
    tags=["measures"],
)
def tune(shape: str, run: Mapping[str, Any]) -> dict[str, Any]:
    """How the search of the shape ended. Raises NothingRan, and what tracing and lowering raise."""
    session = current()
    session.start("tune", shape)
    started = perf_counter()
    try:
        (region,) = session.job(shape).regions
        tuned = session.tuner().tune(region, shape)
        if tuned.best is None:
            found = tuned.skipped or ", ".join(f"{count} {status}" for status, count in tuned.statuses.items())
            raise NothingRan(f"{shape}: no variant ran", found=found or "no variant", hint="see emmy eval failures")
    except BaseException as error:
        session.reporter.failed(error)
        raise
    facts = summary(tuned) | {"seconds": perf_counter() - started}
    session.reporter.done(
        f"best {number(facts['us'])} µs  {label_of(tuned.best.knobs)}  "
        f"({facts['ok']} variants{', ' + str(facts['failed']) + ' failed' if facts['failed'] else ''})"
    )
    return facts


def summary(tuned: Tuned) -> dict[str, Any]:
    """The facts of a search that the later steps and the report need."""
    return {
        "shape": tuned.shape,
        "kernel": tuned.region.name,
        "knobs": record_knobs(tuned.best.knobs) if tuned.best else {},
        "us": tuned.us,
        "live": tuned.live,
        "known": tuned.known,
        "offered": tuned.offered,
        "ok": tuned.ok,
        "failed": tuned.failed,
        "pruned": tuned.pruned,
        "prior": tuned.prior,
        "children": [summary(child) for child in tuned.children],
    }
