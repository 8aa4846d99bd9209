"""Options that several commands share, as decorators. An option that was not given reaches the command as None."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from emmy.errors import InputError
from emmy.files import check_file, check_folder, write_text
from emmy.target import DynamicSpec, Target, TargetKind

Command = TypeVar("Command", bound=Callable[..., Any])

REPRODUCER_SUFFIX = ".torch.json"


class PositiveInt(click.ParamType):
    """A whole number of at least 1."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises InputError naming the option."""
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            option = param.opts[-1] if param is not None else "number"
            raise InputError(option, found=value, expected="a whole number of at least 1")
        return number


def target_options(*, required: bool = True, ir_option: bool = True) -> Callable[[Command], Command]:
    """The command gets `target: Target | None`, never None when `required`.

    `ir_option=False` leaves out `--ir F.torch.json` for a command to which `--ir` means something else; there the
    reproducer is given as the positional argument.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(
            *args: Any,
            code: str | None,
            golden: str | None,
            model: str | None,
            dynamic: tuple[str, ...],
            seq_len: int | None,
            reproducer: str | None = None,
            **kwargs: Any,
        ) -> Any:
            target = resolve_target(
                code=code, golden=golden, reproducer=reproducer, model=model, dynamic=dynamic, seq_len=seq_len
            )
            if target is None and required:
                raise InputError("no target", expected=_target_forms(ir_option))
            return command(*args, target=target, **kwargs)

        options: list[Callable[[Any], Any]] = [
            click.argument("model", metavar=f"[MODEL|F{REPRODUCER_SUFFIX}]", required=False),
            click.option(
                "-c",
                "--code",
                metavar="SNIPPET",
                help="PyTorch expression or statements; torch, F, nn in scope. Only shapes and dtypes of its tensors "
                "count: inputs get random values.",
            ),
            click.option("--golden", metavar="NAME", help="A shape of the golden dataset."),
        ]
        if ir_option:
            options.append(
                click.option("--ir", "reproducer", metavar=f"F{REPRODUCER_SUFFIX}", help="A saved reproducer.")
            )
        options += [
            click.option(
                "--dynamic",
                metavar="NAME@INPUT:AXIS",
                multiple=True,
                help="Make an input's axis symbolic (repeatable); with a snippet or model only.",
            ),
            click.option("--seq-len", type=PositiveInt(), help="Size of the example inputs; does not move the hint."),
        ]
        return _apply(wrapper, options)

    return decorate


def resolve_target(
    *,
    code: str | None = None,
    golden: str | None = None,
    reproducer: str | None = None,
    model: str | None = None,
    dynamic: Sequence[str] = (),
    seq_len: int | None = None,
) -> Target | None:
    """The one target that the options name, or None when they name none.

    Raises InputError for two targets, an empty one, a reproducer that is no file, a malformed or repeated dynamic
    axis, and for `--dynamic` or `--seq-len` beside a target that fixes its own shapes.
    """
    if model is not None and model.endswith(REPRODUCER_SUFFIX):
        named = [("--ir", TargetKind.REPRODUCER, reproducer), (model, TargetKind.REPRODUCER, model)]
    else:
        named = [("--ir", TargetKind.REPRODUCER, reproducer), (f"model {model}", TargetKind.MODEL, model)]
    named += [("--code", TargetKind.SNIPPET, code), ("--golden", TargetKind.GOLDEN, golden)]
    given = [(option, kind, value) for option, kind, value in named if value is not None]
    if len(given) > 1:
        raise InputError("more than one target", found=" and ".join(option for option, _, _ in given), expected="one")
    if not given:
        if dynamic or seq_len is not None:
            raise InputError(
                "--dynamic" if dynamic else "--seq-len", found="no snippet or model", expected="-c SNIPPET or MODEL"
            )
        return None
    option, kind, value = given[0]
    if not value.strip():
        raise InputError(option, found="an empty text", expected=f"a {kind}")
    if kind in (TargetKind.GOLDEN, TargetKind.REPRODUCER):
        _refuse_shape_flags(option, kind, dynamic, seq_len)
    if kind is TargetKind.REPRODUCER and not Path(value).is_file():
        raise InputError(
            "reproducer", found=f"no file {value}", expected=f"a file that --dump-dir wrote (*{REPRODUCER_SUFFIX})"
        )
    return Target(kind, value, _dynamic_specs(dynamic), seq_len)


def _refuse_shape_flags(option: str, kind: TargetKind, dynamic: Sequence[str], seq_len: int | None) -> None:
    flag = "--dynamic" if dynamic else "--seq-len" if seq_len is not None else None
    if flag is not None:
        raise InputError(
            f"{flag} beside {option}", hint=f"drop {flag}: a {kind} carries its own sizes and symbolic axes"
        )


def _dynamic_specs(texts: Sequence[str]) -> tuple[DynamicSpec, ...]:
    specs = tuple(DynamicSpec.parse(text) for text in texts)
    axes = [(spec.input, spec.axis) for spec in specs]
    for spec in specs:
        if axes.count((spec.input, spec.axis)) > 1:
            raise InputError("--dynamic", found=f"axis {spec.input}:{spec.axis} named twice", expected="each axis once")
    return specs


def _target_forms(ir_option: bool) -> str:
    return (
        "-c SNIPPET, --golden NAME, "
        + (f"--ir F{REPRODUCER_SUFFIX}, " if ir_option else "")
        + "a model or a reproducer"
    )


def patience_option(command: Command) -> Command:
    """The command gets `patience: int | None`."""
    return _option("--patience", type=PositiveInt(), help="Live attempts without a new best before a search stops.")(
        command
    )


def device_option(command: Command) -> Command:
    """The command gets `device: str | None`, to be read by `emmy.device.registry.on_this_machine`."""
    return _option(
        "--device",
        metavar="NAME",
        help="Device of this machine: auto, cuda, opencl, or its own name as goldens have it.",
    )(command)


def dump_dir_option(command: Command) -> Command:
    """The command gets `dump_dir: Path | None`, an absolute path that need not exist yet but can be written."""
    return _option(
        "--dump-dir", metavar="DIR", callback=_dump_dir, help="Write kernels and a reproducer of each into this folder."
    )(command)


def json_option(command: Command) -> Command:
    """The command gets `json_path: Path | None` for `write_json`; it can be written. `-` means standard output."""
    return _option(
        "--json",
        "json_path",
        metavar="F",
        callback=_json_path,
        help="Write the result as JSON too; - is standard output.",
    )(command)


def group_option(command: Command) -> Command:
    """The command gets `groups: tuple[str, ...]`, empty when the option was not given."""
    return _option("--group", "groups", metavar="NAME", multiple=True, help="Golden group (repeatable).")(command)


def kernel_option(command: Command) -> Command:
    """The command gets `kernel: str | None`, a substring of the names to keep."""
    return _option("--kernel", metavar="SUBSTR", help="Only what has SUBSTR in its name.")(command)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as a whole or not at all; `-` prints it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if str(path) == "-":
        click.echo(text)
        return
    write_text(path, text + "\n")


def _json_path(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is None or value == "-":
        return None if value is None else Path(value)
    path = Path(value)
    check_file("--json", path)
    return path


def _dump_dir(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    if value is None:
        return None
    path = Path(value).expanduser().absolute()
    check_folder("--dump-dir", path)
    return path


def _option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    return click.option(*names, **attributes)


def _apply(function: Any, decorators: Sequence[Callable[[Any], Any]]) -> Any:
    for decorator in reversed(decorators):
        function = decorator(function)
    return function
