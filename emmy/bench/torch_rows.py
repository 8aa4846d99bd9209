"""A PyTorch program as a row of a comparison: same data, same rotation, same cores or the same GPU.

Imported by the worker for a job with a reference in it, and nowhere else.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from emmy.bench.check import TOLERANCES, compare
from emmy.bench.inputs import STORAGE, InputSpec, generate, memory_image, span
from emmy.bench.jobs import ReferenceSet, TorchSource
from emmy.bench.timing import rotation_sets
from emmy.device.base import Device
from emmy.errors import InputError, LaunchFailed

_TYPES = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
}
SETTLE_S = 0.005
"""Pause after a sample. An OpenMP pool spins about a millisecond for more work before it sleeps, on the cores that an
OpenCL row is timed on next (2 cores of an AMD EPYC: the row's next 3 ms came out 10 to 30 % slower)."""

GRAPH_LAUNCHES = 64
"""Calls a CUDA graph holds at least, where as many are wanted: those of emmy's own rows."""

_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def tensor(image: np.ndarray, spec: InputSpec) -> torch.Tensor:
    """A tensor over its own copy of the flat memory ``image``, with the spec's shape, strides and type."""
    flat = torch.from_numpy(image.copy())
    typed = flat.view(_TYPES[spec.dtype]) if spec.dtype in ("bf16", "bool") else flat
    return typed.as_strided(spec.shape, spec.strides) if spec.strides else typed.view(spec.shape)


def load(source: str) -> Callable[..., Any]:
    """The function ``f`` that a source text defines. Raises InputError when it defines none."""
    scope: dict[str, Any] = {"torch": torch, "F": F, "nn": nn, "math": math}
    exec(compile(source, "<reference>", "exec"), scope)
    if "f" not in scope:
        raise InputError("reference source", found="no function f", expected="def f(x0, ...)")
    function: Callable[..., Any] = scope["f"]
    return function


def torch_row(source: TorchSource, refs: ReferenceSet, device: Device, cache: str) -> TorchRow:
    """The program on the device of emmy's own rows."""
    return (CudaTorchRow if device.caps.language == "cuda" else TorchRow)(source, refs, device, cache)


class TorchRow:
    """One program with tensors for every set of the rotation, on the CPU."""

    place = "cpu"

    def __init__(self, source: TorchSource, refs: ReferenceSet, device: Device, cache: str) -> None:
        caps = device.caps
        self.case = refs.cases[0]
        torch.set_num_threads(caps.units if caps.kind == "cpu" else torch.get_num_threads())
        specs = {spec.name: spec for spec in self.case.inputs}
        taken = [specs[name] for name in source.inputs] if source.inputs else list(self.case.inputs)
        images = [memory_image(generate(refs.seed, spec), spec.strides) for spec in taken]
        self.function = torch.compile(load(source.source)) if source.compile else load(source.source)
        first = [tensor(image, spec).to(self.place) for image, spec in zip(images, taken, strict=True)]
        with torch.inference_mode():
            outputs = _flat(self.function(*first))
        # An eager program allocates its outputs, so they rotate only as far as the allocator does; the inputs' share is
        # what is left to be cold, and the sets are as many as emmy's own.
        each = sum(span(s.shape, s.strides) * STORAGE[s.dtype].itemsize for s in taken)
        each += sum(o.numel() * o.element_size() for o in outputs)
        count = rotation_sets(each, caps.llc_bytes, caps.memory_bytes, cache)
        self.sets = [first]
        for _ in range(count - 1):
            self.sets.append([kept.clone() for kept in first])
        self.outputs = outputs

    def qualify(self, loaded: Callable[[str], np.ndarray]) -> tuple[float, float | None]:
        """(rough seconds, relative error). Raises LaunchFailed when the program computes something else than emmy's.

        Outputs are matched with the references in order; without references the error is None.
        """
        worst: float | None = None
        for name, out in zip(self.case.outputs, self.outputs, strict=False):
            dtype = _NAMES[out.dtype]
            host = out.contiguous().cpu()
            stored = host.view(torch.int16).numpy().view(np.uint16) if dtype == "bf16" else host.numpy()
            reference = loaded(self.case.outputs[name])
            if stored.size != reference.size:
                raise LaunchFailed(f"reference output {name} has {stored.size} elements, expected {reference.size}")
            # Frameworks accumulate in other orders and narrower types; the fast-math lane's bounds are wide enough.
            tolerance = TOLERANCES.get(("fm", dtype), TOLERANCES["fm", "f32"])
            verdict = compare(np.ascontiguousarray(stored).reshape(reference.shape), reference, None, dtype, tolerance)
            if verdict.reason:
                raise LaunchFailed(f"the reference program disagrees with emmy's meaning of it: {verdict.reason}")
            worst = max(worst or 0.0, verdict.rel_error)
        self.outputs = []
        self.sample(1, 0)
        return min(self.sample(1, turn) for turn in (1, 2)), worst

    def sample(self, repeats: int, first: int) -> float:
        """Seconds for ``repeats`` calls that rotate over the sets, after one that wakes the threads."""
        sets, count, function = self.sets, len(self.sets), self.function
        with torch.inference_mode():
            function(*sets[(first - 1) % count])
            started = time.perf_counter()
            for turn in range(first, first + repeats):
                function(*sets[turn % count])
            seconds = time.perf_counter() - started
        time.sleep(SETTLE_S)
        return seconds


class CudaTorchRow(TorchRow):
    """The program on the current GPU, in CUDA graphs like emmy's own rows. float32 stays float32 (no tf32)."""

    place = "cuda"

    def __init__(self, source: TorchSource, refs: ReferenceSet, device: Device, cache: str) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.settle = device.settle
        super().__init__(source, refs, device, cache)

    def sample(self, repeats: int, first: int) -> float:
        """Seconds for ``repeats`` calls, by events around graph replays; a graph holds whole turns over the sets."""
        count = len(self.sets)
        held = count * max(1, -(-min(repeats, GRAPH_LAUNCHES) // count)) if repeats >= count else repeats
        graph = self.graphs.get(held) or self.captured(held)
        replays = max(1, round(repeats / held))
        torch.cuda.synchronize()
        self.settle()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(replays):
            graph.replay()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3 * repeats / (held * replays)

    def captured(self, held: int) -> torch.cuda.CUDAGraph:
        """``held`` calls in one graph. As many outputs stay alive as there are sets, so that they rotate as well."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(stream):
            for turn in range(3):
                self.function(*self.sets[turn % len(self.sets)])
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        alive: deque[Any] = deque(maxlen=len(self.sets))
        with torch.inference_mode(), torch.cuda.graph(graph):
            for turn in range(held):
                alive.append(self.function(*self.sets[turn % len(self.sets)]))
        self.graphs[held] = graph
        torch.cuda.synchronize()
        return graph


def _flat(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [item for part in result for item in _flat(part)]
