"""What is checked on a GPU: a small program a case, between them every tier, dtype, fused neighbour, awkward size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from emmy.frontend.export import export_graph
from emmy.ir.nest import Region
from emmy.passes.decompose import decompose
from emmy.passes.partition import partition
from emmy.target import DynamicSpec

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
ROWS = 512
"""Size of a symbolic axis when traced; results are checked there, at 509 and at 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program over tensors x0, x1, … of ``shapes``.

    dynamic: (input, axis) pairs that are one symbolic size. leaves: sampled of every tier that offers any. tiers: those
    that have to offer leaves. masks: inputs that are booleans.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "f32"
    dynamic: tuple[tuple[int, int], ...] = ()
    leaves: int = 8
    tiers: tuple[str, ...] = ()
    masks: tuple[int, ...] = ()

    @property
    def pins(self) -> tuple[str, ...]:
        """Partial knob maps that have to be realised beside the sample."""
        return PINS.get(self.name, ())

    def region(self) -> Region:
        """The traced program; it has to be one region."""
        inputs = {
            f"x{n}": torch.zeros(shape, dtype=torch.bool if n in self.masks else DTYPES[self.dtype])
            for n, shape in enumerate(self.shapes)
        }
        specs = [DynamicSpec("seq_len", f"x{n}", axis) for n, axis in self.dynamic]
        regions = partition(decompose(export_graph(self.name, self.function, inputs, specs).graph)).regions
        if len(regions) != 1:
            raise AssertionError(f"{self.name} is {len(regions)} regions")
        return regions[0]


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def bias_gelu(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return F.gelu(a @ b + c)


def residual(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return a @ b + c


def scaled_relu(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return F.relu(F.relu(a) @ b * c)


def widened(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b).float()


def accumulated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.float() @ b.float()


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def silu_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def mean_centred(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * x.amax(-1, keepdim=True)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, *,
           causal: bool = False, grouped: bool = False) -> torch.Tensor:  # fmt: skip
    return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=grouped)


F16, BF16 = "TILE=a:mma_m16n8k16_f16_f32", "TILE=a:mma_m16n8k16_bf16_f32"
PINS: dict[str, tuple[str, ...]] = {
    "matmul.f32": (
        "TILE=n16x8/f2x4/k8", "TILE=n16x16/f8x8/k16,STAGE=d2/sync", "TILE=n16x8/f4x4/k32,STAGE=d3/async",
        "TILE=n16x8/f2x4/k16,REDUCE=g2k", "TILE=n16x8/f2x4/k16,REDUCE=g4a", "TILE=n16x8/f8x8/k16,STAGE=d2/async",
        "TILE=n8x8/f8x8/k32,REDUCE=g2c/c2,STAGE=d3/async", "TILE=n8x8/f4x2/k16,STAGE=d3/async,RASTER=g2",
    ),
    "matmul.f32.ragged": ("TILE=n8x4/f4x2/k8,STAGE=d2/async,RASTER=g2", "TILE=n16x16/f8x8/k16,STAGE=d2/sync"),
    "matmul.f32.dynM": ("TILE=n8x8/f4x4/k16,STAGE=d2/async,RASTER=g4", "TILE=n8x8/f4x4/k16,REDUCE=g2a"),
    "matmul.f32.m1": ("TILE=n16x8/f2x4/k8,STAGE=d2/async", "TILE=n16x4/f4x2/k16,REDUCE=g2k"),
    "matmul.f32.n1": ("TILE=n8x8/f1x4/k8", "TILE=n8x8/f1x4/k8,STAGE=d2/async"),
    "matmul.f32.k0": ("TILE=n8x8/f2x2/k8",),
    "matmul.f32.m0": ("TILE=n8x8/f2x2/k8",),
    "matmul.f16": (
        f"{F16}/w2x2/f2x4/k2,STAGE=d3/async", f"{F16}/w1x4/f2x2/k1,STAGE=d2/sync", f"{F16}/w2x2/f2x2/k1,REDUCE=g2k",
        "TILE=a:mma_m16n8k16_f16_f16/w2x2/f2x4/k2", f"{F16}/w2x2/f1x2/k2,STAGE=d3/async,RASTER=g2",
        f"{F16}/w2x2/f2x2/k2,STAGE=d3/async,REDUCE=g2c/c2",
    ),
    "matmul.f16.ragged": (f"{F16}/w1x2/f1x2/k1,STAGE=d2/sync,RASTER=g2", f"{F16}/w4x2/f2x4/k2,STAGE=d2/sync"),
    "matmul.f16.dynM": (f"{F16}/w2x2/f1x2/k2,STAGE=d3/async,RASTER=g4",),
    "matmul.bf16": (f"{BF16}/w2x2/f2x4/k2,STAGE=d3/async",),
    "accumulated.f16": (f"{F16}/w2x2/f2x2/k2,STAGE=d3/async,REDUCE=g2a", f"{F16}/w1x2/f1x2/k1,REDUCE=g4k"),
    "accumulated.bf16": (f"{BF16}/w1x2/f2x2/k1,STAGE=d2/sync,REDUCE=g2a",),
    "bias_gelu.f16": (f"{F16}/w2x2/f2x4/k2,STAGE=d3/async", f"{F16}/w1x2/f2x2/k2,STAGE=d2/async,REDUCE=g2c"),
    "bias_gelu.f16.dynM": (f"{F16}/w2x2/f1x2/k2,STAGE=d3/async",),
    "residual.f16": (
        f"{F16}/w2x2/f2x2/k2,STAGE=d3/async", f"{F16}/w1x2/f2x4/k2,STAGE=d2/async,REDUCE=g2c",
        f"{F16}/w2x1/f1x4/k4,STAGE=d3/async,REDUCE=c2",
    ),
    "residual.f16.dynM": (f"{F16}/w2x2/f2x4/k2,STAGE=d3/async",),
    "sum.f32": ("TILE=r1/v4/reread,REDUCE=g4k/c64", "TILE=r1/v4/reread,REDUCE=g4a/c64"),
    "sum.f32.ragged": ("TILE=r2/v1/reread,REDUCE=g2k/c32", "TILE=r1/v4/reread,REDUCE=g4a/c32"),
    "sum.f32.dynM": ("TILE=r1/v4/reread,REDUCE=g2a/c32",),
    "sum.f16": ("TILE=r1/v8/reread,REDUCE=g4k/c64",),
}  # fmt: skip
"""Knobs that a sample may miss: each kind of ring, split, cluster, slice and order of blocks, tiles larger than the
problem, epilogues whose reads are touched ahead. By case."""


def _matmuls() -> list[Case]:
    found = []
    even, ragged = (96, 128, 160), (37, 53, 29)
    edges = {"m1": (1, 64, 128), "n1": (64, 1, 40), "k1": (33, 40, 1), "one": (1, 1, 1), "m0": (0, 64, 32),
             "n0": (16, 0, 8), "k0": (16, 24, 0), "odd": (129, 67, 515)}  # fmt: skip
    symbolic = {"n1": (ROWS, 1, 40), "k1": (ROWS, 40, 1), "n0": (ROWS, 0, 8), "k0": (ROWS, 24, 0)}
    for dtype in ("f32", "f16", "bf16", "f64"):
        half = dtype in ("f16", "bf16")
        tiers = ("scalar", "cell") + (("warp",) if half else ())
        few = 3 if dtype == "f64" else 10
        make = partial(_matmul, dtype=dtype)
        found.append(make(f"matmul.{dtype}", even, leaves=few + 4, tiers=tiers))
        found.append(make(f"matmul.{dtype}.ragged", ragged, leaves=few))
        found.append(make(f"matmul.{dtype}.dynM", (ROWS, 72, 96), leaves=few, dynamic=((0, 0),), tiers=tiers))
        found.append(make(f"matmul.{dtype}.dynM.ragged", (ROWS, 61, 45), leaves=few, dynamic=((0, 0),)))
        if dtype != "f64":
            found += [make(f"matmul.{dtype}.{name}", size, leaves=4) for name, size in edges.items()]
            found += [
                make(f"matmul.{dtype}.dynM.{name}", size, leaves=3, dynamic=((0, 0),))
                for name, size in symbolic.items()
            ]
    return found


def _matmul(name: str, size: tuple[int, int, int], **fields: Any) -> Case:
    m, n, k = size
    return Case(name, matmul, ((m, k), (k, n)), **fields)


def _fused() -> list[Case]:
    found = []
    for dtype in ("f32", "f16", "bf16"):
        for where, (m, n, k), dynamic in (
            ("", (64, 96, 128), ()), (".ragged", (45, 51, 77), ()), (".dynM", (ROWS, 88, 64), ((0, 0),)),
        ):  # fmt: skip
            suffix = f"{dtype}{where}"
            rows = ((2, 0),) if dynamic else ()
            found += [
                Case(f"bias_gelu.{suffix}", bias_gelu, ((m, k), (k, n), (n,)), dtype, dynamic, 6),
                Case(f"residual.{suffix}", residual, ((m, k), (k, n), (m, n)), dtype, (*dynamic, *rows), 6),
            ]
        found += [
            Case(f"scaled_relu.{dtype}", scaled_relu, ((70, 64), (64, 72), (72,)), dtype, leaves=6),
            Case(f"linear.{dtype}", F.linear, ((70, 96), (88, 96)), dtype, leaves=6),
            Case(f"batched.{dtype}", matmul, ((3, 33, 48), (3, 48, 40)), dtype, leaves=6),
            Case(f"batched.{dtype}.dynM", matmul, ((2, ROWS, 24), (2, 24, 40)), dtype, ((0, 1),), 3),
            Case(f"batched.{dtype}.b0", matmul, ((0, 33, 48), (0, 48, 40)), dtype, leaves=3),
            Case(f"linear.{dtype}.dynM", F.linear, ((ROWS, 45), (51, 45)), dtype, ((0, 0),), 3),
        ]
    for kind in ("f16", "bf16"):
        found += [
            Case(f"widened.{kind}", widened, ((64, 64), (64, 72)), kind, leaves=6),
            Case(f"accumulated.{kind}", accumulated, ((48, 160), (160, 72)), kind, leaves=6, tiers=("warp",)),
        ]
    return found


def _rows() -> list[Case]:
    found = []
    programs: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[tuple[int, ...], ...]]]] = {
        "softmax": (partial(torch.softmax, dim=-1), lambda m, n: ((m, n),)),
        "rms_norm": (rms_norm, lambda m, n: ((m, n), (n,))),
        "sum": (partial(torch.sum, dim=-1), lambda m, n: ((m, n),)),
        "silu_mul": (silu_mul, lambda m, n: ((m, n), (m, n))),
    }
    sizes = {"": (64, 4096), ".ragged": (7, 1003), ".m1": (1, 2048), ".n1": (33, 1), ".m0": (0, 64),
             ".long": (3, 70_001), ".dynM": (ROWS, 1024), ".dynM.ragged": (ROWS, 333),
             ".dynM.n1": (ROWS, 1)}  # fmt: skip
    empty = {".n0": (5, 0), ".dynM.n0": (ROWS, 0)}
    for dtype in ("f32", "f16", "bf16"):
        for kind, (function, shapes) in programs.items():
            for where, (m, n) in (sizes | (empty if kind in ("sum", "silu_mul") else {})).items():
                inputs = shapes(m, n)
                dynamic = tuple((x, 0) for x, shape in enumerate(inputs) if len(shape) == 2) if "dyn" in where else ()
                leaves = 10 if where in ("", ".dynM") and dtype != "bf16" else 3 if "dynM.n" in where else 4
                tiers = ("row",) if where in ("", ".dynM") else ()
                found.append(Case(f"{kind}.{dtype}{where}", function, inputs, dtype, dynamic, leaves, tiers))
        found += [
            Case(f"layer_norm.{dtype}", layer_norm, ((19, 768), (768,), (768,)), dtype, leaves=6),
            Case(f"amax.{dtype}", partial(torch.amax, dim=-1), ((19, 1500),), dtype, leaves=6),
            Case(f"argmax.{dtype}", partial(torch.argmax, dim=-1), ((19, 1500),), dtype, leaves=6),
            Case(f"column_sum.{dtype}", partial(torch.sum, dim=0), ((300, 200),), dtype, leaves=6),
            Case(f"mean_centred.{dtype}", mean_centred, ((19, 640),), dtype, leaves=6),
        ]
        others: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
            "layer_norm": (layer_norm, ((ROWS, 331), (331,), (331,))),
            "amax": (partial(torch.amax, dim=-1), ((ROWS, 331),)),
            "argmax": (partial(torch.argmax, dim=-1), ((ROWS, 331),)),
            "column_sum": (partial(torch.sum, dim=0), ((ROWS, 37),)),
            "mean_centred": (mean_centred, ((ROWS, 131),)),
        }
        found += [
            Case(f"{kind}.{dtype}.dynM", function, shapes, dtype, ((0, 0),), 3)
            for kind, (function, shapes) in others.items()
        ]
    found.append(Case("softmax.f64", partial(torch.softmax, dim=-1), ((9, 300),), "f64", leaves=3))
    return found


def _attention() -> list[Case]:
    found = []
    sizes = {"": (2, 128, 64), ".ragged": (2, 77, 64), ".d128": (2, 96, 128), ".d40": (2, 33, 40)}
    dynamic = tuple((x, 2) for x in range(3))
    for dtype in ("f32", "f16", "bf16"):
        leaves = 3 if dtype == "bf16" else 5
        for where, (h, s, d) in sizes.items():
            shapes = ((1, h, s, d),) * 3
            tiers = ("attention",) if where in ("", ".ragged", ".d128") else ()
            found += [
                Case(f"attention.{dtype}{where}", attend, shapes, dtype, leaves=leaves, tiers=tiers),
                Case(f"attention.{dtype}.causal{where}", partial(attend, causal=True), shapes, dtype, leaves=leaves),
            ]
        found += [
            Case(f"attention.{dtype}.dyn", partial(attend, causal=True), ((1, 2, ROWS, 64),) * 3, dtype, dynamic, 4),
            Case(f"attention.{dtype}.dyn.ragged", attend, ((1, 1, ROWS, 40),) * 3, dtype, dynamic, 2),
            Case(f"attention.{dtype}.grouped", partial(attend, grouped=True),
                 ((1, 4, 40, 64), (1, 2, 56, 64), (1, 2, 56, 64)), dtype, leaves=4),
            Case(f"attention.{dtype}.mask", attend, (*((1, 2, 40, 64),) * 3, (40, 40)), dtype, leaves=4, masks=(3,)),
            Case(f"attention.{dtype}.b0", attend, ((0, 2, 40, 64),) * 3, dtype, leaves=2),
        ]  # fmt: skip
    return found


CASES: dict[str, Case] = {case.name: case for case in (*_attention(), *_matmuls(), *_fused(), *_rows())}
