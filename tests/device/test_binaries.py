"""The cache of compiled CUDA binaries, and the pool that fills it; none of it needs a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emmy.codegen import nvrtc
from emmy.codegen.nvrtc import NvrtcResult
from emmy.device.binaries import Binary, BinaryCache, CompilePool
from emmy.errors import CompileFailed
from tests.codegen.compilers import require_nvrtc

SOURCE = 'extern "C" __global__ void k(float* x) { x[0] = 1.0f; }'
JOB = (SOURCE, "sm_80", ("--Ofast-compile=min",))


def test_the_key_holds_all_that_a_binary_depends_on() -> None:
    parts = (SOURCE, "sm_80", ("-a",), "nvrtc 13.0")
    others = (f"{SOURCE} ", "sm_90a", (), "nvrtc 13.1")
    keys = [BinaryCache.key(*parts)]
    for place, other in enumerate(others):
        changed = [*parts[:place], other, *parts[place + 1 :]]
        keys.append(BinaryCache.key(*changed))  # type: ignore[arg-type]
    assert len(set(keys)) == len(keys)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the sources that a compiler of its own was asked for."""
    asked: list[str] = []

    def compile_cuda(source: str, arch: str, options: tuple[str, ...] = ()) -> NvrtcResult:
        asked.append(source)
        if "error" in source:
            raise CompileFailed("NVRTC: it does not compile", log="line 1: error")
        return NvrtcResult(b"ELF" + source.encode(), "", "a remark", 0.5)

    monkeypatch.setattr(nvrtc, "compile_cuda", compile_cuda)
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: (13, 0))
    return asked


def test_a_source_is_compiled_once_whether_it_compiles_or_not(compiled: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        cache = BinaryCache(tmp_path)
        assert cache.compile("good", "sm_80", ()) == Binary(b"ELFgood", "a remark", 0.5)
        assert cache.compile("an error", "sm_80", ()) == Binary(b"", "line 1: error", 0.0, "NVRTC: it does not compile")
    assert compiled == ["good", "an error"]


@pytest.mark.parametrize("damage", ["cut", "empty", "head"])
def test_a_damaged_file_is_compiled_again(compiled: list[str], tmp_path: Path, damage: str) -> None:
    cache = BinaryCache(tmp_path)
    whole = cache.compile("good", "sm_80", ())
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-1], "empty": b"", "head": b"{" + data}[damage])
    assert cache.compile("good", "sm_80", ()) == whole
    assert path.read_bytes() == data
    assert len(compiled) == 2


def test_a_file_appears_whole_and_a_failed_write_leaves_none(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, seen = BinaryCache(tmp_path), []

    def replace(source: str, target: Path) -> None:
        head, _, cubin = Path(source).read_bytes().partition(b"\n")
        seen.append((Path(source).parent == tmp_path, target.exists(), json.loads(head)["bytes"] == len(cubin)))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space left"):
            cache.compile("good", "sm_80", ())
    assert seen == [(True, False, True)]
    assert list(tmp_path.iterdir()) == []
    cache.compile("good", "sm_80", ())
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[CompilePool]:
    pool = CompilePool(BinaryCache(tmp_path), 1)
    yield pool
    pool.close()


def test_the_pool_fills_the_cache(pool: CompilePool) -> None:
    require_nvrtc()
    pool.request([JOB])
    pool.wait(*JOB, 60)
    key = BinaryCache.key(*JOB, "nvrtc {}.{}".format(*nvrtc.nvrtc_version()))
    held = pool.cache.get(key)
    assert held is not None
    assert held.cubin[:4] == b"\x7fELF"


def test_a_deadline_ends_the_pool_and_the_next_request_starts_another(pool: CompilePool) -> None:
    require_nvrtc()
    pool.request([JOB])
    with pytest.raises(CompileFailed, match=r"deadline of 0.01 s"):
        pool.wait(*JOB, 0.01)
    pool.request([JOB])
    pool.wait(*JOB, 60)
    assert len(list(pool.cache.folder.glob("*.cubin"))) == 1
