"""Content keys: everything that decides a number is in them, and nothing is dropped silently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.ab import ab
from tasks.keys import SweepRun, code_version, content_key, content_policy, results_of
from tasks.tune import tune

RUN = SweepRun("20261130-1", "model-cpu", "d1", "c1", "code1", 50, 0.15, True, False, "", "p1", "{}")


@pytest.mark.parametrize(
    "changed",
    [
        {"sweep": "20261130-2"}, {"device": "NVIDIA H200"}, {"driver": "d2"}, {"compiler": "c2"}, {"code": "code2"},
        {"patience": 12}, {"o3_tol": 0.1}, {"o1": False}, {"fast_math": True}, {"pins": "TILE=n8x8"}, {"prior": "p2"},
        {"rules": "{1}"},
    ],
)  # fmt: skip
def test_every_part_of_a_run_is_in_the_key(changed: dict[str, Any]) -> None:
    before, after = RUN.to_json(), replace(RUN, **changed).to_json()
    assert content_key("tune", before, "a") != content_key("tune", after, "a")


def test_the_rules_of_the_verdict_do_not_repeat_a_search() -> None:
    def keys(task: Any, **inputs: Any) -> set[str]:
        runs = (RUN.to_json(), replace(RUN, rules="{1}").to_json())
        return {task.cache_policy.compute_key(SimpleNamespace(), inputs | {"run": run}, {}) for run in runs}

    assert len(keys(tune, shape="quick.matmul.256")) == 1
    assert len(keys(ab, shape="quick.matmul.256", lane="std", goldens=[], tuned={"knobs": {}})) == 2


def test_step_shape_and_content_are_in_the_key() -> None:
    run = RUN.to_json()
    keys = {
        content_key("tune", run, "a"), content_key("ab", run, "a"), content_key("tune", run, "b"),
        content_key("tune", run, "a", lane="fm"),
    }  # fmt: skip
    assert len(keys) == 4
    assert content_key("tune", run, "a") == content_key("tune", dict(reversed(run.items())), "a")


def test_what_is_not_json_is_an_error_and_not_dropped() -> None:
    with pytest.raises(TypeError):
        content_key("tune", RUN.to_json(), "a", goldens=[object()])
    policy = content_policy("tune", lambda inputs: {"extra": inputs["extra"]})
    with pytest.raises(TypeError):
        policy.compute_key(SimpleNamespace(), {"run": RUN.to_json(), "shape": "a", "extra": {1, 2}}, {})  # type: ignore[arg-type]


def test_a_task_without_an_input_of_its_key_is_an_error() -> None:
    assert tune.cache_policy is not None
    with pytest.raises(KeyError):
        tune.cache_policy.compute_key(SimpleNamespace(), {"shape": "quick.matmul.256"}, {})  # type: ignore[arg-type,union-attr]


def test_results_of_a_shape_are_found_by_its_whole_name(tmp_path: Path) -> None:
    run = RUN.to_json()
    for shape in ("quick.matmul.256", "quick.matmul.256.dynM"):
        for step in ("tune", "ab"):
            (tmp_path / content_key(step, run, shape)).write_text("{}")
    assert [path.name.split("--")[:2] for path in results_of("quick.matmul.256", tmp_path)] == [
        ["ab", "quick.matmul.256"],
        ["tune", "quick.matmul.256"],
    ]


def test_measuring_tasks_persist_json_and_reports_are_not_cached() -> None:
    from prefect.cache_policies import NO_CACHE

    from tasks.ab import reconfirm
    from tasks.categorise import categorise_shape
    from tasks.propose import propose
    from tasks.report import write_report
    from tasks.sweep import open_sweep

    for task in (tune, ab, reconfirm, categorise_shape, open_sweep):
        assert (task.persist_result, task.result_serializer) == (True, "json"), task.name
    for task in (propose, write_report):
        assert task.cache_policy is NO_CACHE, task.name


def test_the_code_version_covers_what_measures_and_not_what_prints() -> None:
    from emmy.config import project_root
    from tasks.keys import _NOT_MEASURING

    assert len(code_version()) == 16
    assert all((project_root() / folder).is_dir() for folder in _NOT_MEASURING)
