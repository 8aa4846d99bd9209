"""The `emmy` command: finds the command's module, and turns whatever it raises into one message and an exit code."""

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec

import click

from emmy import __version__, config
from emmy.errors import EmmyError, FullDisk, InputError

FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130

COMMANDS = {
    "tune": "Search the schedules of a golden, snippet, model or reproducer.",
    "run": "Compile, run and check a program; --bench times it against others.",
    "compile": "Compile a program and print one of its IRs.",
    "eval": "Judge the priors and the measurements.",
    "fit": "Fit the offline prior on real measurements.",
    "golden": "List, show, check, diff and apply goldens.",
    "compare": "Compare two recorded results.",
    "serve": "Serve a tuned model.",
    "explain": "Say why a schedule was picked, refused or never offered.",
}
"""Name and one-line help of each command. Its module `emmy.cli.<name>` has a click command called `command`."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is invoked, and lists those whose module exists."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if find_spec(f"emmy.cli.{name}") is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"emmy.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        offered = self.list_commands(ctx)
        if args[0] not in offered and not args[0].startswith("-"):
            near = get_close_matches(args[0], offered, n=1)
            raise InputError(
                "command",
                found=args[0],
                expected="one of " + ", ".join(offered),
                hint=f"did you mean {near[0]}?" if near else None,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, COMMANDS[name]) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Environment (flags win over variables, variables over defaults)"):
            formatter.write_dl(
                [
                    (v.name, v.help if v.default in (None, "", False) else f"{v.help} (default: {v.default})")
                    for v in config.VARIABLES
                ]
                + [("EMMY_<FAMILY>", f"pins one knob family: {', '.join(config.FAMILIES)}; empty pins it to off")]
            )
        with formatter.section("Exit codes"):
            formatter.write_dl(
                [
                    ("0", "all good"),
                    ("1", "a row failed or a result does not match; the rest is complete"),
                    ("2", "bad input or a missing prerequisite; nothing was started"),
                ]
            )


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="emmy")
def cli() -> None:
    """Compile PyTorch programs to GPU kernels and find the fastest schedule of each by measuring."""
    config.load()
    for name, near in config.unread_variables():
        _say(f"warning: emmy does not read {name}; did you mean {near}?")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `emmy` command and return its exit code: 0, 1 or 2 (130 when interrupted). Never raises."""
    return guarded(lambda: _invoke(sys.argv[1:] if argv is None else argv))


def _invoke(argv: Sequence[str]) -> object:
    with cli.make_context("emmy", list(argv)) as context:
        return cli.invoke(context)


def guarded(command: Callable[[], object]) -> int:
    """Run any command of the project; returns the number that it returned, else 0.

    Never raises: what the command raises becomes one message and an exit code.
    """
    try:
        result = command()
        _flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return _exit_code_after_flush(stop.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return BAD_INPUT
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "emmy"
        _say(f"error: {error.format_message().rstrip('.')}; see {where} --help")
        return BAD_INPUT
    except BaseException as error:
        return _report(error)


def _exit_code_after_flush(code: int) -> int:
    try:
        _flush()
    except OSError as error:
        return _report(error)
    return code


def _flush() -> None:
    if sys.stdout is not None:  # it is None where the shell closed it
        sys.stdout.flush()


def _report(error: BaseException) -> int:
    """Print `error` as one message, after its traceback under EMMY_DEBUG, and return the exit code."""
    if isinstance(error, SystemExit):
        if isinstance(error.code, str):
            _say(error.code)
        return error.code if isinstance(error.code, int) else FAILED if error.code else 0
    _silence_broken_stdout()
    if isinstance(error, BrokenPipeError):
        return FAILED
    if config.debug_requested():
        traceback.print_exception(error)
    if isinstance(error, EmmyError):
        _say(f"error: {error}")
        return error.exit_code
    if any(_is_disk_full(link) for link in _causes(error)):
        full = FullDisk(getattr(error, "filename", None))
        _say(f"error: {full}")
        return full.exit_code
    if (
        isinstance(error, OSError)
        and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR)
        and error.filename
    ):
        _say(
            f"error: no access to {error.filename}: found {error.strerror}, expected a place that can be read and "
            "written; EMMY_TUNE_DB and EMMY_DUMP_DIR move what emmy writes"
        )
        return BAD_INPUT
    if isinstance(error, MemoryError):
        _say(f"error: out of memory{f': {error}' if str(error) else ''}; choose a smaller shape")
        return BAD_INPUT
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("emmy"):
        _say(f"error: python package {error.name} is not installed; run make setup, or install the extra that has it")
        return BAD_INPUT
    _say(f"internal error: {type(error).__name__}: {error}; EMMY_DEBUG=1 shows where")
    return FAILED


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # NumPy's own words carry no number
    return any(words in str(error) for words in ("No space left on device", "Not enough free space to write"))


def _silence_broken_stdout() -> None:
    """Python flushes stdout once more at exit; on a closed pipe or full disk that would change the exit code."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    click.echo(message, err=True)
