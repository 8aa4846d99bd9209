"""Step: better, same, worse, unresolved or new, and what that changes in the golden file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from prefect import task

from emmy.bench.stats import Thresholds
from emmy.evaluate.ab import AbResult, rivals
from emmy.evaluate.verdict import Category, categorise, operations
from emmy.goldens.dataset import shape as golden_shape
from emmy.goldens.entry import GoldenConfig
from emmy.store.rows import Decision
from tasks.keys import content_policy
from tasks.session import current


def judged(first: Mapping[str, Any], again: Sequence[Mapping[str, Any]], thresholds: Thresholds) -> Category:
    """The category of an A/B and the runs that repeated it."""
    result = AbResult.from_json(first)
    looks = [AbResult.from_json(one).look for one in again]
    return categorise(
        result.shape,
        result.pick,
        result.goldens,
        result.look,
        floor=result.floor,
        reconfirmed=looks,
        thresholds=thresholds,
    )


@task(
    name="categorise",
    task_run_name="categorise {shape} {lane}",
    cache_policy=content_policy(
        "categorise",
        lambda inputs: {name: inputs[name] for name in ("lane", "first", "again", "goldens")},
    ),
    persist_result=True,
    result_serializer="json",
)
def categorise_shape(
    shape: str, lane: str, run: Mapping[str, Any], first: Mapping[str, Any], again: Sequence[Mapping[str, Any]],
    goldens: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """{category, operations}: ``emmy.evaluate.verdict.Category`` and the golden file's operations, as JSON."""
    session = current()
    result, category = AbResult.from_json(first), judged(first, again, session.thresholds)
    rows = [row.label for row in result.goldens]
    entries = dict(zip(rows, rivals([GoldenConfig.from_json(one) for one in goldens], lane), strict=True))
    reference = "cublas" if session.work.caps.language == "cuda" else "eager"
    changes = operations(category, golden_shape(shape), entries, reference)
    session.work.store.append(
        Decision(
            "verdict", session.sweep, result.device, result.region, shape, lane, "ab",
            json.dumps(dict(result.greedy.knobs), separators=(",", ":")), result.greedy.us, str(category.verdict),
            json.dumps({"reasons": category.reasons, "against": category.against}), _now(),
        )
    )  # fmt: skip
    return {"category": asdict(category), "operations": [change.to_json() for change in changes]}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
