"""Φ, the distribution function of the standard normal, in float32: what GELU multiplies its argument by.

With t = |x| and q = 2^P(t) it is q where x is negative and 1 - q elsewhere. P, a polynomial of degree 8 with P(0) = -1,
stands for log2 Φ(-t): smooth, so that one polynomial does for every x, without a choice between two of them as in
erf. Its coefficients minimise the error of q on t ≤ 5, absolute down to q = 5e-4 and relative to q below; beyond, P
falls on, so that q ends in 0 and Φ(±∞) are 0 and 1.

Against float64 over -8 … 8 the error is at most 1.0e-7 with an exact 2^P (0.6e-7 for PyTorch's (1 + erf(x/√2))/2 in
float32), and relative to Φ at most 7e-5 down to x = -5, where PyTorch's formula has one correct digit left; at -6 it is
1.3 %.
"""

from __future__ import annotations

from emmy.codegen.text import float_digits

COEFFICIENTS = (
    -1.0, -1.1511080265045166, -0.45917487144470215, -0.052620116621255875, 0.007270696572959423,
    -0.00031320445123128593, -0.00010766967170638964, 2.2064923541620374e-05, -1.3536550795834046e-06,
)  # fmt: skip
"""Of P, constant first."""


def horner(t: str, scale: float = 1.0, splat: str = "{}") -> str:
    """Text of ``scale`` · P(t); ``splat`` makes a constant what ``t`` is."""
    constants = [splat.format(float_digits(scale * value) + "f") for value in COEFFICIENTS]
    text = constants.pop()
    while constants:
        text = f"({text} * {t} + {constants.pop()})"
    return text
