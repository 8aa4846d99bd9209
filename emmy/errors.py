"""The one exception hierarchy. An error says what was found, what was expected, and what to do.

Every class survives pickling, since compile pools and bench workers send their errors to the parent.
"""

import sys
from collections.abc import Iterable
from typing import Any, ClassVar, Self


class EmmyError(Exception):
    """Base of every error that a user may see.

    `message` names the thing that is wrong; `found`, `expected` and `hint` are optional and end up in `str(error)`:
    `message: found F, expected E; hint`. `exit_code` is what the `emmy` command returns for it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, found: object = None, expected: object = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.found = found
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        facts = []
        if self.found is not None:
            facts.append(f"found {self.found}")
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        text = f"{self.message}: {', '.join(facts)}" if facts else self.message
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.message, self.__dict__)

    @classmethod
    def _blank(cls, message: str) -> Self:
        return cls.__new__(cls, message)


def _restore(cls: type[EmmyError], message: str, state: dict[str, Any]) -> EmmyError:
    error = cls._blank(message)
    error.__dict__.update(state)
    return error


class InputError(EmmyError):
    """Something that the user gave cannot be used: a flag, a variable, a file, a name."""

    exit_code = 2


class KnobError(InputError):
    """A knob map that does not parse: an unknown family, or a value outside the family's grammar."""


class MissingPrerequisite(EmmyError):
    """A package, tool or device that the request needs is not there; `hint` says what to install."""

    exit_code = 2


class DeviceLost(EmmyError):
    """A device that worked earlier in this run cannot be opened any more. What was measured before is kept."""

    def __init__(self, device: str, why: str) -> None:
        super().__init__(
            f"the device {device} was lost",
            found=why,
            hint="what was measured is kept; once the device works again the same command goes on from there",
        )


class BenchClosed(EmmyError):
    """The bench was closed while a job ran, as an interrupt does; nothing is known of the job's row."""

    def __init__(self) -> None:
        super().__init__("the bench was closed in the middle of a job", hint="run the command again to go on")


class FullDisk(EmmyError):
    """The disk is full; what was written before is kept."""

    exit_code = 2

    def __init__(self, path: object = None) -> None:
        super().__init__(
            f"disk full while writing {path}" if path is not None else "disk full",
            hint="free some space and run the command again: what was measured so far is kept",
        )


class StoreError(EmmyError):
    """The tune store cannot be read or written: corrupt, of a newer schema, or locked."""

    exit_code = 2


class UnsupportedOp(EmmyError):
    """A program uses an operation that emmy does not compile. `op` is its ATen name, `where` its call site."""

    exit_code = 2

    def __init__(self, op: str, where: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(f"{op} is not supported" + (f" (called at {where})" if where else ""), hint=hint)
        self.op = op
        self.where = where


class GoldenSchemaError(EmmyError):
    """A golden file breaks its schema. `line` is 1-based; `entry` is the shape's name, `field` the offending key."""

    exit_code = 2

    def __init__(
        self,
        file: object,
        line: int | None,
        entry: str | None,
        field: str | None,
        *,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        place = f"{file}:{line}" if line is not None else f"{file}"
        subject = ", ".join(f"{kind} {name}" for kind, name in (("entry", entry), ("field", field)) if name)
        super().__init__(f"{place}: {subject}" if subject else place, found=found, expected=expected, hint=hint)
        self.file = str(file)
        self.line = line
        self.entry = entry
        self.field = field


class Refused(EmmyError):
    """A legality rule refuses a schedule.

    `rule` is the rule's name, `where` the file:line at which it stands (that of the raising caller when not given),
    `nearest` the offered values closest to the refused one.
    """

    exit_code = 2

    def __init__(
        self,
        rule: str,
        where: str | None = None,
        *,
        found: object = None,
        expected: object = None,
        nearest: Iterable[object] = (),
        hint: str | None = None,
    ) -> None:
        self.rule = rule
        self.where = where if where is not None else caller()
        self.nearest = tuple(nearest)
        if hint is None and self.nearest:
            hint = "nearest offered: " + ", ".join(str(value) for value in self.nearest)
        super().__init__(f"refused by {rule} ({self.where})", found=found, expected=expected, hint=hint)


class CompileFailed(EmmyError):
    """A kernel did not compile. `log` is the compiler's own output."""

    status: ClassVar[str] = "compile_failed"

    def __init__(self, message: str, *, log: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.log = log


class LaunchFailed(EmmyError):
    """A kernel compiled but could not be launched, or its device failed while it ran."""

    status: ClassVar[str] = "launch_failed"


class ContextLost(LaunchFailed):
    """The device answers nothing in this process any more: a kernel failed in it, or the device itself is gone."""


class OutOfMemory(EmmyError):
    """Buffers do not fit on the device; the message says which, and how large they are."""

    exit_code = 2
    status: ClassVar[str] = "bench_fail"


class TimedOut(CompileFailed):
    """A compilation exceeded its deadline and was killed."""

    status: ClassVar[str] = "timeout"

    def __init__(self, what: str, deadline_s: float) -> None:
        super().__init__(f"{what} exceeded its deadline of {deadline_s:g} s")
        self.what = what
        self.deadline_s = deadline_s


def caller() -> str:
    """`file:line` of the nearest frame outside this module; relative to the project's root for a file inside it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    root = __file__[: -len("emmy/errors.py")]
    return f"{frame.f_code.co_filename.removeprefix(root)}:{frame.f_lineno}"


def check(condition: object, error: type[EmmyError], *args: Any, **fields: Any) -> None:
    """Raise `error(*args, **fields)` unless `condition` holds. Arguments are evaluated either way: keep them cheap."""
    if not condition:
        raise error(*args, **fields)
