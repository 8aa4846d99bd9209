"""The typed values of the knob families.  ``str(value)`` is the spelling that :func:`parse_value` reads back.

Every value is frozen, hashable and complete: it decides its family.  :data:`OFF` is the decision *off*, spelled ``''``;
a family that is absent from a map is not decided at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Residency = Literal["reg", "smem", "reread"]
SplitHow = Literal["k", "a", "c"]
Transport = Literal["sync", "async", "tma"]

RESIDENCIES: tuple[Residency, ...] = ("reg", "smem", "reread")
TRANSPORTS: tuple[Transport, ...] = ("sync", "async", "tma")
SPLIT_MEANINGS: dict[SplitHow, str] = {"k": "finalising kernel", "a": "atomics", "c": "cluster"}

ATOM_PATTERN = re.compile(
    r"(?P<unit>[a-z]+)_m(?P<m>[1-9]\d*)n(?P<n>[1-9]\d*)k(?P<k>[1-9]\d*)_(?P<input>[a-z]+\d+\w*?)_(?P<accumulate>[a-z]+\d+)"
)


def is_fast_math_atom(atom: str) -> bool:
    """Whether an atom of this name trades precision: it accumulates in float16, or reads float32 as tf32."""
    return atom.endswith("_f16_f16") or atom.endswith("_bf16_f16") or "_tf32" in atom


def _positive(owner: object, **fields: int) -> None:
    for name, value in fields.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; expected a positive integer")


@dataclass(frozen=True, slots=True)
class Off:
    """A family that was decided, and is off."""

    def __str__(self) -> str:
        return ""

    def __bool__(self) -> bool:
        return False


OFF = Off()


@dataclass(frozen=True, slots=True)
class Fuse:
    """FUSE: the region is cut into kernels, at the named step or (``at == ''``) before each of its reductions."""

    at: str = ""

    def __str__(self) -> str:
        return f"cut@{self.at}" if self.at else "cut"


@dataclass(frozen=True, slots=True)
class ScalarTile:
    """TILE of scalar threads: ``n``×``m`` threads, each ``fn``×``fm`` outputs in registers, k step ``k``.

    A block covers ``m * fm`` rows by ``n * fn`` columns.  ``k is None``: operands are not staged in steps.
    """

    n: int
    m: int
    fn: int
    fm: int
    k: int | None = None

    def __post_init__(self) -> None:
        _positive(self, n=self.n, m=self.m, fn=self.fn, fm=self.fm)
        if self.k is not None:
            _positive(self, k=self.k)

    @property
    def threads(self) -> int:
        return self.n * self.m

    @property
    def block_m(self) -> int:
        return self.m * self.fm

    @property
    def block_n(self) -> int:
        return self.n * self.fn

    def __str__(self) -> str:
        step = "" if self.k is None else f"/k{self.k}"
        return f"n{self.n}x{self.m}/f{self.fn}x{self.fm}{step}"


@dataclass(frozen=True, slots=True)
class AtomTile:
    """TILE of matrix atoms: ``wm``×``wn`` warps (wgmma: warpgroups), each ``fm``×``fn`` atoms, ``k`` atoms a k step."""

    atom: str
    wm: int
    wn: int
    fm: int = 1
    fn: int = 1
    k: int = 1

    def __post_init__(self) -> None:
        if ATOM_PATTERN.fullmatch(self.atom) is None:
            raise ValueError(f"AtomTile.atom is {self.atom!r}; expected a name like mma_m16n8k16_f16_f32")
        _positive(self, wm=self.wm, wn=self.wn, fm=self.fm, fn=self.fn, k=self.k)

    def _part(self, name: str) -> str:
        found = ATOM_PATTERN.fullmatch(self.atom)
        assert found is not None  # __post_init__ refused everything else
        return found[name]

    @property
    def unit(self) -> str:
        """The instruction family: ``mma`` (a warp) or ``wgmma`` (a warpgroup)."""
        return self._part("unit")

    @property
    def atom_shape(self) -> tuple[int, int, int]:
        """(m, n, k) of one atom, in elements."""
        return int(self._part("m")), int(self._part("n")), int(self._part("k"))

    @property
    def input_dtype(self) -> str:
        return self._part("input")

    @property
    def accumulate_dtype(self) -> str:
        return self._part("accumulate")

    @property
    def block_m(self) -> int:
        return self.wm * self.fm * self.atom_shape[0]

    @property
    def block_n(self) -> int:
        return self.wn * self.fn * self.atom_shape[1]

    @property
    def block_k(self) -> int:
        return self.k * self.atom_shape[2]

    def __str__(self) -> str:
        # A wgmma atom already spans the tile in n, so one atom a warpgroup is its plain form and goes unsaid.
        fragment = "" if self.unit == "wgmma" and (self.fm, self.fn) == (1, 1) else f"/f{self.fm}x{self.fn}"
        return f"a:{self.atom}/w{self.wm}x{self.wn}{fragment}/k{self.k}"


@dataclass(frozen=True, slots=True)
class RowTile:
    """TILE of a row kernel: rows a block, elements a vector access, and where a row lives between passes."""

    rows: int
    vec: int
    residency: Residency

    def __post_init__(self) -> None:
        _positive(self, rows=self.rows, vec=self.vec)
        if self.residency not in RESIDENCIES:
            raise ValueError(f"RowTile.residency is {self.residency!r}; expected one of {', '.join(RESIDENCIES)}")

    def __str__(self) -> str:
        return f"r{self.rows}/v{self.vec}/{self.residency}"


@dataclass(frozen=True, slots=True)
class Split:
    """A reduce axis split over ``parts`` blocks, joined by a finalising kernel (k), atomics (a) or in a cluster (c)."""

    parts: int
    how: SplitHow

    def __post_init__(self) -> None:
        _positive(self, parts=self.parts)
        if self.parts < 2:
            raise ValueError(f"Split.parts is {self.parts}; a split has at least 2 parts")
        if self.how not in SPLIT_MEANINGS:
            raise ValueError(f"Split.how is {self.how!r}; expected one of {', '.join(SPLIT_MEANINGS)}")

    def __str__(self) -> str:
        return f"g{self.parts}{self.how}"


@dataclass(frozen=True, slots=True)
class Cooperative:
    """A reduce axis shared by ``threads`` threads of one block."""

    threads: int

    def __post_init__(self) -> None:
        _positive(self, threads=self.threads)
        if self.threads < 2:
            raise ValueError(f"Cooperative.threads is {self.threads}; a cooperative reduction has at least 2 threads")

    def __str__(self) -> str:
        return f"c{self.threads}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """REDUCE: how a reduce axis is shared, over blocks (``split``), threads of a block (``cooperative``), or both."""

    split: Split | None = None
    cooperative: Cooperative | None = None

    def __post_init__(self) -> None:
        if self.split is None and self.cooperative is None:
            raise ValueError("Reduce() shares nothing; spell it OFF")

    def __str__(self) -> str:
        return "/".join(str(part) for part in (self.split, self.cooperative) if part is not None)


@dataclass(frozen=True, slots=True)
class Stage:
    """STAGE: the shared-memory ring's ``depth`` (buffers) and what fills it."""

    depth: int
    transport: Transport

    def __post_init__(self) -> None:
        _positive(self, depth=self.depth)
        if self.transport not in TRANSPORTS:
            raise ValueError(f"Stage.transport is {self.transport!r}; expected one of {', '.join(TRANSPORTS)}")

    def __str__(self) -> str:
        return f"d{self.depth}/{self.transport}"


@dataclass(frozen=True, slots=True)
class WarpSpec:
    """WSPEC: producer and consumer warpgroups; ``pingpong``: two consumers alternate between math and epilogue."""

    producers: int
    consumers: int
    pingpong: bool = False

    def __post_init__(self) -> None:
        _positive(self, producers=self.producers, consumers=self.consumers)

    def __str__(self) -> str:
        return f"p{self.producers}c{self.consumers}" + ("/pp" if self.pingpong else "")


@dataclass(frozen=True, slots=True)
class Raster:
    """RASTER: order of the blocks, cluster shape (m, n), persistent grid.

    ``order`` is ``'g8'`` (groups of 8 rows of blocks), ``'h'`` (Hilbert curve) or ``''`` (row-major).
    """

    order: str = ""
    cluster: tuple[int, int] | None = None
    persistent: bool = False

    def __post_init__(self) -> None:
        if re.fullmatch(r"(h|g[1-9]\d*)?", self.order) is None:
            raise ValueError(f"Raster.order is {self.order!r}; expected '', 'h' or a group like 'g8'")
        if self.cluster is not None:
            _positive(self, cluster_m=self.cluster[0], cluster_n=self.cluster[1])
        if not self.order and self.cluster is None and not self.persistent:
            raise ValueError("Raster() decides nothing; spell it OFF")

    @property
    def group(self) -> int | None:
        """Rows of blocks a group, or None when the order is not grouped."""
        return int(self.order[1:]) if self.order.startswith("g") else None

    def __str__(self) -> str:
        cluster = "" if self.cluster is None else f"c{self.cluster[0]}x{self.cluster[1]}"
        return "/".join(part for part in ("p" if self.persistent else "", self.order, cluster) if part)


@dataclass(frozen=True, slots=True)
class Gate:
    """A precision gate that is open (FAST_EXP: true).  A closed gate is :data:`OFF`."""

    def __str__(self) -> str:
        return "true"


@dataclass(frozen=True, slots=True)
class RawKnob:
    """A value that this grammar does not know, kept letter for letter: it loads and prints, and matches nothing."""

    value: str | int | float | bool

    def __str__(self) -> str:
        return str(self.value)


KnobValue = Off | Fuse | ScalarTile | AtomTile | RowTile | Reduce | Stage | WarpSpec | Raster | Gate | RawKnob
