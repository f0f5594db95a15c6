"""What costs its maker nothing and the daemon much: files of holes, thousands of directories that are left at once."""

from __future__ import annotations

import errno
import itertools
import os
import time
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.users.hostile_clients import attacking
from tests.support.users.privileges import ALICE, MALLORY

_HUGE_BYTES = 2**43
"""At a few GB/s, hashing this takes an hour."""
_LARGE_BYTES = 60 * 2**30
"""This takes some twenty seconds, and is not too much to be hashed."""
_DIRECTORIES = 1000
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


@pytest.mark.promise("files-of-holes")
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


@pytest.mark.promise("files-of-holes")
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


@pytest.mark.promise("many-workdirs")
def test_who_leaves_thousands_of_working_directories_stops_nobody(node: Node) -> None:
    """Gain: at the end of the attacker's process, nobody's request is answered until all of them have been released."""
    node.work.chmod(0o1777)
    names = [f"mallory_{number:04}" for number in range(_DIRECTORIES)]

    def makes() -> int:
        for name in names:
            (node.work / name).mkdir()
        return len(names)

    with attacking(MALLORY, makes):
        held = {name: _record(node, name) for name in names}
    answered, deadline = 0, time.monotonic() + 300
    for number in itertools.count():  # without a pause, which could last until the end, and so often that one may be late
        have_some_been_released = any(_record(node, name) != record for name, record in held.items())
        assert not (node.work / f"absent-{number}").exists()
        if all(_record(node, name) != record for name, record in held.items()):
            break
        answered += have_some_been_released
        assert time.monotonic() < deadline, "they are never released"
    assert answered, "all were released before a request was answered"


def _record(node: Node, name: str) -> bytes:
    """Return what a working directory itself says of who holds it."""
    return os.getxattr(node.store / "tree/work" / name, "user.holdfast.workdir")
