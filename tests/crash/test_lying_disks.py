"""A disk that gives back something else than was written: what a start makes of such an index, and of notes on files.

``tests/crash/test_injections.py`` has the files that users see.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.daemons.node import Node

PAGE = 4096
OBJECTS = {f"{number}.zip": b"bytes %d" % number * 100 for number in range(20)}


@pytest.fixture(params=["stopped", "killed"])
def node(make_node: NodeFactory, remote_files: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """A node that does not run: with copies of objects, pins, and files of a process, of which one was removed."""
    node = make_node().start()
    for name, data in OBJECTS.items():
        (node.checkpoints / name).write_bytes(data)
    (node.work / "worker_1").mkdir()
    (node.work / "worker_1/localState/own").write_bytes(b"a process's own")
    with node.client() as client:
        client.pin(str(node.checkpoints / "1.zip"))
    node.stop()
    shutil.copytree(node.store / "index", node.directory / "old-index")
    node.start()
    (node.checkpoints / "0.zip").write_bytes(b"newer")
    (node.checkpoints / "2.zip").unlink()
    (node.checkpoints / "new.zip").write_bytes(b"new")
    flush(node)  # a deletion that was not sent may be undone when its note is lost
    if request.param == "killed":
        node.kill()
    else:
        node.stop()
    yield node
    node.clean_up()


def flush(node: Node) -> None:
    with node.client() as client:
        assert [step.problem for step in client.flush(None, 60) if step.problem] == []


def check(node: Node, remote_files: Path) -> None:
    """Start the daemon twice, and compare what is there."""
    wanted = {**OBJECTS, "0.zip": b"newer", "new.zip": b"new"}
    del wanted["2.zip"]
    for _ in range(2):
        node.start()
        assert {path.name: path.read_bytes() for path in node.checkpoints.iterdir()} == wanted
        assert (node.work / "worker_1/localState/own").read_bytes() == b"a process's own"
        flush(node)
        assert objects(remote_files) == wanted
        node.stop()


def cut(share: float) -> Callable[[Path], None]:
    def cut_off(index: Path) -> None:
        os.truncate(index / "data.mdb", int((index / "data.mdb").stat().st_size * share))

    return cut_off


def zeros(first: int, last: int) -> Callable[[Path], None]:
    def fill(index: Path) -> None:
        with (index / "data.mdb").open("r+b") as file:
            file.seek(first * PAGE)
            file.write(bytes((last - first) * PAGE))

    return fill


def old_copy(index: Path) -> None:
    shutil.copy(index.parents[1] / "old-index/data.mdb", index / "data.mdb")


def no_lock(index: Path) -> None:
    (index / "lock.mdb").unlink()


def damaged_lock(index: Path) -> None:
    (index / "lock.mdb").write_bytes(os.urandom(8192))


def damaged_pins(index: Path) -> None:
    (index / "pins").write_bytes(os.urandom(50))


def pins_directory(index: Path) -> None:
    (index / "pins").unlink()
    (index / "pins/deep").mkdir(parents=True)


def doubted_directory(index: Path) -> None:
    (index / "doubted/deep").mkdir(parents=True)


def nothing(index: Path) -> None:
    shutil.rmtree(index)


def forget_attributes(tree: Path) -> None:
    """Remove all that Holdfast has noted on files and directories."""
    for directory, _, names in os.walk(tree):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            for attribute in os.listxattr(path):
                if "holdfast" in attribute:
                    with suppress(PermissionError):
                        os.removexattr(path, attribute)


@pytest.mark.promise("index-damaged")
@pytest.mark.parametrize(
    "lie",
    [
        *(cut(share) for share in (0.001, 0.5)),
        *(zeros(first, last) for first, last in ((0, 1), (2, 20))),
        *(old_copy, no_lock, damaged_lock, damaged_pins, pins_directory, doubted_directory, nothing),
    ],
    ids=lambda lie: lie.__name__,
)
def test_whatever_the_disk_makes_of_the_index_what_is_read_and_sent_is_right(
    node: Node, remote_files: Path, lie: Callable[[Path], None]
) -> None:
    lie(node.store / "index")
    check(node, remote_files)


@pytest.mark.parametrize("with_index", [True, False], ids=["with-index", "index-lost"])
def test_without_any_attribute_too(node: Node, remote_files: Path, with_index: bool) -> None:
    forget_attributes(node.store / "tree")
    if not with_index:
        nothing(node.store / "index")
    check(node, remote_files)
