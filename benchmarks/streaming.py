"""How fast a kernel that only streams can be: ``python -m benchmarks.streaming`` prints the ceilings as JSON.

A ceiling is the best of several plain kernels (block sizes, vectors a thread, cache hints) that read some tensors and
write others once, with nothing computed, over buffers far beyond the last-level cache. It runs in a process of its own,
so that the parent holds no context.

``--cold`` measures them at the sizes of the row bars instead, in one CUDA graph over sets of buffers that exceed the
caches together, as rows are timed: what a small row kernel could reach at best.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from itertools import product
from typing import Any

from benchmarks.needs import gpu
from emmy.cli.main import guarded
from emmy.errors import MissingPrerequisite

THREADS = (128, 256, 512, 1024)
VECTORS = (1, 2, 4, 8)
"""128-bit accesses a thread and tensor."""

HINTS = {"": ("*({0})", "*({0}) = {1}"), "cs": ("__ldcs({0})", "__stcs({0}, {1})")}
"""Plain accesses, and those that mark a line as streamed."""

MIXES = {"copy": (1, 1), "read": (1, 0), "join": (2, 1)}
"""(tensors read, tensors written): softmax and rms_norm; a row sum; silu(x)·y."""

SIZES = (16384 * 8192 * 4, 16384 * 8192 * 2)
SAMPLES, LAUNCHES = 7, 6


def source(mix: str, vectors: int, hint: str) -> str:
    """One kernel: each block takes ``vectors`` consecutive stripes of every tensor."""
    reads, writes = MIXES[mix]
    load, store = HINTS[hint]
    lines = [f'extern "C" __global__ void {name(mix, vectors, hint)}(const uint4* x, const uint4* y, uint4* z) {{']
    lines.append(f"  const long long at = (long long)blockIdx.x * blockDim.x * {vectors} + threadIdx.x;")
    for v in range(vectors):
        lines.append(f"  const uint4 a{v} = {load.format(f'x + at + {v} * blockDim.x')};")
        if reads == 2:
            lines.append(f"  const uint4 b{v} = {load.format(f'y + at + {v} * blockDim.x')};")
    for v in range(vectors):
        value = (
            f"make_uint4(a{v}.x ^ b{v}.x, a{v}.y ^ b{v}.y, a{v}.z ^ b{v}.z, a{v}.w ^ b{v}.w)" if reads == 2 else f"a{v}"
        )
        if writes:
            lines.append(f"  {store.format(f'z + at + {v} * blockDim.x', value)};")
    if not writes:
        total = " ^ ".join(f"a{v}.{c}" for v in range(vectors) for c in "xyzw")
        # Never true of the data, and nothing the compiler could know.
        lines.append(f"  if (({total}) == 0x9e3779b9u) z[0] = a0;")
    return "\n".join([*lines, "}"])


def name(mix: str, vectors: int, hint: str) -> str:
    return f"stream_{mix}_{vectors}{hint}"


FILL = """
extern "C" __global__ void fill(unsigned* x, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
    unsigned h = (unsigned)i * 2654435761u; h ^= h >> 15; h *= 2246822519u; x[i] = (h ^ (h >> 13)) | 1u;
  }
}
"""


def measure() -> dict[str, Any]:
    """``{mix}.{bytes of a tensor}``: microseconds, bytes a second and the kernel of the fastest one."""
    import cupy as cp

    text = FILL + "\n".join(source(m, v, h) for m in MIXES for v in VECTORS for h in HINTS)
    module = cp.RawModule(code=text)
    stream = cp.cuda.Stream(non_blocking=True)
    found: dict[str, Any] = {"device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    with stream:
        buffers = [cp.cuda.alloc(max(SIZES)) for _ in range(3)]
        for buffer in buffers:
            fill = module.get_function("fill")
            fill((4096,), (256,), (buffer.ptr, cp.int64(max(SIZES) // 4)))
        stream.synchronize()
        arguments = tuple(cp.uint64(buffer.ptr) for buffer in buffers)
        for mix, (reads, writes) in MIXES.items():
            for size in SIZES:
                tried = []
                for vectors, hint, threads in product(VECTORS, HINTS, THREADS):
                    kernel = module.get_function(name(mix, vectors, hint))
                    seconds = timed(cp, stream, kernel, arguments, size, threads, vectors)
                    tried.append((seconds, f"{name(mix, vectors, hint)} x {threads}"))
                seconds, best = min(tried)
                rate = (reads + writes) * size / seconds
                found[f"{mix}.{size}"] = {"us": seconds * 1e6, "bytes_s": rate, "kernel": best}
    return found


COLD_SIZES = (2048 * 2048 * 4, 512 * 4096 * 2)
COLD_BYTES = 220_000_000
"""What the sets of buffers of a graph hold together, at least."""


def measure_cold() -> dict[str, Any]:
    """As ``measure``, at COLD_SIZES and cold."""
    import cupy as cp

    text = FILL + "\n".join(source(m, v, h) for m in MIXES for v in VECTORS for h in HINTS)
    module = cp.RawModule(code=text)
    found: dict[str, Any] = {"device": cp.cuda.runtime.getDeviceProperties(0)["name"].decode()}
    for (mix, (reads, writes)), size in product(MIXES.items(), COLD_SIZES):
        count = max(4, COLD_BYTES // ((reads + writes) * size) + 1)
        sets = [[cp.cuda.alloc(size) for _ in range(3)] for _ in range(count)]
        for buffer in (buffer for one in sets for buffer in one):
            module.get_function("fill")((1024,), (256,), (buffer.ptr, cp.int64(size // 4)))
        arguments = [tuple(cp.uint64(buffer.ptr) for buffer in one) for one in sets]
        tried = []
        for vectors, hint, threads in product(VECTORS, HINTS, THREADS):
            kernel = module.get_function(name(mix, vectors, hint))
            seconds = timed_cold(cp, kernel, arguments, (size // (16 * threads * vectors),), threads)
            tried.append((seconds, f"{name(mix, vectors, hint)} x {threads}"))
        seconds, best = min(tried)
        found[f"{mix}.{size}"] = {"us": seconds * 1e6, "bytes_s": (reads + writes) * size / seconds, "kernel": best}
    return found


def timed_cold(cp: Any, kernel: Any, arguments: list[tuple[Any, ...]], grid: tuple[int], threads: int) -> float:
    """Median seconds of a launch in a graph that takes the sets of buffers in turn, twice."""
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for one in (*arguments, *arguments):
            kernel(grid, (threads,), one)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        values = []
        for _ in range(SAMPLES):
            start, stop = cp.cuda.Event(), cp.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            values.append(cp.cuda.get_elapsed_time(start, stop) * 1e-3 / (2 * len(arguments)))
    return statistics.median(values)


def timed(
    cp: Any, stream: Any, kernel: Any, arguments: tuple[Any, ...], size: int, threads: int, vectors: int
) -> float:
    """Median seconds of a launch."""
    grid = (size // (16 * threads * vectors),)
    kernel(grid, (threads,), arguments)
    values = []
    for _ in range(SAMPLES):
        start, stop = cp.cuda.Event(), cp.cuda.Event()
        start.record(stream)
        for _ in range(LAUNCHES):
            kernel(grid, (threads,), arguments)
        stop.record(stream)
        stop.synchronize()
        values.append(cp.cuda.get_elapsed_time(start, stop) * 1e-3 / LAUNCHES)
    return statistics.median(values)


def ceilings(timeout_s: float = 120.0) -> dict[str, Any]:
    """``measure`` in a process of its own. Raises MissingPrerequisite with its last words."""
    command = [sys.executable, "-m", "benchmarks.streaming"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise MissingPrerequisite("the streaming kernels", found=f"no end after {timeout_s:g} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise MissingPrerequisite("the streaming kernels", found=words[0].removeprefix("error: "))
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("--cold", action="store_true", help="at the sizes of the row bars, beyond the caches")
    cold = parser.parse_args().cold
    gpu("streaming")
    print(json.dumps(measure_cold() if cold else measure()))


if __name__ == "__main__":
    sys.exit(guarded(main))
