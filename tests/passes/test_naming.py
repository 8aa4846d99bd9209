"""Tensors and sizes may be called what a kernel calls its own things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emmy.ir.nest import Output, Region, region_key, verify
from emmy.ir.nest_interp import run_region
from emmy.passes.naming import _renamed, safe
from emmy.schedule.space import enumerate_space
from tests.passes.devices import CPU
from tests.passes.test_lower_scalar import interpret, matmul, random_inputs


def called(region: Region, names: dict[str, str]) -> Region:
    """``region`` with tensors under other names."""
    comps = tuple(replace(c, body=tuple(_renamed(e, names) for e in c.body)) for c in region.comps)
    inputs = tuple(replace(t, name=names.get(t.name, t.name)) for t in region.inputs)
    outputs = tuple(
        Output(replace(o.tensor, name=names.get(o.tensor.name, o.tensor.name)), o.source) for o in region.outputs
    )
    return replace(region, inputs=inputs, comps=comps, outputs=outputs)


@pytest.mark.parametrize("names", [{"x0": "acc_0", "x1": "m0"}, {"x0": "kk", "x1": "bx"}, {"x0": "n0", "y": "total"}])
def test_plans_bind_the_users_names(names: dict[str, str]) -> None:
    region = called(matmul(12, 16, 8, bias=True), names)
    verify(region)
    space = enumerate_space(region, CPU)
    out = region.outputs[0].tensor.name
    inputs = random_inputs(region, {})
    want = run_region(region, inputs, {})[out]
    for leaf in range(0, len(space), max(1, len(space) // 6)):
        plan = space.lower(leaf)
        assert [t.name for t in plan.inputs] == [t.name for t in region.inputs]
        np.testing.assert_allclose(interpret(plan, inputs, {})[out], want, rtol=1e-5, atol=1e-4)


def test_a_size_may_have_any_name() -> None:
    region = matmul("part", 16, 8)
    space = enumerate_space(region, CPU)
    plan = space.lower(0)
    assert plan.symbols == region.symbols
    sizes = {"part": 9}
    inputs = random_inputs(region, sizes)
    np.testing.assert_allclose(
        interpret(plan, inputs, sizes)["y"], run_region(region, inputs, sizes)["y"], rtol=1e-5, atol=1e-4
    )


def test_plain_names_stay_and_keys_do_not_change() -> None:
    region = matmul(4, 8, 4)
    renamed = safe(region)
    assert [t.name for t in renamed.region.inputs] == ["x0", "x1"]
    assert region_key(safe(called(region, {"x0": "acc"})).region) == region_key(region)
