"""What a region has to compute, in float64, once for each set of sizes: files that parent and workers read.

Computed by the NumPy interpreter of nests, which shares no code with what is checked. A folder under ``refs/`` is
written under another name and renamed when complete; it is named after the region's key, the seed, the kinds of
data and the sizes, so it never goes stale.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from emmy.bench.inputs import FLOATS, InputSpec, default_kind, generate, logical
from emmy.bench.jobs import ReferenceCase, ReferenceSet
from emmy.bench.records import digest
from emmy.ir.expr import Expr, Load, evaluate_int, walk
from emmy.ir.nest import Region, Symbol, Tensor, region_key
from emmy.threads import each

VERSION = 2
"""Of the data and of the scales: part of every folder's name."""

CHECK_SIZES = (509, 1)
"""Sizes of a symbolic axis, besides its hint, at which results are checked: a prime, and the smallest."""

BLOCK = 1 << 18
"""Elements of an array that are looked at together: they stay in a core's cache."""

SCALE_FLOOR = 1e-2
"""No element is held to a bound finer than this share of the output's root mean square."""


def check_sizes(symbols: Sequence[Symbol]) -> tuple[dict[str, int], ...]:
    """The other sizes a symbolic plan is checked at; empty for a static one."""
    if not symbols:
        return ()
    return tuple({symbol.name: max(size, symbol.least) for symbol in symbols} for size in CHECK_SIZES)


def reference(
    region: Region,
    folder: Path,
    sizes: Sequence[Mapping[str, int]] | None = None,
    seed: int = 0,
    kinds: Mapping[str, InputSpec] | None = None,
) -> ReferenceSet:
    """Inputs and float64 outputs of ``region`` at each of ``sizes`` (the hints, then ``check_sizes``).

    folder: the work folder, files go under ``refs/`` of it. kinds: a spec by input name whose kind, low and high
    replace what is derived (indices stay inside what they index).
    """
    every = [region.hints(), *check_sizes(region.symbols)] if sizes is None else [dict(s) for s in sizes]
    cases = tuple(_case(region, folder / "refs", values, seed, kinds or {}) for values in every)
    key = digest({"region": region_key(region), "names": [t.name for t in region.inputs],
                  "outs": [o.tensor.name for o in region.outputs],
                  "seed": seed, "cases": [_case_key(case) for case in cases]})  # fmt: skip
    return ReferenceSet(key, seed, cases)


def input_specs(region: Region, values: Mapping[str, int], kinds: Mapping[str, InputSpec]) -> tuple[InputSpec, ...]:
    """Shapes, strides and kinds of data of the region's inputs at the given symbol values."""
    limits = index_limits(region, values)
    specs = []
    for index, tensor in enumerate(region.inputs):
        dtype = tensor.dtype.value
        kind = default_kind(dtype)
        low, high = 0.0, float(limits.get(tensor.name, 8))
        if tensor.name in kinds:
            kind, low, high = kinds[tensor.name].kind, kinds[tensor.name].low, kinds[tensor.name].high
        specs.append(
            InputSpec(tensor.name, index, _shape(tensor, values), dtype, kind, low, high, _strides(tensor, values))
        )
    return tuple(specs)


def index_limits(region: Region, values: Mapping[str, int]) -> dict[str, int]:
    """For every input whose elements index another tensor: the smallest extent of what it indexes."""
    integers = {t.name for t in region.inputs if t.dtype.is_int}
    extents: dict[str, tuple[Expr, ...]] = {t.name: t.shape for t in region.inputs}
    extents |= {comp.name: tuple(axis.extent for axis in comp.axes) for comp in region.comps}
    limits: dict[str, int] = {}
    for expr in (expr for comp in region.comps for expr in comp.body):
        for load in (node for node in walk(expr) if isinstance(node, Load) and node.tensor in extents):
            for place, extent in zip(load.index, extents[load.tensor], strict=False):
                for inner in _indices(place):
                    if inner in integers:
                        size = max(1, evaluate_int(extent, values))
                        limits[inner] = min(limits.get(inner, size), size)
    return limits


def _indices(place: Expr) -> Iterator[str]:
    return (node.tensor for node in walk(place) if isinstance(node, Load))


def _case(
    region: Region, folder: Path, values: Mapping[str, int], seed: int, kinds: Mapping[str, InputSpec]
) -> ReferenceCase:
    specs = input_specs(region, values, kinds)
    shapes = [[s.shape, s.strides, s.dtype, s.kind, s.low, s.high] for s in specs]
    tag = digest(
        {"version": VERSION, "seed": seed, "inputs": shapes, "sizes": [values[s.name] for s in region.symbols]}
    )
    final = folder / f"{region_key(region)[:16]}-{tag[:16]}"
    if not (final / "complete.json").is_file():
        _write(region, final, specs, values, seed)
    outputs, scales = {}, {}
    for index, out in enumerate(region.outputs):
        outputs[out.tensor.name] = str(final / f"out{index}.npy")
        if (final / f"scale{index}.npy").is_file():
            scales[out.tensor.name] = str(final / f"scale{index}.npy")
    return ReferenceCase(dict(values), specs, outputs, scales)


def _write(region: Region, final: Path, specs: Sequence[InputSpec], values: Mapping[str, int], seed: int) -> None:
    from emmy.ir.nest_interp import run_region

    data = {spec.name: logical(generate(seed, spec), spec.dtype) for spec in specs}
    outputs = run_region(region, data, values, dtype=np.float64)
    magnitudes = None
    if adds_products(region):
        positive = {name: np.abs(array) if array.dtype.kind == "f" else array for name, array in data.items()}
        magnitudes = run_region(region, positive, values, dtype=np.float64)
    building = final.with_name(f"{final.name}.{os.getpid()}")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    for index, out in enumerate(region.outputs):
        array = outputs[out.tensor.name]
        np.save(building / f"out{index}.npy", array, allow_pickle=False)
        if out.tensor.dtype.value in FLOATS:
            magnitude = None if magnitudes is None else magnitudes[out.tensor.name]
            np.save(building / f"scale{index}.npy", scale_of(array, magnitude), allow_pickle=False)
    (building / "complete.json").write_text(json.dumps({"region": region.name, "sizes": dict(values)}))
    try:
        os.rename(building, final)
    except OSError:
        # Another process was first; what it wrote is the same.
        shutil.rmtree(building, ignore_errors=True)
        if not (final / "complete.json").is_file():
            raise


def scale_of(array: np.ndarray, magnitude: np.ndarray | None) -> np.ndarray:
    """What an element's error is measured in, float32: max(|ref|, magnitude), or max(|ref|, rms) without one."""
    flat, out = array.reshape(-1), np.empty(array.shape, np.float32)
    other = None if magnitude is None else magnitude.reshape(-1)
    blocks = [slice(start, start + BLOCK) for start in range(0, flat.size, BLOCK)]

    def squares(block: slice) -> tuple[float, int]:
        part = flat[block]
        total = float(part @ part)
        if not np.isfinite(total):
            part = part[np.isfinite(part)]
            total = float(part @ part)
        return total, part.size

    found = each(squares, blocks)
    count = sum(size for _, size in found)
    rms = float(np.sqrt(sum(total for total, _ in found) / count)) if count else 0.0

    def put(block: slice) -> None:
        size = np.abs(flat[block])
        if other is not None:
            np.maximum(size, np.abs(other[block]), out=size)
        out.reshape(-1)[block] = np.maximum(size, rms if other is None else SCALE_FLOOR * rms)

    each(put, blocks)
    return out


def adds_products(region: Region) -> bool:
    """Whether the region is one sum (of products, or of values) with maps around it: a contraction or a row sum."""
    reductions = [comp for comp in region.comps if not comp.is_map]
    return len(reductions) == 1 and reductions[0].monoid == "sum"


def _shape(tensor: Tensor, values: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate_int(extent, values) for extent in tensor.shape)


def _strides(tensor: Tensor, values: Mapping[str, int]) -> tuple[int, ...]:
    return () if tensor.strides is None else tuple(evaluate_int(stride, values) for stride in tensor.strides)


def _case_key(case: ReferenceCase) -> list[object]:
    return [dict(case.symbols), [[i.shape, i.dtype, i.kind, i.low, i.high, i.strides] for i in case.inputs]]
