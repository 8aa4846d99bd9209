"""The golden shapes: all of them are there, they spell their programs, and a bad dataset is refused by name."""

import pytest

from emmy.errors import GoldenSchemaError, InputError
from emmy.goldens.dataset import KINDS, InputSpec, load_dataset, parse_dataset, shape, shapes
from emmy.ir.dtype import DType
from emmy.target import DynamicSpec

SIZES = {"square": 8, "qwen3": 30, "dyn": 12, "h4096": 4, "rows": 16, "rows-dyn": 4, "attention": 5, "quick": 10}


def test_groups_hold_every_shape():
    assert {group: len(shapes(group)) for group in SIZES} == SIZES
    assert len(load_dataset()) == sum(SIZES.values())


@pytest.mark.parametrize("found", load_dataset(), ids=lambda found: found.name)
def test_a_shapes_name_says_what_it_is(found):
    parts = found.name.split(".")
    assert ("dynM" in parts) == (found.dynamic is not None)
    assert ("causal" in parts) == found.causal
    assert ("fp16" in parts) == (found.dtype is DType.F16)
    sizes = [str(size) for _, size in found.dims]
    if found.kind == "attention":
        assert "b{}h{}s{}d{}".format(*sizes) in parts
    elif found.kind != "matmul":
        assert "x".join(sizes) in parts
    elif parts[0] in ("qwen3_06b", "h4096"):
        assert f"s{found.dim('M')}" in parts
    else:
        assert {*parts, *"".join(parts[-1:]).split("x")} & set(sizes)


@pytest.mark.parametrize(
    ("name", "snippet", "inputs"),
    [
        ("qwen3_06b.q_proj.s128", "x0 @ x1", [("x0", (128, 1024)), ("x1", (1024, 2048))]),
        ("softmax.2048x2048", "torch.softmax(x0, -1)", [("x0", (2048, 2048))]),
        ("quick.rms_norm.1024x4096", "F.rms_norm(x0, (4096,), x1, 1e-06)", [("x0", (1024, 4096)), ("x1", (4096,))]),
        ("quick.reduce.1024x4096", "x0.sum(-1)", [("x0", (1024, 4096))]),
        ("quick.pointwise.1024x4096", "F.silu(x0) * x1", [("x0", (1024, 4096)), ("x1", (1024, 4096))]),
        (
            "quick.attention.b1h4s256d64.causal",
            "F.scaled_dot_product_attention(x0, x1, x2, is_causal=True)",
            [(name, (1, 4, 256, 64)) for name in ("x0", "x1", "x2")],
        ),
    ],
)
def test_snippet_and_inputs(name, snippet, inputs):
    found = shape(name)
    assert found.snippet() == snippet
    assert [(spec.name, spec.shape) for spec in found.inputs()] == inputs
    assert all(spec.dtype is DType.F32 and spec.symbolic == () for spec in found.inputs())


def test_a_symbolic_axis_is_that_of_every_input_that_has_it():
    matmul = shape("quick.matmul.256.dynM")
    assert matmul.dynamic == DynamicSpec("seq_len", "x0", 0)
    assert matmul.inputs() == (
        InputSpec("x0", (512, 256), DType.F32, ((0, "seq_len"),)),
        InputSpec("x1", (256, 256), DType.F32),
    )
    assert [spec.symbolic for spec in shape("pointwise.512x4096.fp16.dynM").inputs()] == [((0, "seq_len"),)] * 2
    attention = shape("attention.b1h16s512d128.causal.fp16.dynM")
    assert [spec.symbolic for spec in attention.inputs()] == [((2, "seq_len"),)] * 3
    assert attention.dims_text == "1 × 16 × 512* × 128"


@pytest.mark.parametrize("name", [found.name for found in shapes("quick")])
def test_a_snippet_runs_and_is_what_it_says(name):
    import torch
    import torch.nn.functional as functional

    found = shape(name)
    inputs = {spec.name: torch.randn(spec.shape) for spec in found.inputs()}
    output = eval(found.snippet(), {"torch": torch, "F": functional, **inputs})
    sizes = dict(found.dims)
    outputs = {"reduce": ("M",), "matmul": ("M", "N"), "attention": ("B", "H", "S", "D")}.get(found.kind, ("M", "N"))
    assert tuple(output.shape) == tuple(sizes[dim] for dim in outputs)


def test_a_linear_has_its_weight_by_rows():
    text = "shapes:\n  - {name: l.f, kind: matmul, M: 2, N: 3, K: 4, dtype: f32, rhs: nk, groups: [g]}\n"
    (linear,) = parse_dataset(text, "d.yaml")
    assert linear.snippet() == "F.linear(x0, x1)"
    assert [spec.shape for spec in linear.inputs()] == [(2, 4), (3, 4)]


def test_selection():
    assert [found.name for found in shapes("quick", "dynM")] == [
        "quick.matmul.256.dynM",
        "quick.rms_norm.512x1024.dynM",
    ]
    assert len(shapes(["square", "quick"])) == 18
    assert {found.kind for found in shapes()} == set(KINDS)


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(InputError, match=r"square\.512fp16.*nearest: square\.512\.fp16"):
        shape("square.512fp16")
    with pytest.raises(InputError, match=r"nearest: .*q_proj"):
        shape("q_proj")
    with pytest.raises(InputError, match="did you mean quick"):
        shapes("quik")
    with pytest.raises(InputError, match="'zzz' in its name"):
        shapes("quick", "zzz")


LINE = "{name: a.b, kind: matmul, M: 8, N: 8, K: 8, dtype: f32, rhs: kn, groups: [g]}"


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("kind: matmul", "kind: gemm", 2, "kind", "matmul, softmax"),
        ("K: 8", "K: 0", 2, "K", "at least 1"),
        ("K: 8, ", "", 2, "K", "nothing"),
        ("rhs: kn", "rhs: row", 2, "rhs", "kn, nk"),
        ("dtype: f32", "dtype: f16", 2, "dtype", "f32, as the name says"),
        ("groups: [g]", "groups: []", 2, "groups", "at least one"),
        ("rhs", "rsh", 2, "rhs", "nothing"),
        ("[g]", "[g], colour: red", 2, "colour", "unknown field"),
        ("name: a.b", "name: a.dynM", 2, "dynamic", ".dynM"),
        (LINE, f"{LINE}\n  - {LINE}", 3, "name", "a second time"),
    ],
)
def test_a_bad_shape_is_refused_by_file_line_entry_and_field(old, new, line, field, words):
    text = f"shapes:\n  - {LINE}\n".replace(old, new, 1)
    with pytest.raises(GoldenSchemaError) as caught:
        parse_dataset(text, "d.yaml")
    assert (caught.value.file, caught.value.line, caught.value.field) == ("d.yaml", line, field)
    assert words in str(caught.value)
    assert caught.value.entry in ("a.b", "a.dynM")
