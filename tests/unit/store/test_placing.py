"""Which disk a new directory comes to, and what is found behind its placeholder."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.partition_directories import PartitionDirectories
from holdfast.config import Durability
from holdfast.store import DiskSpace, OtherDisk, Space, disk_space
from holdfast.store.disk_choice import DiskChoice, PartitionDisks, _share
from holdfast.store.disk_inspection import SUBDIRECTORIES
from holdfast.store.held_directories import HeldDirectories
from holdfast.store.other_disk import Placeholder
from holdfast.store.placeholders import Placeholders
from holdfast.store.spread_tree import SpreadTree
from holdfast.system.file_id import FileId, id_on
from holdfast.zones import Fallbacks, ZoneMap


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ((DiskSpace(1000, 500), 1), (DiskSpace(1000, 400), 1)),
        ((DiskSpace(1000, 400), 1), (DiskSpace(1000, 600), 2)),  # 300 and 250 above the reserve for each
        ((DiskSpace(1000, 150), 1), (DiskSpace(9000, 100), 1)),
        ((DiskSpace(1000, 101), 50), (DiskSpace(1000, 100), 1)),
        ((DiskSpace(1000, 300, 200, 11), 1), (DiskSpace(1000, 900, 200, 10), 1)),
        ((DiskSpace(1000, 300, 0, 0), 1), (DiskSpace(1000, 200, 200, 100), 1)),
        ((DiskSpace(1000, 90), 1), (DiskSpace(1000, 50), 1)),  # none has its reserve
    ],
)
def test_it_is_that_with_the_most_space_above_its_reserve_for_each_directory(
    better: tuple[DiskSpace, int], worse: tuple[DiskSpace, int]
) -> None:
    assert _share(*better, Space(10, 100)) > _share(*worse, Space(10, 100))


@pytest.fixture
def first_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def disk(number: int, free_bytes: int) -> Any:
    made = SimpleNamespace(number=number, has_failed=False, is_absent=False, free_bytes=free_bytes)
    made.space = lambda: DiskSpace(10 * free_bytes, made.free_bytes)
    return made


def none_kept(_: DiskSpace) -> Space:
    return Space(0, 0)


def partition_disks(first_fd: int, *disks: Any) -> PartitionDisks:
    return PartitionDisks(DiskChoice(first_fd, disks), lambda path: path, none_kept)


def test_partitions_are_divided_by_free_space_although_nothing_is_written_yet(first_fd: int) -> None:
    first_bytes = disk_space(first_fd).free_bytes
    chosen = partition_disks(first_fd, large := disk(1, 8 * first_bytes), small := disk(2, 4 * first_bytes))
    counts = Counter(id(chosen.of(b"%d" % number)) for number in range(1300))
    assert abs(counts[id(large)] - 800) < 20  # others work on the first disk meanwhile
    assert abs(counts[id(small)] - 400) < 20


def test_a_disk_is_chosen_once_for_a_directory_until_it_is_made_or_the_disk_fails(first_fd: int) -> None:
    one, other = (disk(number, 100 * disk_space(first_fd).free_bytes) for number in (1, 2))
    chosen = partition_disks(first_fd, one, other)
    first = chosen.of(b"p")
    assert first is not None
    assert [chosen.of(b"p") for _ in range(5)] == [first] * 5
    second = chosen.of(b"q")
    assert second is (other if first is one else one)
    assert chosen.made(b"p") == [first, second, None]
    one.has_failed = other.has_failed = True
    assert chosen.of(b"q") is None
    assert chosen.made(b"q") == [None]


def test_another_disk_is_chosen_for_a_directory_once_the_first_choice_has_only_its_reserve_left(first_fd: int) -> None:
    free_bytes = disk_space(first_fd).free_bytes
    one, other = (disk(number, number * 100 * free_bytes) for number in (1, 2))
    choice = DiskChoice(first_fd, [one, other])
    chosen = PartitionDisks(choice, lambda path: path, lambda space: Space(0, 2 * free_bytes))
    assert [chosen.of(b"p")] == [other]
    other.free_bytes = one.free_bytes = 2 * free_bytes
    assert [chosen.of(b"p")] == [other]  # no other has more than its reserve either
    one.free_bytes += 1000
    assert [chosen.of(b"p") for _ in range(3)] == [one] * 3
    other.free_bytes += 2000
    assert chosen.of(b"p") is one
    assert chosen.made(b"p") == [one, other, None]


@pytest.mark.parametrize("failing", ["listdir", "setxattr"])
def test_an_error_of_the_first_disk_is_not_taken_for_one_of_another_disk(
    tmp_path: Path, first_fd: int, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    fds = {}
    for name in (".", *SUBDIRECTORIES):
        (tmp_path / "other" / name).mkdir(parents=True, exist_ok=True)
        fds[name] = os.open(tmp_path / "other" / name, os.O_RDONLY)
    other = OtherDisk(1, "id", tmp_path / "other", "/", -1, fds)
    monkeypatch.setattr(other, "space", lambda: DiskSpace(2**60, 2**60))
    (tmp_path / "p").mkdir()
    tree = SpreadTree(first_fd, HeldDirectories(), [other], [])
    tree.spread_partitions(lambda path: path, none_kept)
    call, here = getattr(os, failing), b"/proc/self/fd/%d/p" % first_fd

    def fails(path: bytes, *arguments: Any, **options: Any) -> Any:
        if path == here:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return call(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fails)
        tree.place_partition(first_fd, b"p")
    assert not other.has_failed
    assert tree.partitions_on(1) == []
    assert os.listdir(tmp_path / "other/partitions") == []
    tree.place_partition(first_fd, b"p")
    assert tree.partitions_on(1) == [b"p"]
    for fd in fds.values():
        os.close(fd)


def placeholder(path: bytes, number: int, disk: Any) -> Placeholder:
    return Placeholder(FileId(number), path, disk, b"%d" % number)


def test_the_nearest_placeholder_above_a_path_is_found(tmp_path: Path) -> None:
    gone = OtherDisk(1, "id", tmp_path, "/", -1, {}, problem="it is not there")
    placeholders = Placeholders([])
    assert placeholders.above(b"work/a/b") is None
    workdir, partition = placeholder(b"work/a", 7, gone), placeholder(b"checkpoints/q/state/0/3", 8, gone)
    for each in (workdir, partition):
        placeholders.add(each)
    assert placeholders.deepest == 5
    for path, found in (
        (b"work/a", workdir),
        (b"work/a/localState/q/state/0/3", workdir),
        (b"work/ab", None),
        (b"work", None),
        (b"", None),
        (b"checkpoints/q/state/0/3", partition),
        (b"checkpoints/q/state/0/3/SSTs/x", partition),
        (b"checkpoints/q/state/0/30", None),
        (b"checkpoints/q/state/0", None),
    ):
        assert placeholders.above(path) is found, path
    assert [placeholders.is_any_below(path) for path in (b"checkpoints/q", b"checkpoints/q/state/0/3", b"check")] == [
        True,
        True,
        False,
    ]
    assert (placeholders.on(1, workdirs=True), placeholders.on(1, workdirs=False)) == ([workdir.path], [partition.path])
    beside = placeholder(b"checkpoints/q/state/0/4", 9, gone)
    placeholders.add(beside)
    placeholders.drop(beside)
    assert placeholders.is_any_below(b"checkpoints/q/state")
    placeholders.drop(partition)
    assert not placeholders.is_any_below(b"checkpoints/q/state")
    assert not placeholders.is_any_below(b"checkpoints")
    assert placeholders.is_any_below(b"work")
    assert placeholders.above(b"checkpoints/q/state/0/3") is None
    assert placeholders.id_of(id_on(1, 5)) == id_on(1, 5)


class NotGoneThrough(dict[bytes, Placeholder]):
    """Fails if somebody goes through all of it."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError


def test_directories_without_placeholders_are_told_without_a_look_at_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = OtherDisk(1, "id", tmp_path, "/", -1, {}, problem="it is not there")
    placeholders = Placeholders(placeholder(b"checkpoints/q/state/0/%d" % number, number, gone) for number in range(3))
    monkeypatch.setattr(placeholders, "_by_path", NotGoneThrough(placeholders._by_path))
    assert placeholders.is_any_below(b"checkpoints/q/state")
    assert not placeholders.is_any_below(b"work/a/rocksdb")


def test_what_is_a_partitions_directory() -> None:
    stores = {"checkpoints": Durability.COMMIT, "late": Durability.ASYNC, "here": Durability.LOCAL}
    directories = PartitionDirectories(ZoneMap(stores, [b"work"], lambda _: Fallbacks("checkpoints", None)), FORMATS)
    for path, directory in (
        (b"checkpoints/q/state/0/3", b"checkpoints/q/state/0/3"),
        (b"checkpoints/q/state/0/3/SSTs/x.sst", b"checkpoints/q/state/0/3"),
        (b"checkpoints/state/10/200/left/1.delta", b"checkpoints/state/10/200"),
        (b"late/team/deeper/q/state/0/3/1.zip", b"late/team/deeper/q/state/0/3"),
        (b"checkpoints/q/state/0/3/state/1/2", b"checkpoints/q/state/0/3"),
        (b"checkpoints/q/state/0", None),
        (b"checkpoints/q/state/0/_metadata/metadata", None),
        (b"checkpoints/q/states/0/3", None),
        (b"checkpoints/q/state/0/3x", None),
        (b"checkpoints", None),
        (b"", None),
        (b"here/q/state/0/3", None),
        (b"work/worker_1/localState/q/state/0/3", None),
        (b"unknown/q/state/0/3", None),
        (b"checkpoints/" + b"d/" * 20 + b"state/0/3", None),
        (b"checkpoints/" + b"d" * 1100 + b"/state/0/3", None),
    ):
        assert directories.above(path) == directory, path
