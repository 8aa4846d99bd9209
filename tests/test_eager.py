"""Reference data of a program, shared by the search of its only region and the comparison of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emmy.eager import oracle_reference, shared_reference
from emmy.pipeline import open_job
from emmy.schedule.space import enumerate_space
from emmy.target import Target, TargetKind
from tests.passes.devices import CPU


def test_one_computation_serves_search_and_comparison(tmp_path: Path) -> None:
    job = open_job(Target(TargetKind.SNIPPET, "torch.softmax(torch.randn(6, 40), -1)"))
    region = job.regions[0]
    shared = shared_reference(job, region, tmp_path)
    assert shared is not None
    folders = set((tmp_path / "refs").iterdir())
    plan = enumerate_space(region, CPU).lower(0)
    assert oracle_reference(job, plan, tmp_path) == shared
    assert set((tmp_path / "refs").iterdir()) == folders
    (name,) = shared.cases[0].outputs
    assert name == region.outputs[0].tensor.name
    np.testing.assert_allclose(np.load(shared.cases[0].outputs[name]).sum(-1), 1.0)


def test_a_region_of_a_larger_program_has_data_of_its_own(tmp_path: Path) -> None:
    code = "x0 = torch.randn(6, 40); x1 = torch.randn(40, 40); (torch.softmax(x0, -1), F.silu(x1))"
    job = open_job(Target(TargetKind.SNIPPET, code))
    assert len(job.regions) > 1
    assert shared_reference(job, job.regions[0], tmp_path) is None
