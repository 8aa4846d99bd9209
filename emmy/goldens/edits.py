"""Edits of a golden file's text that leave every line outside the edited entries as it is, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from ruamel.yaml.nodes import CollectionNode, Node

from emmy.errors import InputError
from emmy.goldens.entry import GoldenConfig, flow_knobs, number
from emmy.goldens.schema import Parsed, is_block_list


@dataclass(frozen=True, slots=True)
class Edit:
    """``text[start:end]`` becomes ``new``.  ``last`` orders insertions at one place: appended entries come last."""

    start: int
    end: int
    new: str
    last: bool = False


def content_end(node: Node) -> int:
    """Where a node's own text ends; a block collection's end mark lies beyond, at the next token."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    return content_end(last[1] if isinstance(last, tuple) else last)


def line_span(text: str, index: int) -> tuple[int, int]:
    """The line that holds ``index``, its line break included."""
    return line_start(text, index), line_end(text, index)


def line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def line_end(text: str, index: int) -> int:
    """Just behind the line break of the line that holds ``index``, or the end of the text."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def newline_of(text: str) -> str:
    """The line break of the first line."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


class Editor:
    """The edits of one parsed text.  Methods raise InputError for a layout that cannot be edited line by line."""

    def __init__(self, text: str, parsed: Parsed, file: object) -> None:
        self.text, self.parsed, self.file = text, parsed, file
        self.newline = newline_of(text)
        spans = [self.span(place) for place in range(len(parsed.nodes))] if is_block_list(parsed.goldens) else []
        gaps = [text[before[1] : after[0]] for before, after in itertools.pairwise(spans)]
        self.separated = bool(gaps) and all(not gap.partition("\n")[0].strip() and "\n" in gap for gap in gaps)

    def span(self, place: int) -> tuple[int, int]:
        """The whole lines of an entry: from its ``-`` to the line of its last value."""
        node = self.parsed.nodes[place]
        if not is_block_list(self.parsed.goldens):
            self.refuse("a list in brackets")
        column = self.parsed.goldens.start_mark.column
        start = line_start(self.text, node.start_mark.index)
        while self.text[start : start + column].strip() or self.text[start + column : start + column + 1] != "-":
            if start == 0:
                self.refuse("an entry without a '-' of its own, or line ends other than LF and CRLF")
            start = line_start(self.text, start - 1)
        return start, line_end(self.text, max(content_end(node) - 1, node.start_mark.index))

    def refuse(self, found: str) -> NoReturn:
        raise InputError(f"cannot edit {self.file}", found=found, expected="one field a line", hint="edit it by hand")

    def set_value(self, place: int, field: str, new: str, new_name: str | None = None) -> list[Edit]:
        """The value of an entry's field (and its name) replaced, whatever else stands on its line."""
        key, value = next(pair for pair in self.parsed.nodes[place].value if pair[0].value == field)
        start, end = self.span(place)
        edit = Edit(value.start_mark.index, content_end(value), new)
        if not start <= edit.start <= edit.end <= end:
            self.refuse(f"{field} by reference to another entry")
        renamed = [Edit(key.start_mark.index, key.end_mark.index, new_name)] if new_name else []
        return [*renamed, edit]

    def replace(self, place: int, entry: GoldenConfig) -> list[Edit]:
        """The configuration and latencies of an entry exchanged; its other fields and its comments stay."""
        old = self.parsed.content.entries[place]
        edits: list[Edit] = []
        if entry.written != old.written:
            edits += self.set_value(place, "knobs", flow_knobs(dict(entry.written)))
        if entry.emmy_us != old.emmy_us:
            edits += self.set_value(place, "emmy_us", number(entry.emmy_us))
        if (entry.reference, entry.reference_us) != (old.reference, old.reference_us):
            name = f"{entry.reference}_us" if entry.reference != old.reference else None
            edits += self.set_value(place, f"{old.reference}_us", number(entry.reference_us), name)
        return edits

    def remove(self, place: int) -> list[Edit]:
        """An entry's lines gone; blank lines and comments around it stay."""
        start, end = self.span(place)
        return [Edit(start, end, "")]

    def insert(self, place: int, entry: GoldenConfig, *, last: bool = False) -> list[Edit]:
        """A new entry behind entry ``place``."""
        end = self.span(place)[1]
        column = self.parsed.goldens.start_mark.column
        return [self._insertion(end, entry, column, self.separated, last)]

    def insert_first(self, entry: GoldenConfig) -> list[Edit]:
        """A new entry in an empty list."""
        node = self.parsed.goldens
        value = self.text[node.start_mark.index : node.end_mark.index]
        edits = []
        if value.strip():
            start = node.start_mark.index
            edits.append(Edit(start - (self.text[start - 1] == " "), node.end_mark.index, ""))
        end = line_end(self.text, node.end_mark.index)
        return [*edits, self._insertion(end, entry, 2, separated=False, last=True)]

    def _insertion(self, index: int, entry: GoldenConfig, column: int, separated: bool, last: bool) -> Edit:
        lines = [" " * column + line for line in entry.lines()]
        body = self.newline.join(([""] if separated else []) + lines)
        open_ended = not self.text[:index].endswith("\n")
        return Edit(index, index, self.newline + body if open_ended else body + self.newline, last)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with every edit made.  Raises ValueError where two overlap."""
    pieces, place = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end, edit.last)):
        if edit.start < place:
            raise ValueError(f"edits overlap at {edit.start}")
        pieces += [text[place : edit.start], edit.new]
        place = edit.end
    return "".join([*pieces, text[place:]])


def outside(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The lines of ``text``, ends included, that lie in none of the spans of whole lines."""
    kept, place = [], 0
    for start, end in sorted(spans):
        kept += lines_of(text[place:start])
        place = max(place, end)
    return kept + lines_of(text[place:])


def lines_of(text: str) -> list[str]:
    """The lines with their ends.  Only LF ends a line: other separators may stand inside a comment."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def is_subsequence(lines: Sequence[str], of: Sequence[str]) -> bool:
    """Whether ``lines`` stand in ``of``, in order and unchanged."""
    rest = iter(of)
    return all(any(line == other for other in rest) for line in lines)
