"""The strict schema of a golden file, and the files of this project.

device: NVIDIA GeForce RTX 5090
machines: what class of machines the numbers hold for
goldens:
  - kernel: matmul
    name: square.512
    ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from emmy import config
from emmy.errors import GoldenSchemaError, InputError
from emmy.goldens.dataset import DTYPES, KINDS, dtype_of_name, load_dataset, read_dims, read_dynamic, shape
from emmy.goldens.entry import GoldenConfig, Scalar
from emmy.goldens.fields import Fields, compose, plain, read_text
from emmy.ir.dtype import DType
from emmy.schedule.knobs import KnobMap

DATASET = "dataset.yaml"


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """The goldens of one device.  ``machines`` says for which class of machines the numbers hold."""

    device: str
    machines: str
    entries: tuple[GoldenConfig, ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A golden file with its places: ``nodes[i]`` is entry i's mapping, ``goldens`` the node of the list."""

    content: GoldenFile
    nodes: tuple[MappingNode, ...]
    goldens: Node


def parse_goldens(text: str, file: object) -> Parsed:
    """Read and check a golden file's text.  Raises GoldenSchemaError naming file, line, entry and field."""
    root = compose(text, file)
    if root is None:
        raise GoldenSchemaError(file, 1, None, None, found="an empty file", expected="device, machines, goldens")
    top = Fields(root, file, "header")
    device, machines = top.text("device"), top.text("machines")
    nodes = top.sequence("goldens")
    if not top.has("goldens"):
        top.fail("goldens", expected="a list of entries")
    top.done()
    entries: list[GoldenConfig] = []
    seen: dict[tuple[str, KnobMap], int] = {}
    for node in nodes:
        fields = Fields(node, file, None)
        entry = _read_entry(fields, device)
        key = (entry.name, entry.knobs)
        if key in seen:
            fields.fail(
                "knobs", found=f"the knobs of the entry at line {seen[key]}", expected="each configuration once"
            )
        seen[key] = entry.line
        entries.append(entry)
    mappings = tuple(node for node in nodes if isinstance(node, MappingNode))
    return Parsed(GoldenFile(device, machines, tuple(entries)), mappings, top.items["goldens"].node)


def _read_entry(fields: Fields, device: str) -> GoldenConfig:
    kind = KINDS[fields.one_of("kernel", KINDS)]
    name = fields.text("name")
    dims = read_dims(fields, kind)
    dtype = DType(fields.one_of("dtype", DTYPES, dtype_of_name(name)))
    causal = fields.flag("causal") if kind.name == "attention" else False
    dynamic = read_dynamic(fields, kind, dims)
    written = _read_knobs(fields)
    emmy_us = fields.latency("emmy_us")
    if fields.has("cublas_us") == fields.has("eager_us"):
        found = "both" if fields.has("eager_us") else "neither"
        fields.fail("cublas_us", fields.node, found=found, expected="cublas_us, or eager_us on a device without cuBLAS")
    reference = "cublas_us" if fields.has("cublas_us") else "eager_us"
    latency = fields.latency(reference)
    fields.done()
    return GoldenConfig(
        kind.name,
        name,
        dims,
        dtype,
        written,
        emmy_us,
        latency if reference == "cublas_us" else None,
        latency if reference == "eager_us" else None,
        dynamic,
        causal,
        fields.node.start_mark.line + 1,
        device,
    )


def _read_knobs(fields: Fields) -> tuple[tuple[str, Scalar], ...]:
    knobs = fields.mapping("knobs")
    if not knobs.items:
        fields.fail("knobs", found="no knobs", expected="every family, '' where it is off")
    for name, item in knobs.items.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(@[A-Za-z_][A-Za-z0-9_.]*)?", name):
            fields.fail("knobs", item.node, found=repr(name), expected="FAMILY or FAMILY@step")
        if not isinstance(item.value, (str, int, float, bool)):
            fields.fail("knobs", item.node, found=f"{name} without a value", expected="a text, number or true/false")
        if not isinstance(item.value, (str, bool)) and not 0 <= item.value < float("inf"):
            fields.fail("knobs", item.node, found=f"{name} {item.value}", expected="a number of at least 0")
    return tuple((name, item.value) for name, item in knobs.items.items())


def load_goldens(path: Path) -> GoldenFile:
    """The golden file at ``path``.  Raises InputError, GoldenSchemaError."""
    return _parsed(read_text(path), str(path))


@lru_cache(maxsize=64)
def _parsed(text: str, file: str) -> GoldenFile:
    return parse_goldens(text, file).content


def golden_paths(directory: Path | None = None) -> tuple[Path, ...]:
    """The golden files of a folder (default: the project's), sorted by name."""
    directory = directory if directory is not None else config.goldens_dir()
    return tuple(sorted(path for path in directory.glob("*.yaml") if path.name != DATASET))


def device_file(device: str, directory: Path | None = None) -> Path:
    """The golden file whose header names ``device``, or, where there is none, the path that a new one takes.

    Raises InputError where the new file's name is taken by another device's file.
    """
    for path in golden_paths(directory):
        if (header_device(path) or "").casefold() == device.casefold():
            return path
    path = (directory if directory is not None else config.goldens_dir()) / f"{slug(device)}.yaml"
    if path.exists():
        raise InputError(
            f"no golden file for {device}",
            found=f"{path.name} of {header_device(path)}",
            hint="correct its device field",
        )
    return path


def header_device(path: Path) -> str | None:
    """The device that a golden file's header names, read without checking the file; None where it names none."""
    found = re.search(r"^device:[ \t]*(.+?)[ \t]*(?:#.*)?\r?$", read_text(path), re.MULTILINE)
    if found is None:
        return None
    node = compose(found[1], path)
    return str(plain(node)) if node is not None else None


def slug(device: str) -> str:
    """A device's name as a file name: ``NVIDIA GeForce RTX 5090`` is ``rtx5090``, ``NVIDIA H200`` is ``h200``."""
    words = re.sub(r"\b(nvidia|geforce|tesla|amd|radeon|intel|corporation)\b", " ", device.lower())
    words = re.sub(r"\b([a-z]{2,3}) (?=\d)", r"\1", " ".join(words.split()))
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "device"


def goldens_by_name(name: str, device: str | None = None, directory: Path | None = None) -> tuple[GoldenConfig, ...]:
    """The recorded entries of a shape, of one device or of all; none recorded is an empty tuple.

    Raises InputError with the nearest names where the name is neither recorded nor in the dataset.
    """
    if device is None:
        paths = golden_paths(directory)
    else:
        own = device_file(device, directory)
        paths = (own,) if own.exists() else ()
    found = tuple(entry for path in paths for entry in load_goldens(path).entries if entry.name == name)
    if not found:
        shape(name)
    return found


def foreign_entries(content: GoldenFile) -> list[tuple[GoldenConfig, str]]:
    """(entry, complaint) of each entry that is not a shape of the dataset, or differs from it."""
    known = {known.name: known for known in load_dataset()}
    complaints = []
    for entry in content.entries:
        wanted = known.get(entry.name)
        if wanted is None:
            complaints.append((entry, "not a shape of the dataset"))
            continue
        for what, here, there in (
            ("kernel", entry.kernel, wanted.kind),
            ("dims", entry.dims, wanted.dims),
            ("dtype", entry.dtype, wanted.dtype),
            ("dynamic", entry.dynamic, wanted.dynamic),
            ("causal", entry.causal, wanted.causal),
        ):
            if here != there:
                complaints.append((entry, f"{what} is {_show(here)}; the dataset has {_show(there)}"))
    return complaints


def _show(value: object) -> str:
    return ", ".join(f"{name} {size}" for name, size in value) if isinstance(value, tuple) else str(value)


def is_block_list(node: Node) -> bool:
    """Whether a list stands one entry a ``- `` and not in brackets."""
    return isinstance(node, SequenceNode) and not node.flow_style
