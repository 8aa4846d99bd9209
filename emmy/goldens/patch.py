"""A proposed change to a golden file: operations with reasons, a diff to review, and an atomic application."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from emmy import config
from emmy.errors import EmmyError, InputError, KnobError
from emmy.goldens.edits import Edit, Editor, apply_edits, is_subsequence, line_span, lines_of, outside
from emmy.goldens.entry import GoldenConfig, Scalar, scalar
from emmy.goldens.fields import read_text
from emmy.goldens.schema import GoldenFile, is_block_list, parse_goldens
from emmy.schedule.knobs import KnobMap

OperationKind = Literal["replace", "add", "lower", "prune", "new"]
Knobs = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change and its reason.  Use the constructors: each kind needs other fields.

    ``target`` holds the knobs, as written, of the existing entry; ``entry`` what is recorded; ``evidence`` named
    numbers and texts that back the reason.
    """

    kind: OperationKind
    name: str
    reason: str
    target: Knobs | None = None
    entry: GoldenConfig | None = None
    emmy_us: float | None = None
    evidence: tuple[tuple[str, Scalar | None], ...] = ()

    @staticmethod
    def replace(old: GoldenConfig, entry: GoldenConfig, reason: str, **evidence: Scalar | None) -> Operation:
        """``entry`` takes the place of ``old``, a slower one."""
        return Operation("replace", old.name, reason, old.written, entry, None, tuple(evidence.items()))

    @staticmethod
    def add(entry: GoldenConfig, reason: str, **evidence: Scalar | None) -> Operation:
        """``entry`` stands beside the entries that its shape already has."""
        return Operation("add", entry.name, reason, None, entry, None, tuple(evidence.items()))

    @staticmethod
    def lower(old: GoldenConfig, emmy_us: float, reason: str, **evidence: Scalar | None) -> Operation:
        """The same knobs became faster: a codegen win."""
        return Operation("lower", old.name, reason, old.written, None, emmy_us, tuple(evidence.items()))

    @staticmethod
    def prune(old: GoldenConfig, reason: str, **evidence: Scalar | None) -> Operation:
        """``old`` goes: another entry of its shape is faster."""
        return Operation("prune", old.name, reason, old.written, None, None, tuple(evidence.items()))

    @staticmethod
    def new(entry: GoldenConfig, reason: str, **evidence: Scalar | None) -> Operation:
        """The first entry of a shape."""
        return Operation("new", entry.name, reason, None, entry, None, tuple(evidence.items()))

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"op": self.kind, "name": self.name, "reason": self.reason}
        if self.target is not None:
            value["target"] = dict(self.target)
        if self.entry is not None:
            value["entry"] = self.entry.to_json()
        if self.emmy_us is not None:
            value["emmy_us"] = self.emmy_us
        return value | {"evidence": dict(self.evidence)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Operation:
        """Raises KeyError, TypeError or ValueError for a value that :meth:`to_json` did not make."""
        if value["op"] not in ("replace", "add", "lower", "prune", "new"):
            raise ValueError(f"no operation is called {value['op']!r}")
        needed = {"replace": ("target", "entry"), "lower": ("target", "emmy_us"), "prune": ("target",)}
        for field in needed.get(value["op"], ("entry",)):
            value[field]
        return Operation(
            value["op"],
            str(value["name"]),
            str(value["reason"]),
            tuple(value["target"].items()) if "target" in value else None,
            GoldenConfig.from_json(value["entry"]) if "entry" in value else None,
            float(value["emmy_us"]) if "emmy_us" in value else None,
            tuple(value.get("evidence", {}).items()),
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """Operations on one golden file, made against the content that ``sha256`` digests (None: there was no file).

    ``file`` is the file's name in the goldens folder; ``device`` and ``machines`` head a file that does not exist yet.
    """

    file: str
    sha256: str | None
    device: str
    machines: str
    operations: tuple[Operation, ...]

    @classmethod
    def make(cls, path: Path, device: str, machines: str, operations: Iterable[Operation]) -> Proposal:
        """A proposal against the present content of ``path``.  Raises what :meth:`preview` raises."""
        before = read_text(path) if path.exists() else None
        proposal = cls(path.name, digest(before), device, machines, tuple(operations))
        proposal.preview(before)
        return proposal

    def preview(self, before: str | None) -> str:
        """The file's text after the operations, checked: it loads, holds exactly the intended entries, and no line
        outside them differs.

        Raises InputError for another device's file and for an operation that does not fit the file, KnobError for a
        new entry's knob that the grammar does not know, GoldenSchemaError for a file that does not load.
        """
        text = before if before is not None else self._header()
        device = parse_goldens(text, self.file).content.device
        if device.casefold() != self.device.casefold():
            raise InputError(
                f"golden file {self.file}",
                found=f"goldens of {device}",
                expected=f"those of {self.device}, on which the proposal was made",
                hint="tune on the device whose goldens are to change",
            )
        after, intended, touched = self._edit(text)
        result = parse_goldens(after, self.file).content
        if result.entries != intended.entries or (result.device, result.machines) != (
            intended.device,
            intended.machines,
        ):
            raise EmmyError(
                f"the patch of {self.file} would not yield the intended entries", hint="nothing was written"
            )
        if not is_subsequence(outside(text, touched), lines_of(after)):
            raise EmmyError(f"the patch of {self.file} would touch other lines", hint="nothing was written")
        return after

    def to_diff(self, path: Path | None = None) -> str:
        """The unified diff against the file as it is now.  Raises as :meth:`apply`."""
        before = self._read(self._path(path))
        lines = difflib.unified_diff(
            lines_of(before or ""),
            lines_of(self.preview(before)),
            f"a/goldens/{self.file}" if before is not None else "/dev/null",
            f"b/goldens/{self.file}",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def apply(self, path: Path | None = None) -> Path:
        """Write the change: the whole of it or nothing.  Returns the file's path.

        Raises InputError where the file is not the one that the proposal was made against, GoldenSchemaError where the
        result would not load; the file is then untouched.
        """
        path = self._path(path)
        after = self.preview(self._read(path))
        _write(path, after, recheck=lambda: self._read(path))
        return path

    def _path(self, path: Path | None) -> Path:
        return path if path is not None else config.goldens_dir() / self.file

    def _read(self, path: Path) -> str | None:
        before = read_text(path) if path.exists() else None
        if digest(before) != self.sha256:
            was = "no file" if self.sha256 is None else f"content {self.sha256[:12]}"
            now = "no file" if before is None else f"content {(digest(before) or '')[:12]}"
            hint = "it changed since the proposal was made: make a new proposal"
            raise InputError(f"golden file {path}", found=now, expected=was, hint=hint)
        return before

    def _header(self) -> str:
        return f"device: {scalar(self.device)}\nmachines: {scalar(self.machines)}\ngoldens:\n"

    def _edit(self, text: str) -> tuple[str, GoldenFile, list[tuple[int, int]]]:
        """(text after, content intended, spans of the lines that may differ)"""
        parsed = parse_goldens(text, self.file)
        editor, entries = Editor(text, parsed, self.file), parsed.content.entries
        kept: list[GoldenConfig | None] = list(entries)
        added: dict[int, list[GoldenConfig]] = {}
        appended: list[GoldenConfig] = []
        edits: list[Edit] = []
        touched: dict[int, tuple[int, int]] = {}
        for operation in self.operations:
            same = [place for place, entry in enumerate(entries) if entry.name == operation.name]
            if operation.kind == "new":
                entry = self._recorded(operation)
                if same or any(other.name == entry.name for other in appended):
                    self._refuse(operation, "recorded entries of the shape", "none: add or replace")
                edits += editor.insert(len(entries) - 1, entry, last=True) if entries else []
                appended.append(entry)
            elif operation.kind == "add":
                if not same:
                    self._refuse(operation, "no recorded entry of the shape", "one to stand beside")
                edits += editor.insert(same[-1], self._recorded(operation))
                added.setdefault(same[-1], []).append(self._recorded(operation))
            else:
                place = self._target(operation, entries, same)
                if place in touched:
                    self._refuse(operation, "another operation on the same entry", "one operation an entry")
                touched[place] = editor.span(place)
                kept[place] = self._changed(operation, entries[place])
                changed = kept[place]
                edits += editor.remove(place) if changed is None else editor.replace(place, changed)
        spans = list(touched.values())
        if appended and not entries:
            if is_block_list(parsed.goldens) or parsed.goldens.value not in ("", [], "null", "~"):
                editor.refuse("a list that is neither empty nor one entry a line")
            for place, entry in enumerate(appended):
                edits += editor.insert_first(entry)[0 if place == 0 else -1 :]
            spans.append(line_span(text, parsed.goldens.start_mark.index))
        result = [entry for place, old in enumerate(kept) for entry in ([old] if old else []) + added.get(place, [])]
        content = dataclasses.replace(parsed.content, entries=tuple(result + appended))
        if text and not text.endswith("\n"):
            spans.append(line_span(text, len(text)))  # an entry added behind it gives this line its line break
        return apply_edits(text, edits), content, spans

    def _changed(self, operation: Operation, old: GoldenConfig) -> GoldenConfig | None:
        if operation.kind == "prune":
            return None
        if operation.kind == "replace":
            entry = self._recorded(operation)
            if (entry.kernel, entry.name, entry.dims, entry.dtype) != (old.kernel, old.name, old.dims, old.dtype):
                self._refuse(operation, f"an entry of {entry.name} {dict(entry.dims)}", f"{old.name} {dict(old.dims)}")
            return entry
        emmy_us = operation.emmy_us or 0.0
        if not 0 < emmy_us < old.emmy_us:
            self._refuse(operation, f"{emmy_us} µs", f"less than the recorded {old.emmy_us} µs")
        return dataclasses.replace(old, emmy_us=emmy_us)

    def _target(self, operation: Operation, entries: tuple[GoldenConfig, ...], same: list[int]) -> int:
        wanted = KnobMap.parse(dict(operation.target or ()), keep_unknown=True)
        place = next((place for place in same if entries[place].knobs == wanted), None)
        if place is None:
            self._refuse(operation, f"no entry with the knobs {wanted}", "one")
        return place

    def _recorded(self, operation: Operation) -> GoldenConfig:
        if operation.entry is None or operation.entry.name != operation.name:
            self._refuse(operation, "no entry to record", f"one of {operation.name}")
        try:
            KnobMap.parse(dict(operation.entry.written))  # what stands in a file may be older or newer than the grammar
        except KnobError as error:
            what = f"{operation.kind} {operation.name} in {self.file}: {error.message}"
            raise KnobError(what, found=error.found, expected=error.expected, hint=error.hint) from None
        return operation.entry

    def _refuse(self, operation: Operation, found: str, expected: str) -> NoReturn:
        raise InputError(f"{operation.kind} {operation.name} in {self.file}", found=found, expected=expected)

    def to_json(self) -> str:
        """The operations with their reasons, as :meth:`from_json` reads them."""
        value = {
            "file": self.file,
            "sha256": self.sha256,
            "device": self.device,
            "machines": self.machines,
            "operations": [operation.to_json() for operation in self.operations],
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: object = "proposal") -> Proposal:
        """Raises InputError for a text that :meth:`to_json` did not make; ``source`` names it."""
        try:
            value = json.loads(text)
            operations = tuple(Operation.from_json(operation) for operation in value["operations"])
            proposal = cls(value["file"], value["sha256"], value["device"], value["machines"], operations)
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(f"{source} is no proposal", found=what, expected="a file that the sweep wrote") from None
        if not isinstance(proposal.file, str) or Path(proposal.file).name != proposal.file:
            raise InputError(
                f"{source} is no proposal", found=f"file {proposal.file!r}", expected="a file name, no path"
            )
        return proposal


def digest(text: str | None) -> str | None:
    """The sha256 of a file's content; None where there is no file."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def _write(path: Path, text: str, recheck: Callable[[], object]) -> None:
    """Write to a temporary file beside ``path``, flush it to the disk, and rename it over ``path``."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        recheck()
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
