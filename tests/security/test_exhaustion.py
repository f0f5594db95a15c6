"""What costs its maker nothing and the daemon hours: files of holes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.node import Node
from tests.support.privileges import ALICE, MALLORY

_HUGE_BYTES = 2**43
"""At a few GB/s, hashing this takes an hour."""
_LARGE_BYTES = 60 * 2**30
"""This takes some twenty seconds, and is not too much to be hashed."""
_FILES = 48
"""More than there are threads for everybody's requests."""


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def shared(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    """A node whose checkpoints everybody may write."""
    node = make_node(mount__passthrough=request.param).start()
    node.checkpoints.chmod(0o1777)
    return node


def _hollow(path: Path, size_bytes: int = _HUGE_BYTES) -> int:
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(fd, size_bytes)
    return fd


def test_a_huge_file_of_holes_is_not_sent(shared: Node) -> None:
    """Gain: hours of processor time and terabytes in the store for one call, all of the daemon's threads for some more."""

    def floods() -> None:
        home = shared.checkpoints / "mallorys"
        home.mkdir()
        for number in range(_FILES):
            fd = _hollow(home / f"{number}")
            with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                os.close(fd)

    def works() -> None:
        path = shared.checkpoints / "alices"
        path.write_bytes(b"x" * 2**20)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    MALLORY.do(floods)
    ALICE.do(works)
    assert shared.requests()["PUT"] == 1


@pytest.mark.parametrize("size_bytes", [_HUGE_BYTES, _LARGE_BYTES])
def test_files_of_holes_keep_no_file_after_them_from_its_digest(shared: Node, size_bytes: int) -> None:
    """Gain: nothing that is written to working directories later is checked, for hours or for ever."""

    def makes() -> None:
        home = shared.work / "mallory_1"
        home.mkdir()
        for number in range(_FILES):
            os.close(_hollow(home / f"localState/{number}", size_bytes))

    def works() -> None:
        home = shared.work / "alice_1"
        home.mkdir()
        (home / "localState/file").write_bytes(b"x" * 100)

    MALLORY.do(makes)
    ALICE.do(works)
    shared.wait_digest(shared.work / "alice_1/localState/file")
