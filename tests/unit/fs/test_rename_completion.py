"""A rename that is completed after its user was told that the file is busy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from holdfast.errors import FileBusyError
from holdfast.fs.file_io.release import Background
from holdfast.fs.namespace.rename_completion import FileMove, RenameCompletion
from holdfast.index import CachedName
from holdfast.system.file_id import FileStat, file_stat

_VERSION = CachedName(b"store/old", "etag", 1)


class _Parts:
    """The parts that a completion works with: its directories are paths, and ``done`` lists the steps taken."""

    def __init__(self) -> None:
        self.done: list[object] = []
        self.is_busy = False

    def stat(self, directory: Path, name: bytes) -> FileStat | None:
        """Return the attributes of a name, if it is there."""
        path = directory / os.fsdecode(name)
        return file_stat(str(path)) if path.exists() else None

    async def sync(self, directory: Path) -> None:
        """A directory is made durable."""
        self.done.append(f"synced {directory.name}")

    def local(self, *name: object) -> None:
        """A file's node is asked for."""

    @contextmanager
    def descriptor_of(self, node: None) -> Iterator[int]:
        """A file is open in this context."""
        assert node is None
        yield -1

    async def keep_named(self, fd: int, path: bytes) -> None:
        """A file is queued."""
        if self.is_busy:
            raise FileBusyError("it is held up")
        self.done.append(f"queued {os.fsdecode(path)}")

    def delete_object(self, name: object, version: CachedName) -> None:
        """An object goes."""
        self.done.append((name, version))


def _move(source: Path, target: Path) -> FileMove:
    """A move from the store to the directory ``target``, which has been made."""
    for directory in (source, target):
        directory.mkdir()
    (target / "new").touch()
    old = SimpleNamespace(directory=source, name=b"old", path=b"store/old")
    new = SimpleNamespace(directory=target, name=b"new", path=b"work/new")
    return FileMove(cast(Any, old), cast(Any, new), 0, file_stat(str(target / "new")))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("leaves", ["synced work", "deleted"]),
        ("is unsent", ["queued work/new", "synced work"]),
        ("has lost its new name too", ["synced work", "deleted"]),
        ("another has the old name", ["queued work/new", "synced work"]),
        ("is busy again", []),
    ],
)
async def test_what_follows_a_late_rename(tmp_path: Path, name: str, expected: list[str]) -> None:
    parts, background = _Parts(), Background()
    base: Any = SimpleNamespace(
        directories=parts,
        nodes=parts,
        policy=None,
        copies=None,
        losses=None,
        parts=SimpleNamespace(index=SimpleNamespace(entries=None)),
    )
    sending: Any = SimpleNamespace(queue=parts, remote_deletes=parts)
    files: Any = SimpleNamespace(files=parts, check=None, background=background)
    completion = RenameCompletion(base, sending, files)
    move = _move(tmp_path / "store", tmp_path / "work")
    parts.is_busy = name == "is busy again"
    if name == "has lost its new name too":
        (tmp_path / "work/new").unlink()
    elif name == "another has the old name":
        (tmp_path / "store/old").touch()
    async with trio.open_nursery() as nursery:
        await nursery.start(background.run)
        completion.complete_later(move, None if name == "is unsent" else _VERSION, is_unsent=name != "leaves")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert parts.done == [(move.old, _VERSION) if each == "deleted" else each for each in expected]
