"""``emmy golden``: the golden shapes, what is recorded for them, and reviewed changes."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from emmy.cli.common import group_option, kernel_option
from emmy.errors import EmmyError, InputError

if TYPE_CHECKING:
    from emmy.evaluate.offered import Place
    from emmy.goldens.entry import GoldenConfig
    from emmy.goldens.patch import Proposal
    from emmy.goldens.schema import GoldenFile


@click.group()
def command() -> None:
    """List, show, check, diff and apply goldens."""


@command.command("list")
@group_option
@kernel_option
def list_goldens(groups: tuple[str, ...], kernel: str | None) -> int:
    """One line a shape: name, kind, sizes, groups, and how many entries each device has."""
    from emmy.goldens.dataset import shapes
    from emmy.goldens.schema import golden_paths, load_goldens

    files = [load_goldens(path) for path in golden_paths()]
    rows = [["name", "kind", "dims", "dtype", "groups", *(file.device for file in files)]]
    for shape in shapes(groups or None, kernel):
        counts = [_count([entry for entry in file.entries if entry.name == shape.name]) for file in files]
        rows.append([shape.name, shape.kind, shape.dims_text, str(shape.dtype), " ".join(shape.groups), *counts])
    _table(rows)
    click.echo(f"{len(rows) - 1} shapes, {len(files)} devices; * symbolic, at its hint")
    return 0


@command.command()
@click.argument("name")
def show(name: str) -> int:
    """A shape's program and inputs, and every entry recorded for it, with what follows from them."""
    from emmy.goldens.dataset import shape
    from emmy.goldens.schema import goldens_by_name

    found = shape(name)
    click.echo(f"{found.name}: {found.kind} {found.dims_text} {found.dtype}, groups {' '.join(found.groups)}")
    click.echo(f"  {found.snippet()}")
    for spec in found.inputs():
        symbolic = "".join(f", axis {axis} symbolic ({name})" for axis, name in spec.symbolic)
        click.echo(f"  {spec.name}: {list(spec.shape)} {spec.dtype}{symbolic}")
    entries = goldens_by_name(name)
    if not entries:
        click.echo("no entry recorded")
        return 0
    rows = [["device", "lane", "emmy µs", "reference µs", "emmy/reference", "golden", "knobs"]]
    for entry in entries:
        reference = f"{entry.reference} {entry.reference_us:g}"
        golden = "yes" if entry.golden else "no"
        rows.append(
            [entry.device, entry.lane, f"{entry.emmy_us:g}", reference, f"{entry.ratio:.3f}", golden, str(entry.knobs)]
        )
    _table(rows)
    return 0


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> int:
    """Check FILE, or the dataset and every golden file.

    Schema, names and sizes, spelling of the knobs, and whether each entry is offered on its device's architecture (no
    GPU is needed): those that are stand in a list (name:line), one that is not says which rule refuses it.
    """
    from emmy.goldens.dataset import load_dataset
    from emmy.goldens.schema import foreign_entries, golden_paths, load_goldens

    code = 0
    try:
        known = load_dataset()
        click.echo(f"dataset: {len(known)} shapes")
    except EmmyError as error:
        click.echo(f"error: {error}")
        return 2
    for path in [file] if file is not None else golden_paths():
        try:
            content = load_goldens(path)
        except EmmyError as error:
            click.echo(f"error: {error}")
            code = 2
            continue
        complaints = [(entry, text) for entry, text in foreign_entries(content)]
        complaints += [(entry, text) for entry in content.entries if (text := _unread(entry))]
        places, notes = _offered(content)
        complaints += [(place.entry, place.text) for place in places if place.state == "refused"]
        told = complaints + [(place.entry, place.text) for place in places if place.state == "pinned only"]
        for entry, text in sorted(told, key=lambda one: one[0].line):
            click.echo(f"{path}:{entry.line}: {entry.name}: {text}")
        click.echo(f"{path.name}: {content.device}, {len(content.entries)} entries, {len(complaints)} complaints")
        click.echo(f"  {notes}")
        if offered := [f"{place.entry.name}:{place.entry.line}" for place in places if place.state == "offered"]:
            click.echo(_wrapped(f"offered: {' '.join(offered)}"))
        code = max(code, 1 if complaints else 0)
    return code


def _wrapped(text: str) -> str:
    return textwrap.fill(
        text, 120, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _unread(entry: GoldenConfig) -> str:
    """Which knobs of an entry the grammar does not know; empty where it knows all."""
    names = entry.knobs.raw
    if not names:
        return ""
    spelled = ", ".join(f"{name} {entry.knobs[name]}" for name in names)
    return f"not in the grammar, kept as {'it stands' if len(names) == 1 else 'they stand'}: {spelled}"


def _offered(content: GoldenFile) -> tuple[list[Place], str]:
    """What is offered of a file, and a line that sums it up or says why it was not checked."""
    from emmy.errors import MissingPrerequisite
    from emmy.evaluate.offered import capabilities_of, places

    caps = capabilities_of(content.device)
    if caps is None:
        return [], f"no architecture is known for {content.device}: offers not checked"
    try:
        found = places(content.entries, caps)
    except (ImportError, MissingPrerequisite) as error:
        return [], f"offers not checked: {error}"
    counts = {state: sum(place.state == state for place in found) for state in ("offered", "pinned only", "refused")}
    unread = len(content.entries) - len(found)
    texts = [f"{count} {state}" for state, count in counts.items() if count or state == "offered"]
    return found, f"on {caps.arch}: {', '.join(texts)}" + (f", {unread} not in the grammar" if unread else "")


@command.command()
@click.argument("proposal", type=click.Path(path_type=Path))
def diff(proposal: Path) -> int:
    """The reasons and the unified diff of PROPOSAL (a JSON file that a sweep wrote)."""
    _review(_load(proposal))
    return 0


@command.command()
@click.argument("proposal", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask.")
def apply(proposal: Path, yes: bool) -> int:
    """Apply PROPOSAL to its golden file, whole or not at all, after asking."""
    loaded = _load(proposal)
    _review(loaded)
    if not loaded.operations:
        return 0
    if not yes:
        if not at_terminal():
            raise InputError("not applied", found="no terminal to ask at", hint="read the diff, then pass --yes")
        if not click.confirm("apply?"):
            click.echo("nothing was changed")
            return 1
    click.echo(f"applied to {loaded.apply()}")
    return 0


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


def _load(path: Path) -> Proposal:
    from emmy.goldens.fields import read_text
    from emmy.goldens.patch import Proposal

    return Proposal.from_json(read_text(path), path)


def _review(proposal: Proposal) -> None:
    """Reasons as comments, so that the whole output is still a patch."""
    text = proposal.to_diff()
    for operation in proposal.operations:
        click.echo(f"# {operation.kind} {operation.name}: {operation.reason}")
    click.echo(text or "# no change", nl=not text)


def _count(entries: Sequence[GoldenConfig]) -> str:
    lanes = [entry.lane for entry in entries]
    return " + ".join(f"{lanes.count(lane)} {lane}" for lane in ("std", "fm") if lane in lanes) or "-"


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
