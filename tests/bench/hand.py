"""Hand-written OpenCL artefacts for the tests: z = x + y and its broken relatives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emmy.bench.artefact import Artefact, BufferSpec, Case, KernelSpec, StepSpec
from emmy.bench.inputs import InputSpec, generate
from emmy.bench.jobs import ReferenceCase, ReferenceSet

BODIES = {
    "good": "if (i < n) z[i] = x[i] + y[i];",
    "slow": "if (i < n) { float s = 0; for (int k = 0; k < 40; k++) s += sin(x[i] + k); z[i] = x[i] + y[i] + 0 * s; }",
    "endless": "volatile int go = 1; while (go) { } if (i < n) z[i] = x[i] + y[i];",
    "out_of_bounds": "if (i < n) z[i] = x[i] + y[i]; if (i == 0) z[n + 3] = 1;",
    "before_bounds": "if (i < n) z[i] = x[i] + y[i]; if (i == 0) z[-1] = 1;",
    "segfault": "z[(long)i * 4000000000L + 400000000000L] = x[i];",
    "broken": "z[i] = x[i] + ;",
    "silent": "if (i < 0) z[i] = x[i];",
    "half_silent": "if (i < n / 2) z[i] = x[i] + y[i];",
    "wrong": "if (i < n) z[i] = x[i] + y[i] * 1.01f;",
    "one_wrong": "if (i < n) z[i] = x[i] + y[i] + (i == 17 ? 0.01f : 0.0f);",
    "writes_input": "if (i < n) { z[i] = x[i] + y[i]; ((__global float*)x)[i] = 0; }",
}


def add(kind: str = "good", sizes: tuple[int, ...] = (4096,), block: int = 64) -> Artefact:
    """z = x + y for each size of a symbolic n; ``kind`` picks the body."""
    source = f"""
__kernel void add_{kind}(__global const float* x, __global const float* y, __global float* z, const int n) {{
  const int i = get_global_id(0);
  {BODIES[kind]}
}}
"""
    args = (("x", "buffer", "f32"), ("y", "buffer", "f32"), ("z", "buffer", "f32"), ("n", "scalar", "i32"))
    name = f"add_{kind}"
    cases = tuple(
        Case(
            {"n": n},
            tuple(BufferSpec(b, "f32", (n,), "out" if b == "z" else "in") for b in "xyz"),
            (StepSpec(name, (-(-n // block), 1, 1), ("x", "y", "z", "n")),),
        )
        for n in sizes
    )
    return Artefact(
        name, "opencl", (), (KernelSpec(name, source, (block, 1), 0, args),), cases, sizes[0], 12 * sizes[0]
    )


def add_references(folder: Path, sizes: tuple[int, ...] = (4096,), seed: int = 0) -> ReferenceSet:
    """float64 references of ``add``."""
    cases = []
    for n in sizes:
        inputs = (InputSpec("x", 0, (n,), "f32"), InputSpec("y", 1, (n,), "f32"))
        x, y = (generate(seed, spec).astype(np.float64) for spec in inputs)
        np.save(folder / f"z-{n}.npy", x + y)
        np.save(folder / f"s-{n}.npy", np.abs(x) + np.abs(y))
        cases.append(
            ReferenceCase({"n": n}, inputs, {"z": str(folder / f"z-{n}.npy")}, {"z": str(folder / f"s-{n}.npy")})
        )
    return ReferenceSet(f"add-{sizes}-{seed}", seed, tuple(cases))
