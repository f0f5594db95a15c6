"""The ends of files that are brought into the page cache ahead of an engine."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from holdfast.fs.file_io.file_ends import read_ends
from tests.support.daemons.node import wait_until
from tests.support.kernel.page_cache import cached_pages, forget

MIB = 2**20
END_BYTES = 24 * MIB


@pytest.fixture
def tree() -> Any:
    return SimpleNamespace(open_file=lambda path: os.open(path, os.O_RDONLY))


async def test_all_of_a_long_end_is_read(tree: Any, workspace: Path) -> None:
    """Gain: the kernel reads no more of one request than the read-ahead of the disk, so the last bytes were left out."""
    path = workspace / "file"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    forget(path)
    assert cached_pages(path) == 0
    await trio.to_thread.run_sync(partial(read_ends, tree, [bytes(path)], lambda _: END_BYTES))
    wait_until(lambda: cached_pages(path) == END_BYTES // 4096)


async def test_a_name_without_a_file_and_an_empty_file_are_passed_over(tree: Any, workspace: Path) -> None:
    (workspace / "empty").touch()
    (workspace / "short").write_bytes(b"short")
    forget(workspace / "short")
    paths = [bytes(workspace / name) for name in ("absent", "empty", "short")]
    await trio.to_thread.run_sync(partial(read_ends, tree, [*paths, b"\0"], lambda _: END_BYTES))
    wait_until(lambda: cached_pages(workspace / "short") == 1)
