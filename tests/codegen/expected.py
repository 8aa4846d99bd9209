"""Expected-output files: printed text compared with a file beside the test."""

import os
from pathlib import Path


def expect(path: Path, text: str) -> None:
    """Asserts that ``text`` is what ``path`` holds. ``UPDATE_EXPECTED=1`` writes it instead, for review in git."""
    if os.environ.get("UPDATE_EXPECTED") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.is_file(), f"{path.name} is missing: run the test with UPDATE_EXPECTED=1 and review it"
    assert text == path.read_text(), f"{path.name} differs: review the change with UPDATE_EXPECTED=1 and git diff"
