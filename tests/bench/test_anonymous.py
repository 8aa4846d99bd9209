"""Plan digests: the same for equal regions whatever their names, another for another plan."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from emmy.bench.anonymous import anonymous
from emmy.bench.artefact import Artefact, BufferSpec, Case, KernelSpec, StepSpec
from emmy.bench.records import SCREEN, Measurement, Status
from emmy.device.base import Capabilities
from emmy.device.cuda_targets import cuda_target
from emmy.frontend import trace_golden
from emmy.ir.expr import Expr, Load, Var, transform
from emmy.ir.nest import Axis, Output, Region, Tensor, region_key
from emmy.passes.partition import partition
from emmy.schedule.space import enumerate_space
from emmy.search.structure import composed, cuts
from emmy.search.variant import Variant
from tests.passes.devices import CPU

SHAPES = [
    "quick.matmul.256.dynM", "quick.softmax.1024x4096", "quick.rms_norm.512x1024.dynM", "square.512.fp16.dynM",
    "attention.b1h16s512d128.causal.fp16.dynM",
]  # fmt: skip
ODD = ("f", "min", "q", "x_1", "x", "r", "b", "a", "x0_row", "float8", "t0", "half", "s")
"""Names that mean something in printed text: suffixes, members, words, temporaries, operands of assembly."""


def region_of(shape: str) -> Region:
    (region,) = partition(trace_golden(shape).region).regions
    return region


def renamed(region: Region, fresh: Callable[[str], str]) -> Region:
    """``region`` with other names of itself, its symbols, tensors and computations."""
    own = [region.name, *(s.name for s in region.symbols), *(t.name for t in region.inputs)]
    own += [*(c.name for c in region.comps), *(o.tensor.name for o in region.outputs)]
    names = {name: fresh(name) for name in dict.fromkeys(own)}

    def name_of(name: str) -> str:
        base, dot, tail = name.partition(".")
        return names.get(base, base) + dot + tail

    def expr(node: Expr) -> Expr:
        return transform(node, rule)

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return Load(name_of(node.tensor), tuple(map(expr, node.index)), node.dtype)
        return replace(node, name=names.get(node.name, node.name)) if isinstance(node, Var) else None

    def axes(given: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(replace(axis, extent=expr(axis.extent)) for axis in given)

    def tensor(given: Tensor) -> Tensor:
        strides = None if given.strides is None else tuple(map(expr, given.strides))
        return replace(given, name=names[given.name], shape=tuple(map(expr, given.shape)), strides=strides)

    comps = tuple(
        replace(c, name=names[c.name], axes=axes(c.axes), reduce=axes(c.reduce), carried=axes(c.carried),
                body=tuple(map(expr, c.body)))
        for c in region.comps
    )  # fmt: skip
    outputs = tuple(Output(tensor(out.tensor), name_of(out.source)) for out in region.outputs)
    symbols = tuple(replace(symbol, name=names[symbol.name]) for symbol in region.symbols)
    return Region(names[region.name], symbols, tuple(map(tensor, region.inputs)), comps, outputs)


def long_name(name: str) -> str:
    return f"zq_{name[::-1]}_of_some_layer"


def odd_names() -> Callable[[str], str]:
    left: Iterator[str] = iter(ODD)
    return lambda name: next(left)


@pytest.mark.parametrize("caps", [CPU, cuda_target("sm_90a")], ids=["opencl", "cuda"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_regions_of_other_names_have_equal_digests(shape: str, caps: Capabilities) -> None:
    region = region_of(shape)
    space = enumerate_space(region, caps, True)
    leaves = random.Random(0).sample(range(len(space)), 4)
    variants = [Variant(region, caps, space.knobs(leaf), space.lower(leaf)) for leaf in leaves]
    assert len({variant.digest for variant in variants}) == len(leaves)
    for fresh in (long_name, odd_names()):
        twin = renamed(region, fresh)
        assert region_key(twin) == region_key(region)
        other = enumerate_space(twin, caps, True)
        for leaf, variant in zip(leaves, variants, strict=True):
            one = Variant(twin, caps, other.knobs(leaf), other.lower(leaf))
            assert one.artefact.kernels[0].source != variant.artefact.kernels[0].source
            assert one.digest == variant.digest


def test_a_cut_plan_of_other_names_has_the_same_digest() -> None:
    region = region_of("quick.attention.b1h4s256d64.causal")
    found = []
    for one in (region, renamed(region, long_name)):
        cut = cuts(one)[0]
        spaces = [enumerate_space(child, CPU, False) for child in cut.children]
        picks = [Variant(s.region, CPU, s.knobs(0), s.lower(0)) for s in spaces]
        found.append(composed(one, CPU, cut, picks))
    assert found[0].text == found[1].text
    assert found[0].digest == found[1].digest


SOURCE = """float helper(float x) { return x; }
__kernel void k(__global const float* x, __global float* y) {
    float acc_0 = 1.0f, acc_1 = helper(x[3]), acc = blockIdx.x;
    for (int f = 0; f < 4; f += 1) asm("x y" : "=f"(acc_0));
    y[0] = min(acc_0, acc_1);
}
"""


def spec(source: str, names: tuple[str, ...], params: tuple[str, str] = ("x", "y")) -> KernelSpec:
    return KernelSpec("k", source, (1, 1), 0, tuple((name, "buffer", "f32") for name in params), names)


def test_only_own_names_are_numbered() -> None:
    text = anonymous(SOURCE, "k", ("x", "y", "acc", "f"))
    assert text.splitlines() == [
        "float helper(float x) { return x; }",
        "__kernel void $0(__global const float* $1, __global float* $2) {",
        "    float $3_0 = 1.0f, $3_1 = helper($1[3]), $3 = blockIdx.x;",
        '    for (int $4 = 0; $4 < 4; $4 += 1) asm("x y" : "=f"($3_0));',
        "    $2[0] = min($3_0, $3_1);",
        "}",
    ]


def test_another_function_or_another_binding_is_another_plan() -> None:
    def artefact(source: str, bindings: tuple[str, ...] = ("x", "y"), size: int = 4) -> Artefact:
        buffers = (BufferSpec("x", "f32", (size,), "in"), BufferSpec("y", "f32", (size,), "out"))
        case = Case({}, buffers, (StepSpec("k", (1, 1, 1), bindings),))
        return Artefact("p", "opencl", (), (spec(source, ("acc", "f")),), (case,), 1, 1)

    plain = artefact(SOURCE).plan_digest
    assert artefact(SOURCE.replace("acc", "sum")).plan_digest != plain  # ``sum`` is not among the names
    assert artefact(SOURCE.replace("min(", "max(")).plan_digest != plain
    assert artefact(SOURCE.replace("acc_0, acc_1", "acc_1, acc_0")).plan_digest != plain
    assert artefact(SOURCE, ("y", "x")).plan_digest != plain
    assert artefact(SOURCE, size=5).plan_digest != plain
    assert Artefact.from_json(artefact(SOURCE).to_json()).plan_digest == plain


def test_a_measurement_is_found_under_another_name_of_its_symbol() -> None:
    def row(size: str) -> Measurement:
        return Measurement("r", "d", "1", "c", "k", "{}", "std", "O3", SCREEN.label, "p", "s", Status.OK, size=size)

    assert row("seq_len=512").key == row("rows=512").key
    assert row("seq_len=512").key != row("seq_len=509").key
    assert row("").key != row("seq_len=512").key
