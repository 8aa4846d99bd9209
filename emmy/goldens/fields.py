"""Strict reading of YAML by nodes: every value keeps its place in the text, and an error names it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from emmy.errors import GoldenSchemaError, InputError

_TAG = "tag:yaml.org,2002:"


def read_text(path: Path) -> str:
    """The text of a file, its line ends and any byte-order mark kept.  Raises InputError, GoldenSchemaError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}", found=error.strerror) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise GoldenSchemaError(path, line, None, None, found="bytes that are not UTF-8", expected="UTF-8") from None


def compose(text: str, file: object) -> Node | None:
    """The root node of a YAML text; None for an empty one.  Marks index ``text``.  Raises GoldenSchemaError."""
    if text.startswith("\ufeff"):
        raise GoldenSchemaError(file, 1, None, None, found="a byte-order mark", expected="plain UTF-8")
    try:
        return YAML(pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        raise GoldenSchemaError(file, line, None, None, found=error.problem, expected="YAML") from None
    except YAMLError as error:
        raise GoldenSchemaError(file, None, None, None, found=str(error).splitlines()[0], expected="YAML") from None
    except RecursionError:
        raise GoldenSchemaError(file, None, None, None, found="brackets nested too deep", expected="YAML") from None


MOST_DIGITS = 100
"""Of a whole number; a longer one is text, which no field takes. Python itself refuses beyond 4300."""


def plain(node: Node) -> Any:
    """The scalar that a node holds, by YAML 1.2 rules; a node that is no scalar comes back as itself."""
    if not isinstance(node, ScalarNode):
        return node
    kind, text = str(node.tag).removeprefix(_TAG), node.value
    if kind == "int" and len(text) <= MOST_DIGITS:
        return int(text.replace("_", ""), 0 if text.lstrip("+-")[:2] in ("0x", "0o") else 10)
    if kind == "float":
        return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".NaN", "nan").replace("_", ""))
    if kind == "bool":
        return text.lower() == "true"
    return None if kind == "null" else text


def spelled(node: Node) -> str:
    """What stands in the file, for an error."""
    if isinstance(node, ScalarNode):
        return repr(node.value) if node.tag == f"{_TAG}str" else node.value or "nothing"
    return "a mapping" if isinstance(node, MappingNode) else "a list"


@dataclass(frozen=True, slots=True)
class Item:
    """One field of a mapping: its value and its node."""

    value: Any
    node: Node


class Fields:
    """The fields of one mapping, taken one by one; what is left at ``done`` is unknown.

    Every method raises GoldenSchemaError with file, line, entry and field.
    """

    def __init__(self, node: Node, file: object, entry: str | None) -> None:
        self.file, self.entry, self.node = file, entry, node
        self.items: dict[str, Item] = {}
        self._known: list[str] = []
        if not isinstance(node, MappingNode):
            self.fail(None, node, expected="a mapping of fields")
        for key, value in node.value:
            name = str(plain(key))
            if name in self.items:
                self.fail(name, key, found="the field twice", expected="each field once")
            self.items[name] = Item(plain(value), value)
        if entry is None and isinstance(name := self.items.get("name", Item(None, node)).value, str):
            self.entry = name

    def fail(self, field: str | None, node: Node | None = None, **facts: Any) -> NoReturn:
        """Raise for ``field``, at its own node, ``node``, or the mapping."""
        node = node if node is not None else self.items[field].node if field in self.items else self.node
        facts.setdefault("found", spelled(node) if field is None or field in self.items else "nothing")
        raise GoldenSchemaError(self.file, node.start_mark.line + 1, self.entry, field, **facts)

    def has(self, field: str) -> bool:
        return field in self.items

    def take(self, field: str, check: Callable[[Any], bool], expected: str, default: Any = None) -> Any:
        """The value of ``field``, which must satisfy ``check``; ``default``, where given, for an absent field."""
        self._known.append(field)
        if field not in self.items:
            if default is None:
                self.fail(field, self.node, expected=expected)
            return default
        value = self.items[field].value
        if not check(value):
            self.fail(field, expected=expected)
        return value

    def text(self, field: str, default: str | None = None) -> str:
        return self.take(field, lambda value: isinstance(value, str) and value.strip() != "", "a text", default)

    def one_of(self, field: str, choices: Iterable[str], default: str | None = None) -> str:
        choices = tuple(choices)
        return self.take(field, lambda value: value in choices, f"one of {', '.join(choices)}", default)

    def flag(self, field: str) -> bool:
        return self.take(field, lambda value: isinstance(value, bool), "true or false", False)

    def size(self, field: str) -> int:
        """A whole number of at least 1."""
        return self.take(field, lambda value: type(value) is int and value >= 1, "a whole number of at least 1")

    def index(self, field: str) -> int:
        """A whole number of at least 0."""
        return self.take(field, lambda value: type(value) is int and value >= 0, "a whole number of at least 0")

    def latency(self, field: str) -> float:
        """A latency in microseconds: finite and above 0."""

        def check(value: Any) -> bool:
            return type(value) in (int, float) and math.isfinite(value) and value > 0

        return float(self.take(field, check, "a latency in µs above 0"))

    def mapping(self, field: str) -> Fields:
        node = self.take(field, lambda value: isinstance(value, MappingNode), "a mapping")
        return Fields(node, self.file, self.entry)

    def sequence(self, field: str) -> list[Node]:
        """The nodes of a list; an empty value is an empty list."""
        found = self.take(field, lambda value: value is None or isinstance(value, SequenceNode), "a list", ())
        return list(found.value) if isinstance(found, SequenceNode) else []

    def done(self) -> None:
        """Refuse every field that was not taken."""
        for name in self.items:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, n=1)
                hint = f"did you mean {near[0]}?" if near else None
                self.fail(name, found="an unknown field", expected=f"one of {', '.join(self._known)}", hint=hint)
