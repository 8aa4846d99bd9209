"""Timing on the GPU: graphs against plain events, cold against warm, memory that runs out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emmy.bench.artefact import Case
from emmy.bench.timing import rotation_sets
from emmy.device.base import Capabilities
from emmy.errors import OutOfMemory
from tests.gpu.hand import add

pytestmark = pytest.mark.gpu

MB = 1 << 20


@pytest.fixture(scope="module")
def device(caps: Capabilities, folder: Path) -> Iterator[Any]:
    """A device in this very process: what is timed here never fails."""
    import os

    from emmy.device.cuda import CudaDevice

    before = os.environ.get("EMMY_BINARIES")
    os.environ["EMMY_BINARIES"] = str(folder / "cuda")
    try:
        device = CudaDevice()
    finally:
        os.environ.pop("EMMY_BINARIES")
        if before is not None:
            os.environ["EMMY_BINARIES"] = before
    yield device
    device.close()


def bindings(device: Any, n: int, sets: int) -> tuple[list[Any], list[Any]]:
    """(``add`` bound to each of ``sets`` buffer sets of n elements, all buffers)."""
    artefact = add("good", sizes=(n,), block=(256, 1))
    executable = device.compile(artefact, "O3")
    case: Case = artefact.cases[0]
    bounds, held = [], []
    for _ in range(sets):
        buffers = {spec.name: device.alloc(4 * n) for spec in case.buffers}
        for buffer in buffers.values():
            device.upload(buffer, np.ones(n, np.float32))
        bounds.append(device.bind(executable, case, buffers))
        held += buffers.values()
    device.run(bounds[0])
    return bounds, held


def test_graph_replays_agree_with_plain_events(device: Any) -> None:
    bounds, held = bindings(device, 64 * MB, 1)
    plain = statistics.median(device.sample(bounds, 1) for _ in range(20))
    graph = statistics.median(device.sample(bounds, 40) / 40 for _ in range(5))
    for buffer in held:
        device.free(buffer)
    assert abs(graph - plain) <= 0.2 * plain, f"graph {graph * 1e6:.1f} us, plain {plain * 1e6:.1f} us"


def test_repeats_that_no_graph_holds_whole_are_scaled(device: Any) -> None:
    bounds, held = bindings(device, 16 * MB, 3)
    many = statistics.median(device.sample(bounds, 200) / 200 for _ in range(5))
    odd = statistics.median(device.sample(bounds, 100) / 100 for _ in range(5))
    for buffer in held:
        device.free(buffer)
    assert abs(many - odd) <= 0.1 * many


def test_cold_is_slower_than_warm(device: Any) -> None:
    """Buffers that fit in the last-level cache: rotated beyond it they come from memory."""
    caps = device.caps
    n = caps.llc_bytes // 3 // 12
    each = 12 * n
    count = rotation_sets(each, caps.llc_bytes, caps.memory_bytes, "cold")
    assert count * each >= 2 * caps.llc_bytes
    bounds, held = bindings(device, n, count)
    cold = statistics.median(device.sample(bounds, 20 * count) / (20 * count) for _ in range(5))
    warm = statistics.median(device.sample(bounds[:1], 20 * count) / (20 * count) for _ in range(5))
    for buffer in held:
        device.free(buffer)
    assert cold > 1.1 * warm, f"cold {cold * 1e6:.1f} us, warm {warm * 1e6:.1f} us"


def test_memory_that_runs_out_is_a_typed_failure_and_comes_back(device: Any) -> None:
    part = device.caps.memory_bytes // 8
    for _ in range(2):
        held: list[Any] = []
        with pytest.raises(OutOfMemory, match="no buffer of"):
            held.extend(device.alloc(part) for _ in range(9))
        for buffer in held:
            device.free(buffer)
        assert len(held) >= 5


def test_clocks(device: Any) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    clock, reasons = device.clocks()
    assert clock > 100
    assert isinstance(reasons, str)


def test_the_start_of_a_kernel_costs_the_same_after_many_streams(device: Any) -> None:
    """Sixteen streams in use make every kernel of the process start later; a sample begins without that."""
    bounds, held = bindings(device, 1024, 1)

    def launch_us() -> float:
        return statistics.median(device.sample(bounds, 4096) / 4096 for _ in range(5)) * 1e6

    def settled_not() -> float:
        graph, begin, end = device.graph(bounds, 64), device.cp.cuda.Event(), device.cp.cuda.Event()
        begin.record(device.stream)
        for _ in range(64):
            graph.launch(device.stream)
        end.record(device.stream)
        end.synchronize()
        return float(device.cp.cuda.get_elapsed_time(begin, end)) * 1e3 / 4096

    before = launch_us()
    streams = [device.cp.cuda.Stream(non_blocking=True) for _ in range(20)]
    stream = device.stream
    for device.stream in streams:
        device.run(bounds[0])
    device.stream = stream
    raised = settled_not()
    after = launch_us()
    for buffer in held:
        device.free(buffer)
    print(f"{before:.3f} us, with 20 streams {raised:.3f} us, settled {after:.3f} us")
    assert abs(after - before) <= 0.05 * before, f"{before:.3f} us before, {raised:.3f} us raised, {after:.3f} us after"
    # whether streams raise it depends on the driver and the GPU, but a sample that was not settled gains nothing
    assert raised >= 0.95 * after, f"{raised:.3f} us with 20 streams, {after:.3f} us settled"
    assert device.cp.cuda.driver.ctxGetCurrent(), "the process's own context is current again"


def test_a_reference_is_settled_as_well(device: Any) -> None:
    from emmy.bench.inputs import InputSpec
    from emmy.bench.jobs import ReferenceCase, ReferenceSet, TorchSource
    from emmy.bench.torch_rows import torch_row

    settled: list[None] = []
    refs = ReferenceSet("beside", 0, (ReferenceCase({}, (InputSpec("x0", 0, (256, 256), "f32"),)),))
    row = torch_row(TorchSource("def f(x0): return x0 @ x0"), refs, device, "warm")
    row.settle = lambda: settled.append(device.settle())  # type: ignore[attr-defined]
    row.qualify(lambda path: np.empty(0))
    qualified = len(settled)
    assert row.sample(64, 0) > 0
    assert (qualified, len(settled)) == (3, 4)
