"""Jinja2 as the reports use it: an undefined name is an error, and numbers have one spelling."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from emmy.config import templates_dir
from emmy.evaluate.table import number


def render(template: str, context: Mapping[str, Any]) -> str:
    """A template of ``templates/`` with its context. Raises jinja2.UndefinedError for a name that the context lacks."""
    return _environment(str(templates_dir())).get_template(template).render(context)


@lru_cache(maxsize=2)
def _environment(folder: str) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"us": _us, "ratio": _ratio, "clock": _clock, "seconds": _seconds, "wrap": _wrap}
    return environment


def _wrap(text: str) -> str:
    """Lines of at most 118 columns; those after the first are indented as under a bullet."""
    lines = textwrap.wrap(text, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _us(value: float | None) -> str:
    """Four significant digits; empty where there is no number."""
    return "" if value is None else number(value)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _clock(value: float) -> str:
    """``4 min 7 s``."""
    minutes, seconds = divmod(round(value), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
