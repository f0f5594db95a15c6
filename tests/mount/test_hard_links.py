"""Hard links between the directories of one process: one file, whichever side made a link, whichever name goes first."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from holdfast.store import RENAME_EXCHANGE, rename_with_flags
from tests.support.daemons.node import Node, wait_until

BYTES = b"sorted strings " * 5000
SIDES = list(itertools.permutations(("rocksdb", "tmp", "localState"), 2))


@pytest.fixture
def workdir(node: Node) -> Path:
    path = node.work / "worker_1"
    path.mkdir()
    for name in ("rocksdb", "tmp", "localState"):
        (path / name / "deep").mkdir()
    return path


def assert_one_file(names: Iterable[Path], content: bytes = BYTES) -> None:
    """All names, asked in every way there is, tell of one inode with that many names and these bytes."""
    paths = list(names)
    inode = paths[0].stat().st_ino
    for path in paths:
        with os.scandir(path.parent) as entries:
            listed = {entry.name: entry for entry in entries}
        assert listed[path.name].inode() == inode
        assert listed[path.name].stat().st_nlink == len(paths)
        with path.open("rb") as file:
            opened = os.fstat(file.fileno())
            assert file.read() == content
        for found in (path.stat(), opened):
            assert (found.st_ino, found.st_nlink, found.st_size) == (inode, len(paths), len(content))


def assert_missing(path: Path) -> None:
    assert not path.exists()
    assert path.name not in os.listdir(path.parent)


@pytest.mark.promise("local-links")
@pytest.mark.parametrize(("made_in", "linked_in"), SIDES)
@pytest.mark.parametrize("gone", list(itertools.permutations(range(3))))
def test_any_of_the_names_may_go_first(workdir: Path, made_in: str, linked_in: str, gone: tuple[int, ...]) -> None:
    names = [workdir / made_in / "deep/first", workdir / linked_in / "second", workdir / made_in / "deep/third"]
    names[0].write_bytes(BYTES)
    os.link(names[0], names[1])
    os.link(names[1], names[2])  # back to the side that the file was made on
    left = list(names)
    assert_one_file(left)
    for index in gone:
        names[index].unlink()
        left.remove(names[index])
        assert_missing(names[index])
        if left:
            assert_one_file(left)


@pytest.mark.promise("local-links")
@pytest.mark.parametrize(("side", "other"), SIDES)
def test_the_kernel_does_not_remember_an_old_count(workdir: Path, side: str, other: str) -> None:
    """Attributes are cached; a change by one name has to reach what is known of the others."""
    first, second = workdir / side / "first", workdir / other / "second"
    first.write_bytes(BYTES)
    with first.open("rb") as file:
        for _ in range(20):
            os.link(first, second)
            assert os.fstat(file.fileno()).st_nlink == first.stat().st_nlink == second.stat().st_nlink == 2
            second.unlink()
            assert os.fstat(file.fileno()).st_nlink == first.stat().st_nlink == 1


@pytest.mark.promise("local-links")
@pytest.mark.parametrize(("side", "other"), SIDES)
def test_a_name_moves_to_the_other_side_and_stays_the_same_file(workdir: Path, side: str, other: str) -> None:
    first, second = workdir / side / "first", workdir / other / "second"
    first.write_bytes(BYTES)
    inode = first.stat().st_ino
    os.link(first, second)
    first.rename(workdir / other / "deep/first")
    second.rename(workdir / side / "deep/second")
    moved = [workdir / other / "deep/first", workdir / side / "deep/second"]
    assert_missing(first)
    assert_missing(second)
    assert_one_file(moved)
    assert moved[0].stat().st_ino == inode


@pytest.mark.parametrize(("side", "other"), SIDES)
def test_renaming_a_name_over_another_of_the_same_file_changes_nothing(workdir: Path, side: str, other: str) -> None:
    """As rename(2) says."""
    names = [workdir / side / "first", workdir / other / "second"]
    names[0].write_bytes(BYTES)
    os.link(*names)
    os.rename(*names)
    assert_one_file(names)


@pytest.mark.parametrize(("side", "other"), SIDES)
def test_a_name_that_is_renamed_over_is_one_name_less(workdir: Path, side: str, other: str) -> None:
    old = [workdir / side / "first", workdir / other / "second", workdir / other / "deep/third"]
    old[0].write_bytes(BYTES)
    os.link(old[0], old[1])
    os.link(old[0], old[2])
    new = workdir / side / "new"
    new.write_bytes(b"new")
    with old[1].open("rb") as file:
        new.rename(old[1])
        assert os.fstat(file.fileno()).st_nlink == 2
        assert file.read() == BYTES
    assert_one_file([old[0], old[2]])
    assert_one_file([old[1]], b"new")


@pytest.mark.parametrize(("side", "other"), SIDES)
def test_what_is_written_by_one_name_is_read_by_the_other(workdir: Path, side: str, other: str) -> None:
    first, second = workdir / side / "first", workdir / other / "second"
    with first.open("wb", buffering=0) as writer:
        writer.write(b"before ")
        os.link(first, second)
        with second.open("rb", buffering=0) as reader:
            assert reader.read(100) == b"before "
            writer.write(b"after")
            assert reader.read(100) == b"after"
            assert second.stat().st_size == 12
    with second.open("r+b") as writer:
        writer.truncate(6)
    assert_one_file([first, second], b"before")


@pytest.mark.promise("local-links")
@pytest.mark.parametrize(("side", "other"), SIDES)
def test_an_open_file_outlives_its_names_on_both_sides(workdir: Path, node: Node, side: str, other: str) -> None:
    first, second = workdir / side / "first", workdir / other / "second"
    first.write_bytes(BYTES)
    os.link(first, second)
    with second.open("r+b", buffering=0) as file:
        first.unlink()
        second.unlink()
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() == BYTES
        file.write(b"more")
        assert os.fstat(file.fileno()).st_size == len(BYTES) + 4
        second.write_bytes(b"another file")
    assert_one_file([second], b"another file")
    wait_until(lambda: not any((node.store / "orphans").iterdir()))


@pytest.mark.parametrize(("side", "other"), SIDES)
def test_links_that_can_not_be(workdir: Path, side: str, other: str) -> None:
    first, second = workdir / side / "first", workdir / other / "second"
    first.write_bytes(BYTES)
    second.write_bytes(b"there")
    for source, target, number in (
        (first, second, errno.EEXIST),
        (workdir / side / "missing", workdir / other / "third", errno.ENOENT),
        (workdir / side / "deep", workdir / other / "directory", errno.EPERM),
    ):
        with pytest.raises(OSError) as refused:  # noqa: PT011 the number is compared
            os.link(source, target)
        assert refused.value.errno == number
    assert_one_file([first])
    assert_one_file([second], b"there")


@pytest.mark.promise("local-state-files")
@pytest.mark.parametrize("bring_in", [os.link, os.rename])
def test_a_file_that_gets_the_inode_of_a_hashed_one_is_not_taken_for_it(
    workdir: Path, node: Node, bring_in: Callable[[Path, Path], None]
) -> None:
    """It was hashed in the background while it was deleted: what was found out then is of a file that is gone."""
    old, made, new = workdir / "localState/old", workdir / "rocksdb/made", workdir / "localState/new"
    for number in range(300):
        old.write_bytes(bytes(3000) + b"%d" % number)
        old.unlink()
        made.write_bytes(BYTES)
        bring_in(made, new)
        assert new.read_bytes() == BYTES, f"round {number}"
        for path in (made, new):
            path.unlink(missing_ok=True)
    assert node.events("quarantined") == []


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def write_through_a_mapping(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[:3] = b"xyz"


def truncate(path: Path) -> None:
    os.truncate(path, 100)


@pytest.mark.promise("local-state-files")
@pytest.mark.parametrize("bring_back", [os.link, os.rename])
@pytest.mark.parametrize("change", [append, write_through_a_mapping, truncate])
def test_what_was_changed_outside_local_state_comes_back_as_it_is(
    workdir: Path, node: Node, change: Callable[[Path], None], bring_back: Callable[[Path, Path], None]
) -> None:
    inside, outside = workdir / "localState/file", workdir / "rocksdb/file"
    inside.write_bytes(BYTES)
    node.wait_digest(inside)
    os.link(inside, outside)
    inside.unlink()
    change(outside)
    expected = outside.read_bytes()
    bring_back(outside, inside)
    assert inside.read_bytes() == expected != BYTES
    assert node.events("quarantined") == []


@pytest.mark.promise("local-links")
def test_directories_move_between_the_directories_of_one_process(workdir: Path, node: Node) -> None:
    made, kept = workdir / "tmp/checkpoint", workdir / "localState/checkpoint"
    (made / "deep").mkdir(parents=True)
    (made / "deep/1.sst").write_bytes(BYTES)
    os.link(made / "deep/1.sst", workdir / "rocksdb/1.sst")
    made.rename(kept)
    assert_one_file([kept / "deep/1.sst", workdir / "rocksdb/1.sst"])
    node.stop()
    node.start()
    assert_one_file([kept / "deep/1.sst", workdir / "rocksdb/1.sst"])
    kept.rename(made)
    append(made / "deep/1.sst")
    made.rename(kept)
    (workdir / "localState/other").mkdir()
    directory = os.open(workdir / "localState", os.O_RDONLY)
    rename_with_flags(directory, b"checkpoint", directory, b"other", RENAME_EXCHANGE)
    os.close(directory)
    assert (workdir / "localState/other/deep/1.sst").read_bytes() == BYTES + b"more"
    assert os.listdir(kept) == []
    assert not made.exists()


@pytest.mark.promise("local-links")
def test_links_survive_the_daemon(workdir: Path, node: Node) -> None:
    names = [workdir / "rocksdb/first", workdir / "localState/second", workdir / "tmp/third"]
    names[0].write_bytes(BYTES)
    os.link(names[0], names[1])
    os.link(names[1], names[2])
    node.stop()
    node.start()
    assert_one_file(names)
    names[1].unlink()
    assert_one_file([names[0], names[2]])
    os.link(names[2], names[1])
    node.kill()
    node.start()
    assert_one_file(reversed(names))


@pytest.mark.promise("workdir-acquire")
def test_what_a_new_process_empties_keeps_its_names_elsewhere(workdir: Path, node: Node) -> None:
    """RocksDB's own directory goes with its process; the checkpoint made from it by links does not."""
    names = [workdir / "rocksdb/deep/first", workdir / "localState/second", workdir / "tmp/deep/third"]
    names[0].write_bytes(BYTES)
    os.link(names[0], names[1])
    os.link(names[0], names[2])
    with node.client() as client:
        client.release("worker", "1")
        client.acquire("worker", "1", os.getpid())
    assert os.listdir(workdir / "rocksdb") == os.listdir(workdir / "tmp") == []
    assert names[1].read_bytes() == BYTES
    wait_until(lambda: names[1].stat().st_nlink == 1)  # what was emptied is deleted a moment later
    assert_one_file([names[1]])
    os.link(names[1], workdir / "rocksdb/again")
    assert_one_file([names[1], workdir / "rocksdb/again"])
