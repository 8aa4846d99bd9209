"""``emmy eval``: the views that judge the priors and the measurements.

A store that does not exist is a missing prerequisite (exit code 2); an empty one, or a filter that nothing matches, is
an answer: it is said, with what to run, and the exit code is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from emmy.cli.common import json_option, kernel_option, write_json

if TYPE_CHECKING:
    from emmy.store import Store


@click.group()
def command() -> None:
    """Judge the priors and the measurements."""


def _sweep_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--sweep", metavar="ID", help="Another sweep than each device's newest.")(function)


@command.command()
@kernel_option
@_sweep_option
@click.option("--top", type=click.IntRange(min=0), default=20, show_default=True, help="Rows a region; 0 shows all.")
@json_option
def variants(kernel: str | None, sweep: str | None, top: int, json_path: Path | None) -> int:
    """Measured configurations per kernel, fastest first, and where the prior's pick ranks."""
    from emmy.evaluate import variants as view

    store = _store()
    boards = view.leaderboards(store, kernel, sweep)
    return _show(store, kernel, sweep, json_path, view.to_json(boards), view.text(boards, top) if boards else "")


@command.command()
@kernel_option
@_sweep_option
@json_option
def failures(kernel: str | None, sweep: str | None, json_path: Path | None) -> int:
    """Failed rows by kernel and error, and the knobs that all of them share."""
    from emmy.evaluate import failures as view

    store = _store()
    found = view.failures(store, kernel, sweep)
    return _show(
        store, kernel, sweep, json_path, view.to_json(found), view.text(found) if found.ok or found.failed else ""
    )


def _store() -> Store:
    from emmy.config import load
    from emmy.evaluate.scope import need_store
    from emmy.store import Store

    store = Store(load().tune_db)
    need_store(store)
    return store


def _show(store: Store, kernel: str | None, sweep: str | None, json_path: Path | None, value: Any, text: str) -> int:
    """Print the view, or JSON alone where that goes to standard output."""
    from emmy.evaluate.scope import nothing

    if json_path is not None:
        write_json(json_path, value)
    if not text:
        click.echo(nothing(store, kernel, sweep), err=json_path is not None and str(json_path) == "-")
    elif json_path is None or str(json_path) != "-":
        click.echo(text)
    return 0
