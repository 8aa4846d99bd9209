"""Functions of short vectors that OpenCL's own are slow at on CPUs, as OpenCL C text.

``exp`` of a float vector: ``x = n ln 2 + r`` by the rounding of a large addition, a polynomial of degree 6 in r
(coefficients minimise the relative error on |r| ≤ ln 2 / 2), and n added to the exponent's bits. At most 1.2 ulp;
infinities and NaN as they should be; a result below the smallest normal float becomes 0, as in PyTorch's vectorised
softmax. Multiply-adds are written as such: PoCL 3.0 takes ``fma`` of a vector lane by lane. In a softmax of 1024 × 4096
on one core of an AMD EPYC (Zen 4, float8, 2026-11-30) it takes 3.5 ms of processor time where PoCL's ``exp`` takes 4.4.

``fast_exp`` (the FAST_EXP gate) has degree 4, a relative error of 6e-6, and clamps its argument to ±87.

``normcdf`` is emmy.codegen.normal on that ``exp``.
"""

from __future__ import annotations

import math

from emmy.codegen.normal import horner

EXACT = ("1.3818699e-3f", "8.368779e-3f", "4.1668314e-2f", "1.666652e-1f", "0.49999994f", "1.0f", "1.0f")
FAST = ("4.1277368e-2f", "1.67536e-1f", "0.50005126f", "1.0f", "1.0f")


FUNCTIONS = {"exp": ("exp",), "fast_exp": ("fast_exp",), "normcdf": ("exp", "normcdf")}
"""What has a vector form of its own here, and which definitions it needs, itself last."""


def name_of(fn: str, lanes: int) -> str:
    """Name of the helper function."""
    return f"emmy_{fn}x{lanes}"


def definition(fn: str, lanes: int) -> str:
    """Definition of ``float{lanes} name(float{lanes} x)``."""
    return _normcdf(lanes) if fn == "normcdf" else _exp(fn, lanes)


def _exp(fn: str, lanes: int) -> str:
    v, i = f"float{lanes}", f"int{lanes}"
    fast = fn == "fast_exp"
    first, *rest = FAST if fast else EXACT
    polynomial = f"{v} p = ({v})({first});" + "".join(f" p = p * r + {c};" for c in rest)
    lines = [
        f"{v} t = x * 1.44269504f + 12582912.0f;",
        f"{v} n = t - 12582912.0f;",
        f"{v} r = n * -0.693145751953125f + x; r = n * -1.42860677e-6f + r;",
        polynomial,
        f"p = as_{v}(as_{i}(p) + (as_{i}(t) << 23));",
    ]
    if fast:
        lines.insert(0, f"x = x < -87.0f ? ({v})(-87.0f) : x; x = x > 87.0f ? ({v})(87.0f) : x;")
        lines.append("return p;")
    else:
        # a NaN fails both comparisons and leaves through the addition
        lines.append(f"p = x < -87.33654f ? ({v})(0.0f) : p;")
        lines.append("return x <= 88.72283f ? p : x + INFINITY;")
    body = "\n".join(f"    {line}" for line in lines)
    return f"static inline {v} {name_of(fn, lanes)}({v} x) {{\n{body}\n}}"


def _normcdf(lanes: int) -> str:
    v = f"float{lanes}"
    power = horner("t", math.log(2), f"({v})({{}})")
    body = f"{v} t = fabs(x); {v} q = {name_of('exp', lanes)}({power}); return x < 0.0f ? q : 1.0f - q;"
    return f"static inline {v} {name_of('normcdf', lanes)}({v} x) {{ {body} }}"
