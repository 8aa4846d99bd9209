"""Element types: storage width, kind, and the type arithmetic on them is done in."""

from __future__ import annotations

import enum


class DType(enum.StrEnum):
    """An element type. ``f16`` and ``bf16`` are storage types: arithmetic on them is done in float32."""

    BOOL = "bool"
    U8 = "u8"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @property
    def nbytes(self) -> int:
        """Storage size in bytes."""
        return _NBYTES[self.value]

    @property
    def is_float(self) -> bool:
        return self.value in ("f16", "bf16", "f32", "f64")

    @property
    def is_int(self) -> bool:
        return self.value in ("u8", "i8", "i16", "i32", "i64")

    @property
    def compute(self) -> DType:
        """The type arithmetic is carried out in: float32 for the 16-bit floats, otherwise the type itself."""
        return DType.F32 if self.value in ("f16", "bf16") else self


_NBYTES = {"bool": 1, "u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}
