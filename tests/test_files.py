"""Files that appear whole or not at all, and places that cannot be written."""

import errno
import os
from pathlib import Path

import pytest

from emmy import files
from emmy.errors import FullDisk, InputError


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        files.check_file("--json", pipe)
        files.write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    for text in ("one", "two"):
        files.check_file("--json", link)
        files.write_text(link, text)
        assert link.is_symlink()
        assert file.read_text() == text


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    files.check_folder("--dump-dir", tmp_path / "a" / "b")
    files.check_file("--json", tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    with pytest.raises(FullDisk, match="disk full"):
        files.check_folder("--dump-dir", tmp_path)


def test_a_dangling_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match="link is no folder"):
        files.check_folder("--dump-dir", tmp_path / "link" / "dump")
