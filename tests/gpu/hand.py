"""Hand-written CUDA artefacts: z = x + y, and its broken relatives."""

from __future__ import annotations

from emmy.bench.artefact import Artefact, BufferSpec, Case, KernelSpec, StepSpec

BODIES = {
    "good": "if (i < n) z[i] = x[i] + y[i];",
    # reads memory each time: a loop over a local variable is deleted, volatile or not
    "endless": "while (((const volatile int*)x)[0] != 0x7fedcba9) { } if (i < n) z[i] = x[i] + y[i];",
    "illegal": "z[(long long)i * 4000000000LL + 400000000000LL] = x[i];",
    "misaligned": "*(float4*)((char*)z + 4 * i) = make_float4(x[i], 0.0f, 0.0f, 0.0f);",
    "trap": "if (i == 0) __trap(); if (i < n) z[i] = x[i] + y[i];",
    "out_of_bounds": "if (i < n) z[i] = x[i] + y[i]; if (i == 0) z[n + 3] = 1;",
    "before_bounds": "if (i < n) z[i] = x[i] + y[i]; if (i == 0) z[-1] = 1;",
    "broken": "z[i] = x[i] + ;",
    "static_smem": "__shared__ float much[60000]; much[threadIdx.x] = x[i]; __syncthreads(); z[i] = much[n % 7];",
    "silent": "if (i < 0) z[i] = x[i];",
    "wrong": "if (i < n) z[i] = x[i] + y[i] * 1.01f;",
    "writes_input": "if (i < n) { z[i] = x[i] + y[i]; ((float*)x)[i] = 0; }",
}


def add(
    kind: str = "good", sizes: tuple[int, ...] = (4096,), block: tuple[int, int] = (64, 1), smem_bytes: int = 0
) -> Artefact:
    """z = x + y for each size of a symbolic n; ``kind`` picks the body."""
    name = f"add_{kind}"
    source = f"""
extern "C" __global__ void {name}(const float* x, const float* y, float* z, const int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {BODIES[kind]}
}}
"""
    args = (("x", "buffer", "f32"), ("y", "buffer", "f32"), ("z", "buffer", "f32"), ("n", "scalar", "i32"))
    cases = tuple(
        Case(
            {"n": n},
            tuple(BufferSpec(b, "f32", (n,), "out" if b == "z" else "in") for b in "xyz"),
            (StepSpec(name, (-(-n // block[0]), 1, 1), ("x", "y", "z", "n")),),
        )
        for n in sizes
    )
    kernel = KernelSpec(name, source, block, smem_bytes, args)
    return Artefact(name, "cuda", (), (kernel,), cases, sizes[0], 12 * sizes[0])
