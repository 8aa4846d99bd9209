"""The whole cycle on a model of a device: sweep, propose, apply, sweep again; failures, retries and resumed runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emmy import config
from emmy.errors import InputError
from emmy.goldens.patch import Proposal
from emmy.goldens.schema import load_goldens
from emmy.pipeline import open_job, open_workspace
from emmy.search.realise import realise
from emmy.search.variant import Variant, record_knobs
from emmy.target import Target, TargetKind
from tests.flows.model_bench import CAPS, ModelBench

pytestmark = pytest.mark.usefixtures("results", "goldens")

MATMULS = ("quick.matmul.256", "quick.matmul.512", "quick.matmul.64x512x256", "quick.matmul.256.dynM")


def sweep(**parameters: Any) -> dict[str, Any]:
    from flows.golden_sweep import golden_sweep

    return golden_sweep(**({"kernel": "quick.matmul", "patience": 3} | parameters))


def verdicts(result: dict[str, Any]) -> dict[str, str]:
    return {line.split()[0]: line.split()[1] for line in result["outcomes"]}


def unmeasured(name: str, count: int) -> list[Variant]:
    """Leaves of a shape that no search of this test has measured."""
    work = open_workspace(config.load())
    region = open_job(Target(TargetKind.GOLDEN, name)).regions[0]
    space = work.picker().space(region)
    known = set(work.store.measurements()["plan_digest"])
    found: list[Variant] = []
    for leaf in range(0, len(space), 97):
        variant = Variant(region, CAPS, space.knobs(leaf), space.lower(leaf))
        if variant.digest not in known:
            found.append(variant)
        if len(found) == count:
            return found
    raise AssertionError(f"{name} has no {count} leaves that were not measured")


def deployed(name: str) -> Variant:
    work = open_workspace(config.load())
    return work.picker().greedy(open_job(Target(TargetKind.GOLDEN, name)).regions[0]).variant


def plant(path: Path, name: str, variant: Variant | None, us: float) -> None:
    """Puts other knobs into the entry of a shape."""
    lines = path.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if f"name: {name}\n" in line)
    knobs = next(number for number in range(place, len(lines)) if "knobs:" in lines[number])
    if variant is not None:
        text = ", ".join(f"{key}: {json.dumps(value) if value == '' else value}" for key, value in
                         record_knobs(variant.knobs).items())  # fmt: skip
    else:
        text = "FUSE: '', TILE: a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2, REDUCE: '', STAGE: '', WSPEC: '', RASTER: ''"
    lines[knobs] = f"    knobs: {{{text}}}\n"
    lines[knobs + 1] = f"    emmy_us: {us}\n"
    path.write_text("".join(lines))


def test_every_category_is_found_proposed_and_applied(bench: ModelBench, goldens: Path, tmp_path: Path) -> None:
    """Plants a slower, an equal, a faster and a foreign golden; sweeps; applies; sweeps again."""
    first = sweep(apply=True)
    golden_file = goldens / "model-cpu.yaml"
    assert verdicts(first) == dict.fromkeys(MATMULS, "new")
    assert [entry.name for entry in load_goldens(golden_file).entries] == list(MATMULS)

    slower, equal, faster, foreign = MATMULS
    best = {name: bench.us(deployed(name).artefact) for name in MATMULS}
    for name, factor in ((slower, 1.5), (equal, 1.001), (faster, 0.7)):
        (other,) = unmeasured(name, 1)
        bench.planted[other.digest] = best[name] * factor
        plant(golden_file, name, other, best[name] * factor)
    plant(golden_file, foreign, None, 5.0)
    before = golden_file.read_text()

    second = sweep()
    assert verdicts(second) == {slower: "better", equal: "same", faster: "worse", foreign: "unresolved"}
    assert golden_file.read_text() == before, "only apply writes the golden file"
    proposal = json.loads(Path(second["proposal"]).read_text())
    assert [(one["op"], one["name"]) for one in proposal["operations"]] == [("replace", slower), ("add", equal)]
    assert all(one["reason"] for one in proposal["operations"])
    report = " ".join((tmp_path / "plans" / "golden-sweep-model-cpu-findings.md").read_text().split())
    assert "## Finding 1 — quick.matmul.64x512x256 stays 42." in report
    assert "Not measured this sweep" in report
    assert "was not benched: unreproducible pin" in report
    assert f"re-runs in fresh processes: {slower} 2×" in report

    Proposal.from_json(Path(second["proposal"]).read_text()).apply()
    entries = load_goldens(golden_file).entries
    assert [entry.name for entry in entries] == [slower, equal, equal, faster, foreign]
    assert entries[0].knobs == deployed(slower).knobs

    third = sweep()
    assert verdicts(third) == {slower: "same", equal: "same", faster: "worse", foreign: "unresolved"}
    assert third["changes"] == 0


def test_a_patch_is_refused_when_the_golden_file_changed(bench: ModelBench, goldens: Path) -> None:
    from flows.apply_patch import apply_patch

    result = sweep(kernel="quick.matmul.512")
    golden_file = goldens / "model-cpu.yaml"
    golden_file.write_text("device: model-cpu\nmachines: any\ngoldens: []\n")
    with pytest.raises(InputError, match="it changed since"):
        apply_patch(result["proposal"], approve=True)
    assert golden_file.read_text() == "device: model-cpu\nmachines: any\ngoldens: []\n"
    golden_file.unlink()
    assert apply_patch(result["proposal"], approve=True) == str(golden_file)


def test_a_second_run_measures_nothing_and_opens_no_bench(bench: ModelBench) -> None:
    first = sweep()
    asked, opened = len(bench.asked), bench.opened
    second = sweep()
    assert (len(bench.asked), bench.opened) == (asked, opened)
    assert second["sweep"] == first["sweep"]
    assert second["outcomes"] == first["outcomes"]


def test_clean_starts_a_cold_sweep(bench: ModelBench) -> None:
    first = sweep(kernel="quick.matmul.512")
    asked = [what for what, _ in bench.asked].count("screen")
    second = sweep(kernel="quick.matmul.512", clean=True)
    assert second["sweep"] != first["sweep"]
    assert [what for what, _ in bench.asked].count("screen") == 2 * asked


def test_a_retry_runs_only_the_shape_that_failed_and_keeps_its_sweep(bench: ModelBench) -> None:
    """Every variant of a shape fails to compile, as without a linker; then the linker is there."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterStateName
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.flow_engine import run_flow
    from prefect.states import Scheduled

    from flows.golden_sweep import golden_sweep
    from flows.results import Incomplete

    broken = open_job(Target(TargetKind.GOLDEN, "quick.matmul.512")).regions[0].name
    bench.broken.add(broken)
    with pytest.raises(Incomplete, match=r"1 of 4 shapes failed: quick\.matmul\.512") as failure:
        sweep(clean=True)
    result = failure.value.result
    assert verdicts(result)["quick.matmul.512"] == "failed"
    assert list(verdicts(result).values()).count("new") == 3

    bench.broken.clear()
    bench.asked.clear()
    with get_client(sync_client=True) as client:
        failed = FlowRunFilter(state={"name": FlowRunFilterStateName(any_=["Failed"])})  # type: ignore[arg-type]
        run = client.read_flow_runs(flow_run_filter=failed, sort=FlowRunSort.START_TIME_DESC, limit=1)[0]
        client.set_flow_run_state(run.id, Scheduled(message="retry"), force=True)
        run = client.read_flow_run(run.id)
    again = run_flow(golden_sweep, flow_run=run, parameters=run.parameters)
    assert {name for _, name in bench.asked} == {broken}
    assert again["sweep"] == result["sweep"], "clean=True opened a sweep once; the retry goes on with it"
    assert list(verdicts(again).values()) == ["new"] * 4


def test_forgetting_a_shape_runs_only_its_tasks_again(bench: ModelBench, results: Path) -> None:
    from flows.command import forget

    sweep()
    bench.asked.clear()
    assert forget("quick.matmul.512") == 3
    result = sweep()
    assert {what for what, _ in bench.asked} == {"confirm"}, "the search's own rows are in the store"
    assert len(bench.asked) == 1
    assert list(verdicts(result).values()) == ["new"] * 4


def test_a_second_sweep_on_the_same_store_is_refused(bench: ModelBench, tmp_path: Path) -> None:
    from emmy.errors import StoreError
    from flows.lock import sweep_lock

    with sweep_lock(config.load().work_dir), pytest.raises(StoreError, match=r"another sweep runs .* process \d+"):
        sweep()
    assert not bench.asked


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"group": "quik"}, "did you mean quick"),
        ({"kernel": "no such"}, "nearest"),
        ({"patience": 0}, "patience"),
        ({"reconfirm_runs": -1}, "reconfirm"),
        ({"plans_dir": "/proc/plans"}, "--plans-dir: found /proc/plans: no file can be made in /proc"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    bench: ModelBench, parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        sweep(**parameters)
    assert not bench.opened


def test_artefacts_appear_in_every_run(bench: ModelBench) -> None:
    from prefect.client.orchestration import get_client

    from tasks import progress, propose, report

    for _ in range(2):
        result = sweep(kernel="quick.matmul.512")
    with get_client(sync_client=True) as client:
        for key in (report.TABLE_KEY, report.REPORT_KEY, propose.KEY, progress.KEY):
            latest = client.request("GET", "/artifacts/{key}/latest", path_params={"key": key}).json()
            assert latest["data"] is not None, key
        text = client.request("GET", "/artifacts/{key}/latest", path_params={"key": report.REPORT_KEY}).json()["data"]
    assert result["sweep"] in text


def test_a_foreign_golden_names_the_rule_that_refused_it() -> None:
    """What `unresolved` above rests on: the planted warp tile is no schedule of a CPU."""
    from emmy.errors import Refused
    from emmy.schedule.knobs import KnobMap

    region = open_job(Target(TargetKind.GOLDEN, "quick.matmul.256.dynM")).regions[0]
    knobs = KnobMap.parse({"FUSE": "", "TILE": "a:mma_m16n8k16_f16_f32/w2x4/f4x2/k2"})
    with pytest.raises(Refused):
        realise(region, CAPS, knobs)
