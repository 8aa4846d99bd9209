"""A golden: the recorded best configuration of a named shape on one GPU, and how it is spelled in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emmy.goldens.dataset import KINDS, Shape, dtype_of_name
from emmy.ir.dtype import DType
from emmy.schedule.knobs import KnobMap, Lane
from emmy.target import DynamicSpec

Scalar = str | int | float | bool

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_@./:+-]*(?<!:)")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


@dataclass(frozen=True, slots=True)
class GoldenConfig:
    """One entry of a golden file.

    ``written`` are the knobs letter for letter as the file has them, ``knobs`` what they mean (older spellings
    translated).  Latencies are microseconds of the O3 build; the reference is cuBLAS, or eager PyTorch on a device
    without cuBLAS: exactly one of the two.  ``line`` and ``device`` say where the entry stands and do not compare.
    """

    kernel: str
    name: str
    dims: tuple[tuple[str, int], ...]
    dtype: DType
    written: tuple[tuple[str, Scalar], ...]
    emmy_us: float
    cublas_us: float | None = None
    eager_us: float | None = None
    dynamic: DynamicSpec | None = None
    causal: bool = False
    line: int = field(default=0, compare=False)
    device: str = field(default="", compare=False)

    @classmethod
    def of(
        cls,
        shape: Shape,
        knobs: Mapping[str, Any] | KnobMap,
        emmy_us: float,
        *,
        cublas_us: float | None = None,
        eager_us: float | None = None,
    ) -> GoldenConfig:
        """A new entry for a shape of the dataset; ``knobs`` is a record (every family stamped)."""
        record = knobs.to_dict() if isinstance(knobs, KnobMap) else dict(knobs)
        return cls(
            shape.kind,
            shape.name,
            shape.dims,
            shape.dtype,
            tuple(record.items()),
            float(emmy_us),
            cublas_us,
            eager_us,
            shape.dynamic,
            shape.causal,
        )

    @property
    def knobs(self) -> KnobMap:
        """What the knobs mean.  Spellings that the grammar does not know are RawKnobs."""
        return KnobMap.parse(dict(self.written), keep_unknown=True)

    def dim(self, name: str) -> int:
        return dict(self.dims)[name]

    @property
    def reference_us(self) -> float:
        return self.cublas_us if self.cublas_us is not None else self.eager_us or 0.0

    @property
    def reference(self) -> str:
        """``cublas`` or ``eager``."""
        return "cublas" if self.cublas_us is not None else "eager"

    @property
    def ratio(self) -> float:
        """``emmy_us / reference_us``, the direction of *vs cuBLAS*: below 1 emmy is the faster one."""
        return self.emmy_us / self.reference_us

    @property
    def golden(self) -> bool:
        """Whether emmy is at least as fast as the reference was."""
        return self.ratio <= 1.0

    @property
    def lane(self) -> Lane:
        return self.knobs.lane

    @property
    def fast_math(self) -> bool:
        """Whether the knobs trade precision (an f16-accumulate or tf32 atom, FAST_EXP)."""
        return self.lane == "fm"

    def lines(self) -> list[str]:
        """The entry in a file's form, without indentation: a ``- `` and nine fields or so."""
        pairs: list[tuple[str, str]] = [("kernel", self.kernel), ("name", self.name)]
        pairs += [(dim, str(size)) for dim, size in self.dims]
        if self.causal:
            pairs.append(("causal", "true"))
        if self.dtype is not dtype_of_name(self.name):
            pairs.append(("dtype", str(self.dtype)))
        if self.dynamic is not None:
            spec = self.dynamic
            pairs.append(("dynamic", f"{{{spec.name}: {{input: {spec.input}, axis: {spec.axis}}}}}"))
        pairs += [("knobs", flow_knobs(dict(self.written))), ("emmy_us", number(self.emmy_us))]
        pairs.append((f"{self.reference}_us", number(self.reference_us)))
        return [f"{'- ' if place == 0 else '  '}{key}: {value}" for place, (key, value) in enumerate(pairs)]

    def to_json(self) -> dict[str, Any]:
        """Plain values that :meth:`from_json` reads back."""
        return {
            "kernel": self.kernel,
            "name": self.name,
            **dict(self.dims),
            "causal": self.causal,
            "dtype": str(self.dtype),
            "dynamic": str(self.dynamic) if self.dynamic else None,
            "knobs": dict(self.written),
            "emmy_us": self.emmy_us,
            f"{self.reference}_us": self.reference_us,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> GoldenConfig:
        """Raises KeyError, TypeError or ValueError for a value that :meth:`to_json` did not make."""
        return cls(
            value["kernel"],
            value["name"],
            tuple((dim, int(value[dim])) for dim in KINDS[value["kernel"]].dims),
            DType(value["dtype"]),
            tuple(value["knobs"].items()),
            float(value["emmy_us"]),
            float(value["cublas_us"]) if "cublas_us" in value else None,
            float(value["eager_us"]) if "eager_us" in value else None,
            DynamicSpec.parse(value["dynamic"]) if value["dynamic"] else None,
            bool(value["causal"]),
        )


def flow_knobs(knobs: Mapping[str, Scalar]) -> str:
    """``{TILE: n16x8/f2x4, STAGE: ''}``"""
    return "{" + ", ".join(f"{scalar(name)}: {scalar(value)}" for name, value in knobs.items()) + "}"


def scalar(value: Scalar) -> str:
    """A scalar in YAML's flow style: plain where that reads back as the same value, else single-quoted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return "'" + value.replace("'", "''") + "'"


def number(value: float) -> str:
    """The shortest text that reads back as ``value``."""
    return repr(float(value)) if isinstance(value, float) else repr(value)


def round_us(value: float) -> float:
    """A latency as files record it: four significant digits, at most three decimals."""
    return max(0.001, round(value, 3 if value < 10 else 2 if value < 100 else 1))
