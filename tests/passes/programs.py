"""Traced functions for the tests of the region passes, and what runs a program of regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from emmy.frontend.export import export_graph
from emmy.ir.expr import evaluate_int
from emmy.ir.nest import Program, Region, verify
from emmy.ir.nest_interp import run_region
from emmy.passes.decompose import decompose

Array = np.ndarray[Any, Any]


def traced(function: Callable[..., Any], *shapes: Any) -> Region:
    """``function`` of float32 tensors of these shapes (or of given tensors) as one unfused region; inputs x0, x1, …"""
    tensors = [s if isinstance(s, torch.Tensor) else torch.zeros(s) for s in shapes]
    return decompose(export_graph("f", function, {f"x{n}": t for n, t in enumerate(tensors)}).graph)


def arrays(region: Region, seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    values = dict(region.hints()) | dict(sizes or {})
    made: dict[str, Array] = {}
    for tensor in region.inputs:
        shape = tuple(evaluate_int(extent, values) for extent in tensor.shape)
        if tensor.dtype.is_float:
            made[tensor.name] = rng.standard_normal(shape).astype(np.float16 if tensor.dtype == "f16" else np.float32)
        elif tensor.dtype == "bool":
            made[tensor.name] = rng.random(shape) > 0.3
        else:
            made[tensor.name] = rng.integers(0, 7, shape)
    return made


def run_program(
    program: Program, inputs: Mapping[str, Array], sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Outputs of a program, flat, each region run by the oracle on views of the tensors that it names."""
    held: dict[str, Array] = dict(inputs)
    for region in program.regions:
        verify(region)
        own = {s.name: (sizes or {}).get(s.name, s.hint) for s in region.symbols}
        views = {
            t.name: np.asarray(held[t.name]).reshape([evaluate_int(extent, own) for extent in t.shape])
            for t in region.inputs
        }
        held |= run_region(region, views, own)
    return {name: held[name].ravel() for name in program.outputs}


def one_region(region: Region) -> Program:
    return Program("p", region.symbols, region.inputs, (region,), tuple(o.tensor.name for o in region.outputs))


def assert_same(
    region: Region, program: Program, sizes: Mapping[str, int] | None = None, tolerance: float = 2e-5
) -> None:
    """``program`` computes what ``region`` does."""
    inputs = arrays(region, sizes=sizes)
    expected = run_region(region, inputs, sizes)
    found = run_program(program, inputs, sizes)
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value.ravel(), rtol=tolerance, atol=tolerance, err_msg=name)


# --------------------------------------------------------------------------------------------------- functions


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def explicit_softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def sdpa(**options: Any) -> Callable[..., torch.Tensor]:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

    return attend


def spelled_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
    return torch.softmax(scores, -1) @ v


def bert_layer(
    x: torch.Tensor, mask: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor, wv: torch.Tensor, wo: torch.Tensor,
    up: torch.Tensor, down: torch.Tensor, bias: torch.Tensor, wide: torch.Tensor, scale: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    batch, length, width = x.shape

    def heads(t: torch.Tensor) -> torch.Tensor:
        return t.view(batch, length, 2, width // 2).transpose(1, 2)

    q, k, v = (heads(F.linear(x, w, bias)) for w in (wq, wk, wv))
    a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    a = a.transpose(1, 2).reshape(batch, length, width)
    h = F.layer_norm(F.linear(a, wo, bias) + x, (width,), scale, bias)
    return F.layer_norm(F.linear(F.gelu(F.linear(h, up, wide)), down, bias) + h, (width,), scale, bias)


def qwen3_layer(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, norm: torch.Tensor, wq: torch.Tensor, wk: torch.Tensor,
    wv: torch.Tensor, wo: torch.Tensor, head: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    batch, length, _ = x.shape
    d = head.shape[0]

    def rms(t: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        wide = t.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(t.dtype)

    n = rms(x, norm)
    q = rotary(rms((n @ wq.T).view(batch, length, -1, d), head).transpose(1, 2), cos, sin)
    k = rotary(rms((n @ wk.T).view(batch, length, -1, d), head).transpose(1, 2), cos, sin)
    v = (n @ wv.T).view(batch, length, -1, d).transpose(1, 2)
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    h = x + a.transpose(1, 2).reshape(batch, length, -1) @ wo.T
    m = rms(h, norm)
    return h + (F.silu(m @ gate.T) * (m @ up.T)) @ down.T


BERT = ((2, 6, 8), torch.ones(2, 1, 1, 6, dtype=torch.bool), (8, 8), (8, 8), (8, 8), (8, 8), (16, 8), (8, 16), (8,),
        (16,), (8,))  # fmt: skip
QWEN3 = ((1, 6, 16), (6, 4), (6, 4), (16,), (16, 16), (8, 16), (8, 16), (16, 16), (4,), (24, 16), (24, 16), (16, 24))

QKV = ((2, 4, 9, 8), (2, 4, 9, 8), (2, 4, 9, 8))
GROUPED = ((1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "linear_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), ((2, 5, 8), (6, 8), (6,))),
    "scaled_matmul": (lambda x, w: (x * 0.5) @ w, ((7, 8), (8, 6))),
    "shifted_matmul": (lambda x, b, w: (x + b) @ w, ((7, 8), (8,), (8, 6))),
    "silu_matmul": (lambda x, w: F.silu(x) @ w, ((7, 8), (8, 6))),
    "matmul_softmax": (lambda x, w: torch.softmax(x @ w * 0.5, -1), ((7, 8), (8, 6))),
    "norm_linear": (lambda x, g, w: F.rms_norm(x, (8,), g) @ w, ((7, 8), (8,), (8, 6))),
    "add_layer_norm": (lambda x, r, g, b: F.layer_norm(x + r, (8,), g, b), ((2, 5, 8), (2, 5, 8), (8,), (8,))),
    "add_layer_norm_both": (
        lambda x, r, g, b: (F.layer_norm(x + r, (8,), g, b), x + r),
        ((2, 5, 8), (2, 5, 8), (8,), (8,)),
    ),
    "rms_norm": (lambda x, g: F.rms_norm(x, (8,), g, 1e-6), ((5, 8), (8,))),
    "softmax_mask": (lambda x, m: F.softmax(x.masked_fill(~m, -1e9), -1), ((2, 3, 5, 7), torch.ones(5, 7).bool())),
    "log_softmax": (lambda x: F.log_softmax(x, -1), ((5, 7),)),
    "explicit_softmax": (explicit_softmax, ((3, 5, 7),)),
    "row_sum": (lambda x: x.sum(-1), ((5, 7),)),
    "silu_mul": (lambda x, y: F.silu(x) * y, ((3, 5, 7), (3, 5, 7))),
    "rotary": (rotary, ((2, 3, 5, 8), (5, 8), (5, 8))),
    "attention": (sdpa(), QKV),
    "attention_causal": (sdpa(is_causal=True), QKV),
    "attention_grouped": (sdpa(is_causal=True, enable_gqa=True), GROUPED),
    "attention_bool_mask": (sdpa(), (*QKV, torch.ones(2, 1, 1, 9).bool())),
    "attention_float_mask": (sdpa(), (*QKV, (9, 9))),
    "attention_spelled": (spelled_attention, (*QKV, (9, 9))),
}
"""name → (function, shapes of its inputs): each is one golden-like region or a short chain."""


def case(name: str) -> Region:
    function, shapes = CASES[name]
    return traced(function, *shapes)
