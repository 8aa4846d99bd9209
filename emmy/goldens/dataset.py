"""The golden shapes of ``goldens/dataset.yaml``: names, sizes, dtypes, groups, and the PyTorch program of each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from emmy import config
from emmy.errors import InputError
from emmy.goldens.fields import Fields, compose, plain, read_text
from emmy.ir.dtype import DType
from emmy.target import DynamicSpec

LAYOUTS = ("kn", "nk")
"""The right operand of a matmul: K × N (``x @ w``), or the N × K weight of a linear."""

RMS_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Kind:
    """What the shapes of one kind have in common.

    ``dims`` are the fields of a shape, ``inputs`` the dimensions of x0, x1, …, ``symbolic`` the one dimension that may
    be symbolic, in every input that has it, and ``snippet`` the program with dimensions in braces.
    """

    name: str
    dims: tuple[str, ...]
    symbolic: str
    inputs: tuple[tuple[str, ...], ...]
    snippet: str


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("matmul", ("M", "N", "K"), "M", (("M", "K"), ("K", "N")), "x0 @ x1"),
        Kind("softmax", ("M", "N"), "M", (("M", "N"),), "torch.softmax(x0, -1)"),
        Kind("rms_norm", ("M", "N"), "M", (("M", "N"), ("N",)), f"F.rms_norm(x0, ({{N}},), x1, {RMS_NORM_EPS})"),
        Kind("reduce", ("M", "N"), "M", (("M", "N"),), "x0.sum(-1)"),
        Kind("pointwise", ("M", "N"), "M", (("M", "N"), ("M", "N")), "F.silu(x0) * x1"),
        Kind(
            "attention",
            ("B", "H", "S", "D"),
            "S",
            (("B", "H", "S", "D"),) * 3,
            "F.scaled_dot_product_attention(x0, x1, x2, is_causal={causal})",
        ),
    )
}

_SUFFIXES = {"fp16": DType.F16, "bf16": DType.BF16, "fp64": DType.F64}
DTYPES = (DType.F32, DType.F16, DType.BF16, DType.F64)


def dtype_of_name(name: str) -> DType:
    """The dtype that a shape's name says: ``.fp16``, ``.bf16``, ``.fp64``, else float32."""
    return next((_SUFFIXES[part] for part in name.split(".") if part in _SUFFIXES), DType.F32)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An example input: a symbolic axis has the hint's size in ``shape`` and its (axis, name) in ``symbolic``."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    symbolic: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A golden shape.  ``dims`` pairs the kind's dimension names with sizes; a symbolic one holds the hint (512)."""

    name: str
    kind: str
    dims: tuple[tuple[str, int], ...]
    dtype: DType
    groups: tuple[str, ...]
    dynamic: DynamicSpec | None = None
    causal: bool = False
    rhs: str = "kn"

    def dim(self, name: str) -> int:
        """The size of a dimension.  Raises KeyError for one that the kind does not have."""
        return dict(self.dims)[name]

    @property
    def dims_text(self) -> str:
        """``512 × 2048 × 1024``, the symbolic dimension marked ``512*``."""
        symbolic = KINDS[self.kind].symbolic if self.dynamic else None
        return " × ".join(f"{size}*" if name == symbolic else str(size) for name, size in self.dims)

    def snippet(self) -> str:
        """The program, in the language of ``-c``, over x0, x1, …"""
        if self.kind == "matmul" and self.rhs == "nk":
            return "F.linear(x0, x1)"
        return KINDS[self.kind].snippet.format(**dict(self.dims), causal=self.causal)

    def inputs(self) -> tuple[InputSpec, ...]:
        """The example inputs, in order."""
        kind, sizes = KINDS[self.kind], dict(self.dims)
        axes = list(kind.inputs)
        if self.rhs == "nk":
            axes[1] = ("N", "K")
        return tuple(
            InputSpec(
                f"x{place}",
                tuple(sizes[dim] for dim in dims),
                self.dtype,
                tuple((axis, self.dynamic.name) for axis, dim in enumerate(dims) if dim == kind.symbolic)
                if self.dynamic
                else (),
            )
            for place, dims in enumerate(axes)
        )


def read_dims(fields: Fields, kind: Kind) -> tuple[tuple[str, int], ...]:
    """Every dimension of the kind.  Raises GoldenSchemaError."""
    return tuple((dim, fields.size(dim)) for dim in kind.dims)


def read_dynamic(fields: Fields, kind: Kind, dims: tuple[tuple[str, int], ...]) -> DynamicSpec | None:
    """The symbolic axis of a shape or golden: ``dynamic: {seq_len: {input: x0, axis: 0}}``.

    Raises GoldenSchemaError for any axis but the kind's symbolic one (rows; attention: sequence) of x0, for a size
    other than the hint, and where the name and the field disagree.
    """
    named = fields.entry is not None and "dynM" in fields.entry.split(".")
    if not fields.has("dynamic"):
        fields.take("dynamic", lambda value: True, "a symbolic axis", False)
        if named:
            fields.fail("dynamic", expected="{seq_len: {input: x0, axis: 0}}, since the name says .dynM")
        return None
    block = fields.mapping("dynamic")
    if len(block.items) != 1:
        fields.fail("dynamic", found=f"{len(block.items)} symbolic axes", expected="one")
    (name,) = block.items
    where = block.mapping(name)
    spec = DynamicSpec(name, where.text("input"), where.index("axis"))
    where.done()
    axis = kind.inputs[0].index(kind.symbolic)
    if (spec.input, spec.axis) != ("x0", axis):
        place = int(spec.input[1:]) if spec.input[1:].isdigit() else len(kind.inputs)
        owner = kind.inputs[place] if place < len(kind.inputs) else ()
        which = f" ({owner[spec.axis]})" if spec.axis < len(owner) else ""
        fields.fail(
            "dynamic",
            found=f"{spec}{which}",
            expected=f"{name}@x0:{axis} ({kind.symbolic}): only that axis of a {kind.name} may be symbolic",
        )
    if dict(dims)[kind.symbolic] != config.SEQ_HINT:
        fields.fail(
            kind.symbolic, expected=f"{config.SEQ_HINT}, the hint at which a symbolic axis is tuned and benched"
        )
    if not named:
        fields.fail("name", expected="a name with .dynM, since the shape has a symbolic axis")
    return spec


def parse_dataset(text: str, file: object) -> tuple[Shape, ...]:
    """The shapes of a dataset's text.  Raises GoldenSchemaError."""
    root = compose(text, file)
    if root is None:
        return ()
    top = Fields(root, file, None)
    shapes: dict[str, Shape] = {}
    for node in top.sequence("shapes"):
        fields = Fields(node, file, None)
        shape = _read_shape(fields)
        if shape.name in shapes:
            fields.fail("name", found=f"{shape.name} a second time", expected="each name once")
        shapes[shape.name] = shape
    top.done()
    return tuple(shapes.values())


def _read_shape(fields: Fields) -> Shape:
    name = fields.text("name")
    kind = KINDS[fields.one_of("kind", KINDS)]
    dims = read_dims(fields, kind)
    dtype = DType(fields.one_of("dtype", DTYPES))
    if dtype is not dtype_of_name(name):
        fields.fail("dtype", expected=f"{dtype_of_name(name)}, as the name says")
    groups = tuple(plain(node) for node in fields.sequence("groups"))
    if not groups or not all(isinstance(group, str) for group in groups):
        fields.fail("groups", expected="a list of at least one name")
    causal = fields.flag("causal") if kind.name == "attention" else False
    rhs = fields.one_of("rhs", LAYOUTS) if kind.name == "matmul" else "kn"
    dynamic = read_dynamic(fields, kind, dims)
    fields.done()
    return Shape(name, kind.name, dims, dtype, groups, dynamic, causal, rhs)


def load_dataset(path: Path | None = None) -> tuple[Shape, ...]:
    """Every shape, in the file's order.  Raises InputError, GoldenSchemaError."""
    path = path if path is not None else config.goldens_dir() / "dataset.yaml"
    return _parsed(read_text(path), str(path))


@lru_cache(maxsize=8)
def _parsed(text: str, file: str) -> tuple[Shape, ...]:
    return parse_dataset(text, file)


def shapes(group: str | Iterable[str] | None = None, kernel: str | None = None) -> tuple[Shape, ...]:
    """The shapes of one or several groups whose name contains ``kernel``, in the file's order.

    ``group=None`` is every group.  Raises InputError for an unknown group, and where nothing is left.
    """
    every = load_dataset()
    wanted = None if group is None else {group} if isinstance(group, str) else set(group)
    known = tuple(dict.fromkeys(name for shape in every for name in shape.groups))
    for name in sorted(wanted or ()):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            raise InputError("unknown golden group", found=repr(name), expected=f"one of {', '.join(known)}", hint=hint)
    chosen = [shape for shape in every if wanted is None or wanted.intersection(shape.groups)]
    found = tuple(shape for shape in chosen if kernel is None or kernel in shape.name)
    if not found:
        near = nearest_names(kernel or "", [shape.name for shape in chosen])
        raise InputError(f"no golden shape has {kernel!r} in its name", hint=f"nearest: {', '.join(near)}")
    return found


def shape(name: str) -> Shape:
    """The shape of this name.  Raises InputError with the nearest names."""
    every = {known.name: known for known in load_dataset()}
    if name not in every:
        raise InputError(
            "unknown golden name", found=repr(name), hint=f"nearest: {', '.join(nearest_names(name, every))}"
        )
    return every[name]


def nearest_names(name: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The names most like ``name``, closest first; those that contain it come before the others."""
    names = list(names)
    holding = sorted((known for known in names if name and name in known), key=len)
    close = difflib.get_close_matches(name, names, n=count, cutoff=0.0)
    return list(dict.fromkeys([*holding[:count], *close]))[:count]
