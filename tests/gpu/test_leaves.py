"""Every tier on the GPU against the float64 oracle: sampled leaves and pins, static and symbolic, at awkward sizes.

Sizes divide nothing, or M, N or K is one or zero. Outputs start as NaN between guard pages, so that what is not written
shows as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emmy.bench.client import Worker
from emmy.bench.jobs import Reply
from emmy.device.base import Capabilities
from emmy.schedule.knobs import KnobMap
from tests.gpu.cases import CASES
from tests.gpu.farm import Farm

pytestmark = pytest.mark.gpu

DEADLINES_S = {"first launch": 8.0, "launch": 8.0}


@pytest.fixture(scope="module")
def farm(
    request: pytest.FixtureRequest, caps: Capabilities, folder: Path, cores: int, worker: Worker
) -> Iterator[Farm]:
    """Started on every selected case at once; the tests take what is ready in the same order."""
    farm = Farm(caps, folder, cores)
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names = [name for name in CASES if name in wanted]
    for name in names:
        farm.survey(name, CASES[name].region, CASES[name].leaves, CASES[name].pins)
    for name in names:
        farm.build(name)
    yield farm
    farm.close()


@pytest.mark.parametrize("name", CASES)
def test_leaves_equal_the_oracle(name: str, farm: Farm, worker: Worker) -> None:
    survey = farm.surveys[name].result()
    assert not survey.error, survey.error
    bad = [f"  pin: {text}" for text in survey.missing]
    bad += [f"  {tier}: offers nothing" for tier in CASES[name].tiers if not survey.offered.get(tier)]
    checked = 0
    for built in farm.built(name):
        if built.row is None:
            bad.append(f"  {built.tier} {_short(built.knobs)}: {built.error}")
            continue
        job = {"job": "qualify", "row": built.row.to_json(), "refs": survey.refs.to_json()}
        outcome = worker.submit(job, DEADLINES_S)
        reply = Reply.from_json(outcome.reply) if outcome.reply else Reply(outcome.status, outcome.error)
        checked += 1
        if not reply.ok:
            bad.append(f"  {built.tier} {_short(built.knobs)}: {reply.status}: {reply.error[:300]}")
    assert not bad, f"{len(bad)} bad, {checked} checked\n" + "\n".join(bad)
    assert checked, f"nothing ran: {survey.offered}"


def _short(text: str) -> str:
    import json

    return str(KnobMap.parse({k: v for k, v in json.loads(text).items() if v not in ("", False)}))
