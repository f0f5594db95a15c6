"""What an earlier daemon's walk of the tree has noted is believed only where it still holds."""

from __future__ import annotations

import os
import stat as stat_module
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import StaleNodeError
from holdfast.fs.inodes.node import Node
from holdfast.fs.inodes.node_recovery import Names, NodeRecovery
from holdfast.session import NodeRecord
from holdfast.store import Tree
from holdfast.system.file_id import NO_FILE, FileId, FileStat
from tests.unit.fs.node_tables import node_table

ROOT, DIRECTORY, FILE = FileId(2), FileId(10), FileId(20)
FILE_MODE, DIRECTORY_MODE = stat_module.S_IFREG | 0o644, stat_module.S_IFDIR | 0o755


class Disk:
    """A tree that is a dictionary: by directory's inode number and name, mode and inode number."""

    def __init__(self, names: Names, recorded: dict[int, NodeRecord] | None = None, in_kernel: Iterable[int] = ()) -> None:
        self.entries: dict[tuple[int, bytes], tuple[int, int]] = {}
        self.orphans: set[FileId] = set()
        self.recorded = recorded or {}
        self.in_kernel = set(in_kernel)
        records: Any = SimpleNamespace(nodes=lambda: list(self.recorded.items()), drop=self.recorded.pop)
        self.recovery = recovery = NodeRecovery(records, lambda: self.orphans, self._stat, self.in_kernel.__contains__)
        self.nodes = node_table(ROOT, earlier=recovery)
        recovery.load(self.nodes, names)

    def _stat(self, directory: Node, name: bytes) -> FileStat | None:
        if not directory.is_directory:
            raise NotADirectoryError
        found = self.entries.get((directory.backing, name))
        return FileStat((found[0], found[1], *[0] * 8)) if found else None


def test_a_file_is_found_by_all_names_that_still_lead_to_it() -> None:
    disk = Disk({DIRECTORY: [(ROOT, b"d")], FILE: [(DIRECTORY, b"a"), (ROOT, b"b"), (ROOT, b"gone")]})
    disk.entries = {
        (ROOT, b"d"): (DIRECTORY_MODE, DIRECTORY),
        (DIRECTORY, b"a"): (FILE_MODE, FILE),
        (ROOT, b"b"): (FILE_MODE, FILE),
        (ROOT, b"gone"): (FILE_MODE, FILE + 1),
    }
    node = disk.nodes.get(FILE)
    assert [(parent.id, name) for parent, name in node.names()] == [(DIRECTORY, b"a"), (1, b"b")]
    assert disk.nodes.get(DIRECTORY).is_directory


def test_numbers_of_a_file_and_its_directory_that_new_files_have_got_mean_nothing_any_more() -> None:
    disk = Disk({DIRECTORY: [(ROOT, b"d")], FILE: [(DIRECTORY, b"a"), (ROOT, b"b")]})
    disk.entries = {(ROOT, b"new"): (FILE_MODE, DIRECTORY), (ROOT, b"newer"): (FILE_MODE, FILE)}
    first = disk.nodes.local(disk.nodes.root, b"new", DIRECTORY, FILE_MODE)
    second = disk.nodes.local(disk.nodes.root, b"newer", FILE, FILE_MODE)
    assert [[name for _, name in node.names()] for node in (first, second)] == [[b"new"], [b"newer"]]


def test_a_new_file_gets_another_id_while_the_kernel_has_an_earlier_one_with_its_number() -> None:
    disk = Disk({})
    disk.in_kernel.add(FILE)
    ids = []
    for name in (b"first", b"second"):
        disk.nodes.begin(FILE)
        node = disk.nodes.local(disk.nodes.root, name, FILE, FILE_MODE)
        ids.append(node.id)
        disk.nodes.drop_name(node, disk.nodes.root, name)
        disk.nodes.forget(node.id, 1)
        disk.in_kernel.clear()
        disk.nodes.forget(FILE, 3)
    assert ids[0] != FILE
    assert ids[1] == FILE


def test_ids_that_the_kernel_has_forgotten_are_dropped_by_the_next_daemon() -> None:
    recorded = {each: NodeRecord(NO_FILE, False, 1, b"%d" % each) for each in (FILE, FILE + 1)}
    disk = Disk({}, recorded, in_kernel=[FILE])
    assert [disk.nodes.known(each) is not None for each in (FILE, FILE + 1)] == [True, False]
    assert list(disk.recorded) == [FILE]


def test_a_file_without_a_name_is_found_as_long_as_it_is_sheltered() -> None:
    disk = Disk({})
    disk.orphans.add(FILE)
    assert not disk.nodes.get(FILE).is_named
    disk.nodes.forget(FILE, 1)
    disk.orphans.clear()
    with pytest.raises(StaleNodeError):
        disk.nodes.get(FILE)


def test_a_directory_that_a_request_names_stays_when_its_last_file_moves_out_of_it() -> None:
    disk = Disk({DIRECTORY: [(ROOT, b"d")], FILE: [(DIRECTORY, b"a")]})
    disk.entries = {(ROOT, b"d"): (DIRECTORY_MODE, DIRECTORY), (DIRECTORY, b"a"): (FILE_MODE, FILE)}
    disk.nodes.local(disk.nodes.root, b"d", DIRECTORY, DIRECTORY_MODE)  # as a rename does, which tells the kernel no id
    directory = disk.nodes.get(DIRECTORY)
    file = disk.nodes.local(directory, b"a", FILE, FILE_MODE)
    disk.nodes.drop_name(file, directory, b"a")
    assert disk.nodes.known(DIRECTORY) is directory
    disk.nodes.forget(DIRECTORY, 3)
    assert disk.nodes.known(DIRECTORY) is None


def test_the_walk_finds_what_the_kernel_has_and_what_is_in_use_wherever_it_is(tmp_path: Path) -> None:
    for name in ("known/file", "known/other", "forgotten/deep/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    inodes = {str(path.relative_to(tmp_path)): path.stat().st_ino for path in tmp_path.rglob("*")}
    disk = Disk({}, in_kernel=[inodes["known"], inodes["known/file"]])
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        found = disk.recovery.names_in(Tree(fd), [])
        in_use = disk.recovery.names_in(Tree(fd), [inodes["forgotten/deep/file"]])
    finally:
        os.close(fd)
    assert {name for names in found.values() for _, name in names} == {b"known", b"file"}
    assert set(found) == {inodes["known"], inodes["known/file"]}
    assert set(in_use) == {*found, *(inodes[name] for name in ("forgotten", "forgotten/deep", "forgotten/deep/file"))}
