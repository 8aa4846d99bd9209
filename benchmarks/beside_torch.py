"""What a launch costs beside PyTorch: ``python -m benchmarks.beside_torch``.

One small kernel in a CUDA graph of 64 launches, timed alone and then again after each step by which PyTorch moves into
the process: its import, its context, a product by cuBLAS, a graph of its own, a replay of it. Prints microseconds a
launch (median of 30 replays) after each step, for an empty kernel and for one that copies 4 MiB.

Confirmations of emmy's rows beside eager PyTorch are some 0.35 us a kernel above those without it, whatever the kernel
(NVIDIA H200, 2026-11-30); this is to find which step does it.
"""

from __future__ import annotations

import statistics
from typing import Any

LAUNCHES, REPLAYS, WARM = 64, 30, 5
BYTES = 4 << 20

SOURCE = """
extern "C" __global__ void empty() {}
extern "C" __global__ void copy(const uint4* x, uint4* z) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  z[at] = x[at];
}
"""


class Probe:
    """The two kernels in graphs of their own."""

    def __init__(self) -> None:
        import cupy as cp

        self.cp, self.stream = cp, cp.cuda.Stream(non_blocking=True)
        module = cp.RawModule(code=SOURCE)
        x, z = cp.zeros(BYTES, cp.uint8), cp.zeros(BYTES, cp.uint8)
        self.held = (module, x, z)
        self.kernels: dict[str, Any] = {
            "empty": lambda: module.get_function("empty")((1,), (32,), ()),
            "copy": lambda: module.get_function("copy")((BYTES // 16 // 256,), (256,), (x, z)),
        }
        self.graphs = {name: self.captured(name) for name in self.kernels}

    def captured(self, name: str) -> Any:
        with self.stream:
            self.kernels[name]()
            self.stream.synchronize()
            self.stream.begin_capture()
            for _ in range(LAUNCHES):
                self.kernels[name]()
            graph = self.stream.end_capture()
            graph.upload(self.stream)
        return graph

    def time(self, graph: Any) -> float:
        """Microseconds a launch, several replays between two events."""
        begin, end = self.cp.cuda.Event(), self.cp.cuda.Event()
        found = []
        for _ in range(REPLAYS):
            begin.record(self.stream)
            for _ in range(WARM):
                graph.launch(self.stream)
            end.record(self.stream)
            end.synchronize()
            found.append(self.cp.cuda.get_elapsed_time(begin, end) * 1e3 / (WARM * LAUNCHES))
        return statistics.median(found)

    def report(self, step: str) -> None:
        """A line: graphs captured at the start, and captured now."""
        old = {name: self.time(graph) for name, graph in self.graphs.items()}
        new = {name: self.time(self.captured(name)) for name in self.graphs}
        words = "  ".join(f"{name} {old[name]:6.3f} us, captured now {new[name]:6.3f}" for name in old)
        print(f"{step:28} {words}", flush=True)


def main() -> None:
    probe = Probe()
    probe.report("alone")
    import torch

    probe.report("torch imported")
    torch.cuda.init()
    torch.cuda.synchronize()
    probe.report("its context")
    a = torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    probe.report("a tensor")
    b = a @ a
    torch.cuda.synchronize()
    probe.report("a product")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            b = a @ a
    torch.cuda.synchronize()
    probe.report("a graph of its own")
    graph.replay()
    torch.cuda.synchronize()
    probe.report("a replay of it")
    del graph, b
    torch.cuda.empty_cache()
    probe.report("the graph gone")


if __name__ == "__main__":
    main()
