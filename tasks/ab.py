"""Step: the A/B of one shape, and its repetition in fresh processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefect import task

from emmy.evaluate.ab import AbResult
from emmy.evaluate.table import number
from emmy.goldens.entry import GoldenConfig
from emmy.schedule.knobs import KnobMap
from tasks.keys import content_policy
from tasks.session import current


@task(
    name="ab",
    task_run_name="A/B {shape} {lane}",
    cache_policy=content_policy(
        "ab", lambda inputs: {"lane": inputs["lane"], "goldens": inputs["goldens"], "knobs": inputs["tuned"]["knobs"]}
    ),
    persist_result=True,
    result_serializer="json",
    tags=["measures"],
)
def ab(
    shape: str, lane: str, run: Mapping[str, Any], tuned: Mapping[str, Any], goldens: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """``AbResult`` of the greedy pick against the recorded goldens, as JSON."""
    return _compared("ab", shape, lane, goldens, tuned["knobs"])


@task(
    name="reconfirm",
    task_run_name="reconfirm {number} {shape} {lane}",
    cache_policy=content_policy(
        "reconfirm",
        lambda inputs: {"number": inputs["number"]} | {name: inputs["first"][name] for name in ("greedy", "pinned")},
    ),
    persist_result=True,
    result_serializer="json",
    tags=["measures"],
)
def reconfirm(
    shape: str, lane: str, number: int, run: Mapping[str, Any], first: Mapping[str, Any],
    goldens: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """The A/B once more, in processes that did not run the first one. ``first``: the A/B that is doubted."""
    return _compared("reconfirm", shape, lane, goldens, first["greedy"]["knobs"], number)


def _compared(
    step: str, shape: str, lane: str, goldens: Sequence[Mapping[str, Any]], greedy: Mapping[str, Any], number: int = 0
) -> dict[str, Any]:
    session = current()
    session.start(step, shape)
    entries = [GoldenConfig.from_json(entry) for entry in goldens]
    try:
        result = session.ab(shape, entries, lane, KnobMap.parse(greedy), number)
    except BaseException as error:
        session.reporter.failed(error)
        raise
    session.reporter.done(told(result))
    return result.to_json()


def told(result: AbResult) -> str:
    """``greedy 812.4 µs, golden 830.1 µs, greedy/golden 0.979 [0.971, 0.987] (n=6), eager 1204 µs``."""
    parts = [f"greedy {number(result.greedy.us)} µs" if result.greedy.ok else f"greedy {result.greedy.status}"]
    for row in result.pinned:
        ratio = result.look.ratios.get(row.label)
        timed = f"golden {number(row.us)} µs, greedy/golden {ratio}"
        parts.append(timed if ratio else f"golden {row.status}")
    if result.eager_us is not None:
        parts.append(f"eager {number(result.eager_us)} µs")
    return ", ".join(parts)
