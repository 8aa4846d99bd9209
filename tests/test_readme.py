"""What the README shows is true of the program."""

import re
from pathlib import Path

import pytest

from emmy.frontend import trace_snippet

TEXT = (Path(__file__).parents[1] / "README.md").read_text()
SNIPPETS = re.findall(r"^emmy run -c \"(.+?)\"", TEXT, re.MULTILINE)


def test_there_is_a_snippet() -> None:
    assert SNIPPETS


@pytest.mark.parametrize("source", SNIPPETS)
def test_its_snippets_run_as_they_stand(source: str) -> None:
    traced = trace_snippet(source)
    assert traced.graph.outputs
