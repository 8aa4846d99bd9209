"""The cases hold every tier × dtype × static or symbolic × even or awkward size; needs no GPU."""

from __future__ import annotations

import re
from functools import cache

import pytest

from emmy.device.cuda_targets import cuda_target
from emmy.priors.uninformed import UninformedPrior
from emmy.schedule.knobs import KnobMap
from emmy.schedule.space import enumerate_space
from emmy.search.pick import Picker
from emmy.search.pinned import Unmatched, pinned
from tests.gpu.cases import CASES, PINS

DTYPES = ("f32", "f16", "bf16")
SIZES = ("", ".ragged", ".dynM", ".dynM.ragged")
EDGES = ("m1", "n1", "k1", "one", "m0", "n0", "k0", "dynM.n1", "dynM.k1", "dynM.n0", "dynM.k0")
"""M, N or K is one or zero. A symbolic M is checked at 1 in every symbolic case."""


@cache
def offered(name: str) -> dict[str, int]:
    """Leaves by tier on the largest set of tiers there is."""
    space = enumerate_space(CASES[name].region(), cuda_target("sm_90a"), True)
    return {part.tier.name: len(part) for part in space.parts if len(part)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_every_tier_at_even_and_awkward_sizes(dtype: str, size: str) -> None:
    found = offered(f"matmul.{dtype}{size}")
    assert {"scalar", "cell"} <= set(found)
    assert ("warp" in found) == (dtype != "f32")
    for kind in ("softmax", "rms_norm", "sum", "silu_mul"):
        assert "row" in offered(f"{kind}.{dtype}{size}")
    assert "cell" in offered(f"silu_mul.{dtype}{size}"), "a map"
    assert "cell" in offered(f"sum.{dtype}{size}"), "a reduction"
    assert "attention" in offered(f"attention.{dtype}{size.replace('dynM', 'dyn')}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("edge", EDGES)
def test_ones_and_zeros(dtype: str, edge: str) -> None:
    found = offered(f"matmul.{dtype}.{edge}")
    assert "cell" in found
    if dtype != "f32" and edge in ("m1", "n1", "m0", "k0", "dynM.n1", "dynM.k0"):
        assert "warp" in found
    rows = edge.replace("k", "n")
    if rows in ("m1", "n1", "dynM.n1"):
        assert all("row" in offered(f"{kind}.{dtype}.{rows}") for kind in ("softmax", "rms_norm", "sum", "silu_mul"))
    if rows in ("m0", "n0", "dynM.n0"):
        assert all(offered(f"{kind}.{dtype}.{rows}") for kind in ("sum", "silu_mul"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_batches(dtype: str) -> None:
    for name in ("bias_gelu", "bias_gelu.ragged", "bias_gelu.dynM", "residual.dynM", "batched", "batched.dynM",
                 "batched.b0", "linear.dynM", "attention.causal", "attention.grouped", "attention.mask",
                 "attention.b0", "layer_norm.dynM", "argmax.dynM", "column_sum.dynM"):  # fmt: skip
        kind, _, rest = name.partition(".")
        assert offered(f"{kind}.{dtype}{'.' if rest else ''}{rest}"), name


def test_pins_are_realised_and_hold_every_form() -> None:
    """What a sample of a hundred thousand leaves may miss."""
    picker = Picker(cuda_target("sm_90a"), UninformedPrior("a test"), None, True)
    forms: set[str] = set()
    assert set(PINS) <= set(CASES)
    for name, pins in PINS.items():
        region = CASES[name].region()
        for pin in pins:
            found = pinned(picker, region, KnobMap.parse(pin))
            assert not isinstance(found, Unmatched), f"{name} {found}"
            tile = next(value for key, value in found.variant.knobs.items_ if key.family == "TILE")
            tier = {"ScalarTile": "scalar", "AtomTile": "warp", "RowTile": "row"}[type(tile).__name__]
            symbolic = " dynM" if region.symbols else ""
            text = str(found.variant.knobs)
            forms |= {f"{tier} {how}" for how in "kac" if re.search(rf"REDUCE=g\d+{how}", text)}
            forms |= {f"{tier} slices" for _ in re.findall(r"REDUCE=g\d+c/c\d", text) if tier != "row"}
            forms |= {f"{tier} {way}" for way in ("sync", "async") if f"/{way}" in text}
            forms |= {f"{tier} raster{symbolic}"} if "RASTER=g" in text else set()
    wanted = {f"{tier} {form}" for tier in ("scalar", "warp")
              for form in ("k", "a", "c", "slices", "sync", "async", "raster", "raster dynM")}  # fmt: skip
    assert wanted | {"row k", "row a"} <= forms, (wanted | {"row k", "row a"}) - forms


def test_a_case_stays_cheap() -> None:
    assert len(CASES) < 300
    assert sum(case.leaves for case in CASES.values()) < 1500
