"""What the start of a kernel costs, by the number of streams in use: ``python -m benchmarks.launch_cost``.

A CUDA graph of 64 empty kernels is timed again after each further stream that ran a kernel. Prints microseconds a
launch (median of 7 samples of 5 replays), and marks where it changed by more than a tenth.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.needs import gpu
from emmy.cli.main import guarded

LAUNCHES, REPLAYS, SAMPLES, STREAMS = 64, 5, 7, 20


class Probe:
    """An empty kernel in a graph of its own, on a stream of its own."""

    def __init__(self) -> None:
        import cupy as cp

        self.cp, self.stream = cp, cp.cuda.Stream(non_blocking=True)
        self.kernel = cp.RawModule(code='extern "C" __global__ void empty() {}').get_function("empty")
        with self.stream:
            self.launch()
            self.stream.synchronize()
            self.stream.begin_capture()
            for _ in range(LAUNCHES):
                self.launch()
            self.graph = self.stream.end_capture()
            self.graph.upload(self.stream)

    def launch(self) -> None:
        self.kernel((1,), (32,), ())

    def cost(self) -> float:
        """Microseconds a launch."""
        begin, end = self.cp.cuda.Event(), self.cp.cuda.Event()
        found = []
        for _ in range(SAMPLES):
            begin.record(self.stream)
            for _ in range(REPLAYS):
                self.graph.launch(self.stream)
            end.record(self.stream)
            end.synchronize()
            found.append(self.cp.cuda.get_elapsed_time(begin, end) * 1e3 / (REPLAYS * LAUNCHES))
        return statistics.median(found)


def main() -> None:
    gpu("launch_cost")
    probe = Probe()
    before = probe.cost()
    print(f" 1 stream   {before:.3f} us")
    held: list[Any] = []
    for count in range(2, STREAMS + 1):
        stream = probe.cp.cuda.Stream(non_blocking=True)
        held.append(stream)
        with stream:
            probe.launch()
        stream.synchronize()
        cost = probe.cost()
        print(f"{count:2} streams  {cost:.3f} us{'  changed' if abs(cost - before) > 0.1 * before else ''}", flush=True)
        before = cost
    held.clear()
    print(f"{STREAMS - 1} of them gone: {probe.cost():.3f} us")


if __name__ == "__main__":
    sys.exit(guarded(main))
