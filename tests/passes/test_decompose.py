"""Graphs as nests: what whole programs come out as, against eager torch."""

import numpy as np
import pytest

from emmy.errors import UnsupportedOp
from emmy.frontend import to_numpy, to_torch, trace_snippet
from emmy.frontend.trace import Traced
from emmy.ir import nest
from emmy.ir.expr import Call, Load, Var
from emmy.ir.nest import text
from emmy.ir.nest_interp import run_region
from emmy.target import DynamicSpec


def agree(traced: Traced, symbols: dict[str, int] | None = None, tolerance: float = 2e-5) -> None:
    nest.verify(traced.region)
    inputs = traced.inputs(seed=1, symbols=symbols)
    expected = traced.eager(*to_torch(inputs, traced.graph.inputs).values())
    got = run_region(traced.region, inputs, symbols)
    for array, reference in zip(got.values(), expected, strict=True):
        held = to_numpy(reference)
        assert array.shape == held.shape
        np.testing.assert_allclose(array.astype(np.float64), held.astype(np.float64), rtol=tolerance, atol=tolerance)


def comps(traced: Traced) -> list[str]:
    return [line.strip() for line in text(traced.region).splitlines()[1:] if line[2:5] not in ("in ", "out")]


@pytest.mark.parametrize(
    ("snippet", "expected"),
    [
        ("x0 = torch.randn(7, 13); x1 = torch.randn(13, 5); x0 @ x1",
         "matmul[i0:7, i1:5] = sum[k0:13] (x0[i0, k0] * x1[k0, i1])"),
        ("x0 = torch.randn(2, 6, 8); w = torch.randn(8, 8); F.linear(x0, w)",
         "linear[i0:2, i1:6, i2:8] = sum[k0:8] (x0[i0, i1, k0] * w[i2, k0])"),
        ("x0 = torch.randn(2, 6, 8); w = torch.randn(4, 8); "
         "torch.mm(x0.view(12, 8), w.t()).view(2, 6, 4).relu().view(12, 4)",
         "mm[i0:12, i1:4] = sum[k0:8] (x0[(i0 // 6), (i0 % 6), k0] * w[i1, k0])"),
        ("q = torch.randn(2, 3, 4, 8); k = torch.randn(2, 3, 5, 8); "
         "torch.bmm(q.reshape(6, 4, 8), k.reshape(6, 5, 8).transpose(1, 2))",
         "bmm[i0:6, i1:4, i2:5] = sum[k0:8] (q[(i0 // 3), (i0 % 3), i1, k0] * k[(i0 // 3), (i0 % 3), i2, k0])"),
        ("x = torch.randn(2, 4, 3, 8); w = torch.randn(24, 5); x.reshape(2, 4, 24) @ w",
         "matmul[i0:2, i1:4, i2:5] = sum[k0:24] (x[i0, i1, (k0 // 8), (k0 % 8)] * w[k0, i2])"),
        ("x = torch.randn(4, 8, dtype=torch.float16); w = torch.randn(8, 5, dtype=torch.float16); x @ w",
         "matmul[i0:4, i1:5] = sum[k0:8] (f32(x[i0, k0]) * f32(w[k0, i1]))"),
        ("x = torch.randn(4, 8); x.flatten().view(8, 4).t().contiguous() + 1",
         "add[i0:4, i1:8] = (x[(i1 // 2), (((i1 % 2) * 4) + i0)] + 1)"),
    ],
)  # fmt: skip
def test_views_disappear_into_coordinates(snippet: str, expected: str) -> None:
    traced = trace_snippet(snippet)
    agree(traced)
    assert expected in comps(traced)


def test_a_batched_product_among_views_is_a_plain_contraction_with_affine_loads() -> None:
    traced = trace_snippet(
        "x = torch.randn(2, 6, 32); w = torch.randn(32, 96); y = (x.reshape(12, 32) @ w).view(2, 6, 3, 4, 8)\n"
        "q, k, v = y.unbind(2); (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) @ v.transpose(1, 2)"
    )
    agree(traced, tolerance=1e-3)
    products = [comp for comp in traced.region.comps if comp.monoid == "sum"]
    assert len(products) == 3
    # no quotient or remainder but for the merged batch and sequence of the first product
    for comp in products[1:]:
        for load in comp.loads():
            assert not any(isinstance(n, Call) and n.fn == "mod" for i in load.index[-1:] for n in _nodes(i))


def _nodes(expr: object) -> list[object]:
    from emmy.ir.expr import Expr, walk

    return list(walk(expr)) if isinstance(expr, Expr) else []


def test_softmax_is_one_pass_of_statistics_and_a_map() -> None:
    traced = trace_snippet("torch.softmax(torch.randn(4, 7), -1)")
    assert comps(traced) == [
        "softmax_ml[i0:4] = online_softmax[k0:7] x0[i0, k0]",
        "softmax[i0:4, i1:7] = (exp((x0[i0, i1] - softmax_ml[i0])) / softmax_ml.1[i0])",
    ]


def test_origins_name_the_operations() -> None:
    traced = trace_snippet("F.rms_norm(torch.randn(4, 8), (8,)).tanh()")
    assert [comp.origin for comp in traced.region.comps] == [("rms_norm",), ("rms_norm",), ("tanh",)]


def test_what_no_output_needs_is_dropped() -> None:
    traced = trace_snippet(
        "x = torch.randn(4, 8); y = x.exp(); z = torch.ops.aten.native_layer_norm(x, [8], None, None, 1e-5); z[0]"
    )
    assert {comp.origin for comp in traced.region.comps} == {("native_layer_norm",)}
    assert len(traced.region.comps) == 2


def test_a_cast_in_the_middle_rounds_and_a_chain_of_halves_does_not() -> None:
    rounding = trace_snippet("x = torch.randn(64); x.to(torch.float16).to(torch.float32) * 3")
    agree(rounding, tolerance=0)
    chain = trace_snippet("x = torch.randn(64).half(); (x * 3 + 1) * 5")
    inputs = chain.inputs()
    exact = np.float16((inputs["x"].astype(np.float32) * 3 + 1) * 5)
    np.testing.assert_array_equal(run_region(chain.region, inputs)["out"], exact)


def test_outputs_that_are_inputs_or_views_are_copied() -> None:
    traced = trace_snippet("x = torch.randn(3, 4); y = x.exp(); x, y.t(), y, y")
    agree(traced)
    assert [out.tensor.name for out in traced.region.outputs] == ["out0", "out1", "out2", "out3"]


@pytest.mark.parametrize("size", [1, 2, 7, 509])
def test_a_symbolic_axis_works_at_any_size(size: int) -> None:
    spec = DynamicSpec("seq_len", "x", 0)
    traced = trace_snippet(
        "x = torch.randn(16, 24); w = nn.Linear(24, 24); h = w(x).view(x.shape[0], 3, 8).transpose(0, 1)\n"
        "a = torch.softmax(h @ h.transpose(1, 2), -1) @ h; m = x.mean(0); p = torch.arange(x.shape[0]) + 1\n"
        "torch.cat([x, x], 0).flip(0), a.transpose(0, 1).reshape(-1, 24) + m, x.roll(1, 0) / p[:, None], "
        "x[:-1].sum(0) if x.shape[0] > 0 else x",
        [spec],
    )
    agree(traced, {"seq_len": size})


@pytest.mark.parametrize(
    ("snippet", "op"),
    [
        ("x = torch.randn(8); torch.sort(x)[0]", "aten.sort"),
        ("x = torch.randn(8); torch.topk(x, 2)[0]", "aten.topk"),
        ("x = torch.randn(8); torch.fft.fft(x).real", "aten._fft"),
        ("x = torch.randn(1, 3, 8, 8); F.conv2d(x, torch.randn(3, 3, 3, 3))", "aten.conv"),
        ("x = torch.randn(8); torch.nonzero(x)", "aten.nonzero"),
        ("x = torch.randn(8); x[x > 0]", "aten.nonzero|aten.index|aten.masked_select"),
        ("x = torch.randn(8); F.dropout(x, 0.5)", "dropout|bernoulli|rand"),
    ],
)
def test_what_stays_out_is_refused_by_name_and_place(snippet: str, op: str) -> None:
    with pytest.raises(UnsupportedOp, match=op) as caught:
        trace_snippet(snippet)
    assert "called at snippet:1:" in str(caught.value)


def test_special_values_behave_as_in_torch() -> None:
    traced = trace_snippet(
        "x = torch.tensor([0.0, -0.0, float('inf'), -float('inf'), float('nan'), 1.0, -1.0, 88.0])\n"
        "1 / x, torch.sign(x), x.relu(), x.clamp(-1, 1), x.neg(), torch.softmax(x[5:], 0), "
        "torch.softmax(x[:3], 0), x.amax(), x.argmax(), torch.logsumexp(x[:3], 0), F.gelu(x[5:]), x.floor(), x == x, "
        "x.abs(), "
        "torch.where(x > 0, x, 0.0), x * 0, x.isnan(), F.softplus(x), x.pow(2), x.sqrt(), x.round()"
    )
    inputs = traced.inputs()
    expected = traced.eager(*to_torch(inputs, traced.graph.inputs).values())
    for n, (array, reference) in enumerate(zip(run_region(traced.region, inputs).values(), expected, strict=True)):
        held = reference.numpy()
        np.testing.assert_allclose(array, held, rtol=1e-6)
        if reference.is_floating_point():
            some = ~np.isnan(held)
            np.testing.assert_array_equal(np.signbit(array)[some], np.signbit(held)[some], err_msg=f"output {n}")


QWEN3_LAYER = """
class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)

def half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-b, a), dim=-1)

class Layer(nn.Module):
    def __init__(self, width, heads, shared, depth, inner):
        super().__init__()
        self.depth = depth
        self.q, self.k, self.v = (nn.Linear(width, n * depth, bias=False) for n in (heads, shared, shared))
        self.o = nn.Linear(heads * depth, width, bias=False)
        self.q_norm, self.k_norm = RMSNorm(depth), RMSNorm(depth)
        self.before, self.after = RMSNorm(width), RMSNorm(width)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
    def forward(self, x, positions):
        angles = positions[..., None].float() * (10000.0 ** (-torch.arange(0, self.depth, 2).float() / self.depth))
        table = torch.cat((angles, angles), dim=-1)
        cos, sin = table.cos().to(x.dtype)[:, None], table.sin().to(x.dtype)[:, None]
        h = self.before(x)
        shape = (*h.shape[:-1], -1, self.depth)
        q = self.q_norm(self.q(h).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k(h).view(shape)).transpose(1, 2)
        v = self.v(h).view(shape).transpose(1, 2)
        q, k = q * cos + half(q) * sin, k * cos + half(k) * sin
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(*x.shape[:-1], -1))
        h = self.after(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

embed = nn.Embedding(50, 32)
layer = Layer(32, 4, 2, 8, 48)
ids = torch.randint(0, 50, (1, 9))
positions = torch.arange(9)[None]
layer(embed(ids), positions)
"""

BERT_LAYER = """
embed, places = nn.Embedding(50, 32), nn.Embedding(20, 32)
norm = nn.LayerNorm(32)
layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True).eval()
pool = nn.Linear(32, 32)
ids = torch.randint(0, 50, (2, 9))
mask = torch.ones(2, 9, dtype=torch.bool)
h = norm(embed(ids) + places(torch.arange(9))[None])
q = h.view(2, 9, 4, 8).transpose(1, 2)
a = F.scaled_dot_product_attention(q, q, q, attn_mask=mask[:, None, None, :]).transpose(1, 2).reshape(2, 9, 32)
y = layer(h + a)
torch.tanh(pool(y[:, 0])), F.log_softmax(y, -1).to(torch.bfloat16)
"""


def test_a_qwen3_layer() -> None:
    traced = trace_snippet(QWEN3_LAYER)
    agree(traced)
    agree(
        trace_snippet(QWEN3_LAYER, [DynamicSpec("seq_len", "ids", 1), DynamicSpec("seq_len", "positions", 1)]),
        {"seq_len": 5},
    )


def test_a_half_precision_qwen3_layer() -> None:
    source = QWEN3_LAYER.replace(
        "layer(embed(ids), positions)", "layer.half(); embed.half(); layer(embed(ids), positions)"
    )
    agree(trace_snippet(source), tolerance=2e-2)


def test_a_bert_layer() -> None:
    agree(trace_snippet(BERT_LAYER), tolerance=1e-2)


def test_coordinates_use_only_axes_and_symbols_in_scope() -> None:
    traced = trace_snippet(QWEN3_LAYER)
    for comp in traced.region.comps:
        names = {axis.name for axis in (*comp.axes, *comp.reduce)}
        for load in comp.loads():
            assert isinstance(load, Load)
            for node in (n for i in load.index for n in _nodes(i)):
                if isinstance(node, Var):
                    assert node.name in names


def test_a_constant_of_half_precision_is_rounded_before_it_is_used() -> None:
    agree(trace_snippet("x = torch.randn(4); x * torch.full((4,), 0.1, dtype=torch.float16).float()"), tolerance=0)
