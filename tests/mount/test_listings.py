"""Listings: names, inode numbers and kinds without attributes, and listings that the kernel keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node

_MANY = 6000  # more than one reply holds


@pytest.fixture
def home(node: Node) -> Path:
    path = node.work / "listing_1"
    path.mkdir()
    return path


def reads(node: Node) -> int:
    """How many requests were made for listings."""
    requests = node.status().kernel_requests
    return requests.get("READDIR", 0) + requests.get("READDIRPLUS", 0)


def described(path: Path) -> dict[str, tuple[int, bool, bool]]:
    """What a listing says of each name, without asking for attributes."""
    with os.scandir(path) as entries:
        return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in entries}


def stated(path: Path) -> dict[str, tuple[int, bool, bool]]:
    return {
        child.name: (child.lstat().st_ino, child.is_dir() and not child.is_symlink(), child.is_symlink())
        for child in path.iterdir()
    }


def fill(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f"file-{number}").touch()
    (directory / "directory").mkdir()
    (directory / "link").symlink_to("file-0")


def test_a_listing_tells_inode_numbers_and_kinds(home: Path) -> None:
    fill(home / "tmp", 300)  # more than the kernel asks for with attributes
    assert described(home / "tmp") == stated(home / "tmp")


def test_a_listing_of_a_store_tells_inode_numbers_and_kinds(make_node: NodeFactory) -> None:
    writer, reader = make_node("a").start(), make_node("b").start()
    (writer.checkpoints / "query/deeper").mkdir(parents=True)
    (writer.checkpoints / "query/deeper/file").write_bytes(b"x")
    for number in range(300):
        (writer.checkpoints / f"query/{number}.delta").write_bytes(b"x")
    assert (reader.checkpoints / "query/7.delta").read_bytes() == b"x"
    found = described(reader.checkpoints / "query")
    assert len(found) == 301
    assert found == stated(reader.checkpoints / "query")


def test_many_names_of_one_file_are_told_with_its_attributes(node: Node, home: Path) -> None:
    """More than a reply holds: the file is told, and left out, in one and the same."""
    (home / "tmp/0").write_bytes(b"content")
    for number in range(1, 1000):
        os.link(home / "tmp/0", home / "tmp" / str(number))
    node.stop()
    node.start()
    with os.scandir(home / "tmp") as entries:
        first = next(entries)
        with open(first.path, "rb") as file:
            assert file.read() == b"content"
            found = {first.stat().st_ino} | {entry.stat().st_ino for entry in entries}
            assert found == {os.fstat(file.fileno()).st_ino}
            assert os.fstat(file.fileno()).st_nlink == 1000


def test_listings_without_the_c_module(make_node: NodeFactory, workspace: Path) -> None:
    (workspace / "shadow").mkdir()
    (workspace / "shadow/_holdfast_kernel.py").write_text("raise ImportError('not built')\n")
    node = make_node()
    node.environment = {"PYTHONPATH": os.pathsep.join([str(workspace / "shadow"), os.environ.get("PYTHONPATH", "")])}
    node.start()
    assert "not built" in node.status().takeover
    (node.work / "plain").mkdir()
    fill(node.work / "plain", 300)
    assert described(node.work / "plain") == stated(node.work / "plain")
    assert len(described(node.work / "plain")) == 302


def test_a_large_directory_is_listed_whole(home: Path) -> None:
    fill(home / "rocksdb", _MANY)
    expected = {f"file-{number}" for number in range(_MANY)} | {"directory", "link"}
    assert set(os.listdir(home / "rocksdb")) == expected
    assert described(home / "rocksdb") == stated(home / "rocksdb")


def test_a_listing_that_was_read_is_not_read_again(node: Node, home: Path) -> None:
    fill(home / "tmp", 100)
    expected = sorted(os.listdir(home / "tmp"))
    before = reads(node)
    for _ in range(5):
        assert sorted(os.listdir(home / "tmp")) == expected
    assert reads(node) == before


def test_a_kept_listing_follows_changes(home: Path) -> None:
    directory = home / "tmp"
    fill(directory, 10)
    for change in (
        lambda: (directory / "new").touch(),
        lambda: (directory / "new").rename(directory / "newer"),
        lambda: os.link(directory / "newer", directory / "linked"),
        lambda: (directory / "newer").unlink(),
        lambda: (directory / "directory").rmdir(),
        lambda: (directory / "linked").rename(home / "moved"),
        lambda: os.rename(home / "moved", directory / "back"),
    ):
        os.listdir(directory)
        change()
        backing = {entry.name for entry in os.scandir(directory)}
        assert backing == set(os.listdir(directory))
    assert {"back"} == set(os.listdir(directory)) - {f"file-{number}" for number in range(10)} - {"link"}


def test_a_kept_listing_follows_what_the_daemon_does_by_itself(node: Node, home: Path) -> None:
    """Directories that are acquired and released by command come and go in a listing that the kernel keeps."""
    (home / "tmp" / "left").touch()
    assert os.listdir(home / "tmp") == ["left"]
    assert os.listdir(node.work) == ["listing_1"]
    with node.client() as client:
        client.acquire("worker", "2", os.getpid())
        assert sorted(os.listdir(node.work)) == ["listing_1", "worker_2"]
        client.release("listing", "1")
        client.acquire("listing", "1", os.getpid())
        assert os.listdir(home / "tmp") == []
