"""What the GPU's bars are about: the shapes of each bar, dataset shapes and a few programs beside them."""

from __future__ import annotations

from dataclasses import dataclass

from emmy.target import Target, TargetKind

PROJECTIONS = {
    "q_proj": (2048, 1024), "kv_proj": (1024, 1024), "o_proj": (1024, 2048), "gate_up_proj": (3072, 1024),
    "down_proj": (1024, 3072),
}  # fmt: skip
"""N × K of the five projections."""

LENGTHS = (32, 128, 512)
ROW_KINDS = ("softmax", "rms_norm", "reduce", "pointwise")
STREAMS = {"softmax": "copy", "rms_norm": "copy", "reduce": "read", "pointwise": "join"}
"""The streaming kernel with the same read/write mix."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One program to tune and to time. name: of the dataset's shape, or its own; target: what is traced."""

    name: str
    target: Target


def golden(name: str) -> Subject:
    return Subject(name, Target(TargetKind.GOLDEN, name))


def snippet(name: str, code: str) -> Subject:
    return Subject(name, Target(TargetKind.SNIPPET, code))


def projections(suffix: str = "", lengths: tuple[int, ...] = LENGTHS) -> list[Subject]:
    return [golden(f"qwen3_06b.{name}.s{s}{suffix}") for name in PROJECTIONS for s in lengths]


def _bf16() -> list[Subject]:
    kind = "dtype=torch.bfloat16"
    return [
        snippet(f"qwen3_06b.{name}.s512.bf16",
                f"x0 = torch.randn(512, {k}, {kind}); x1 = torch.randn({k}, {n}, {kind}); x0 @ x1")
        for name, (n, k) in PROJECTIONS.items()
    ]  # fmt: skip


def _fused() -> list[Subject]:
    found, kind = [], "dtype=torch.float16"
    for name, (n, k) in PROJECTIONS.items():
        for rows in LENGTHS:
            inputs = f"x0 = torch.randn({rows}, {k}, {kind}); x1 = torch.randn({k}, {n}, {kind})"
            found += [
                snippet(f"{name}.s{rows}.fp16+bias_gelu",
                        f"{inputs}; x2 = torch.randn({n}, {kind}); F.gelu(torch.addmm(x2, x0, x1))"),
                snippet(f"{name}.s{rows}.fp16+residual",
                        f"{inputs}; x2 = torch.randn({rows}, {n}, {kind}); x2 + x0 @ x1"),
            ]  # fmt: skip
    return found


def _dyn() -> list[Subject]:
    names = ["square.512", *(f"qwen3_06b.{name}.s512" for name in PROJECTIONS)]
    return [golden(f"{name}{dtype}{dyn}") for dtype in ("", ".fp16") for name in names for dyn in ("", ".dynM")]


GROUPS: dict[str, list[Subject]] = {
    "fp16": [*projections(".fp16"), golden("square.512.fp16"), golden("square.1024.fp16")],
    "fp32": [*projections(), *(golden(f"square.{n}") for n in (512, 1024, 2048, 4096))],
    "rows": [golden(f"{kind}.{size}") for kind in ROW_KINDS for size in ("2048x2048", "512x4096.fp16")],
    "stream": [golden(f"{kind}.16384x8192{dtype}") for kind in ROW_KINDS for dtype in ("", ".fp16")],
    "fused": _fused(),
    "bf16": [*_bf16(), *projections(".fp16", (512,))],
    "dyn": _dyn(),
}
"""Subjects by bar, in the order they are taken; a subject of several bars is tuned once."""


def twin(name: str) -> str | None:
    """The static shape of a symbolic one, the fp16 shape of a bf16 one."""
    if name.endswith(".dynM"):
        return name.removesuffix(".dynM")
    return name.removesuffix(".bf16") + ".fp16" if name.endswith(".bf16") else None
