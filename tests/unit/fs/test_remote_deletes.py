"""Which directories of a store stay without objects: marks are removed with the first object."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.fs.writeback.remote_deletes import RemoteDeletes
from holdfast.index import Index
from holdfast.store import Tree
from holdfast.system.file_id import FileId
from holdfast.zones import Zone, ZoneKind, ZonePath


class LookedAt(Tree):
    """A tree that counts how often it is looked at."""

    looks = 0

    def inode(self, path: bytes) -> FileId:
        self.looks += 1
        return super().inode(path)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[LookedAt]:
    (tmp_path / "tree").mkdir()
    fd = os.open(tmp_path / "tree", os.O_RDONLY)
    yield LookedAt(fd)
    os.close(fd)


def test_a_mark_goes_with_the_first_object_and_no_other_object_looks_for_it(
    index: Index, tree: LookedAt, tmp_path: Path
) -> None:
    parts = SimpleNamespace(index=index, store=SimpleNamespace(tree=tree))
    remote_deletes = RemoteDeletes(cast(Any, SimpleNamespace(view=None, fetcher=None, parts=parts)))
    directory = tmp_path / "tree/d/e"
    place = ZonePath(Zone(ZoneKind.STORE, b"d", "d"), b"d/e")

    def held_after_an_object() -> bool:
        remote_deletes.let_go(place)
        return index.marks.is_held(FileId(directory.stat().st_ino))

    directory.mkdir(parents=True)
    index.marks.hold(FileId(directory.stat().st_ino))
    assert not held_after_an_object()
    looks = tree.looks
    assert not held_after_an_object()
    assert tree.looks == looks
    index.marks.hold(FileId(directory.stat().st_ino))
    assert not held_after_an_object()

    above = directory.parent.stat().st_ino
    index.marks.hold(FileId(above))
    assert not held_after_an_object()
    assert not index.marks.is_held(FileId(above))

    other = tmp_path / "tree/other"
    other.mkdir()
    index.marks.hold(FileId(other.stat().st_ino))
    assert not held_after_an_object()
    directory.rmdir()
    other.rename(directory)
    index.marks.moved()
    assert not held_after_an_object()
