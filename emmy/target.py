"""What a command is asked to work on: a snippet, a golden shape, a reproducer or a model."""

import re
from dataclasses import dataclass
from enum import StrEnum

from emmy.errors import InputError

_DYNAMIC = re.compile(r"(?P<name>[A-Za-z_]\w*)@(?P<input>[A-Za-z_][\w.]*):(?P<axis>\d+)")


@dataclass(frozen=True, slots=True, order=True)
class DynamicSpec:
    """Axis `axis` of the input called `input` is symbolic, under the name `name` (`seq_len@x0:0`)."""

    name: str
    input: str
    axis: int

    def __str__(self) -> str:
        return f"{self.name}@{self.input}:{self.axis}"

    @classmethod
    def parse(cls, text: str) -> "DynamicSpec":
        """Read `NAME@INPUT:AXIS`. Raises InputError."""
        match = _DYNAMIC.fullmatch(text.strip())
        if match is None:
            raise InputError("--dynamic", found=repr(text), expected="NAME@INPUT:AXIS, for example seq_len@x0:0")
        return cls(match["name"], match["input"], int(match["axis"]))


class TargetKind(StrEnum):
    """Where the program comes from."""

    SNIPPET = "snippet"
    GOLDEN = "golden"
    REPRODUCER = "reproducer"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class Target:
    """One program to compile. `value` is a snippet's text, a golden's name, a reproducer's path or a model's name.

    `dynamic` is empty for goldens and reproducers, which carry their own symbolic axes. `seq_len` sizes the example
    inputs of a snippet or model; it never moves the hint of a symbolic axis.
    """

    kind: TargetKind
    value: str
    dynamic: tuple[DynamicSpec, ...] = ()
    seq_len: int | None = None
