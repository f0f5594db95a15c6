"""A full file system of the runtime directory (/run), of bytes or of inodes: starts are refused, daemons take over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.disks.mounts import mounted
from tests.support.kernel.needs import needs_takeover
from tests.support.processes.programs import holdfast


def _fill_bytes(directory: Path) -> None:
    with (directory / "ballast").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def _fill_inodes(directory: Path) -> None:
    with suppress(OSError):
        for number in range(1000):
            (directory / f"ballast{number}").touch()


FILLS = pytest.mark.parametrize("fill", [_fill_bytes, _fill_inodes], ids=["bytes", "inodes"])


@pytest.fixture
def node(make_node: NodeFactory) -> Iterator[Node]:
    """A node whose control socket is on a file system of its own."""
    node = make_node()
    with mounted("tmpfs", node.socket.parent, "-o", "size=8m,nr_inodes=100,mode=755"):
        yield node
        node.clean_up()  # before the file system goes


@FILLS
def test_a_start_says_what_is_full(node: Node, fill: Callable[[Path], None]) -> None:
    directory = node.socket.parent
    fill(directory)
    with pytest.raises(StartError) as told:
        node.start()
    assert str(told.value) == (
        f"the file system of {directory} has no room, of bytes or of inodes: free some in it "
        f"(df {directory}; df -i {directory})"
    )
    for path in directory.glob("ballast*"):
        path.unlink()
    node.start()
    fill(directory)
    for number in range(200):
        (node.work / f"{number}").write_bytes(b"x")
    assert node.status().pid
    assert "passthrough" in holdfast("status", "--socket", node.socket)
    node.stop()


@needs_takeover
@pytest.mark.promise("takeover")
@FILLS
def test_a_daemon_takes_over(node: Node, fill: Callable[[Path], None]) -> None:
    """Gain: no daemon could take the mount over, and all who worked in it waited until somebody freed space."""
    node.supervised = True
    node.start()
    path = node.checkpoints / "object"
    path.write_bytes(b"data")
    with (node.work / "open").open("w+b", buffering=0) as file, (node.work / "removed").open("w+b", buffering=0) as removed:
        file.write(b"before")
        removed.write(b"kept")
        (node.work / "removed").unlink()
        fill(node.socket.parent)
        for _ in range(3):
            node.kill_daemon()
            assert path.read_bytes() == b"data"
            wait_until(node.answers)
            os.fsync(file.fileno())
            os.fsync(removed.fileno())
            assert (os.pread(file.fileno(), 10, 0), os.pread(removed.fileno(), 10, 0)) == (b"before", b"kept")
        (node.work / "new").write_bytes(b"x")
    assert node.events("takeover-failed") == []
    node.stop()
