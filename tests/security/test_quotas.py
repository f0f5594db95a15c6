"""Limits of working directories against users who get round them, learn of others' usage, or hold others' walks up."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import evict, put, workdir_of
from tests.support.daemons.node import Node, wait_until
from tests.support.users.attackers import attacking
from tests.support.users.privileges import ALICE, MALLORY

LIMIT_BYTES = 4 << 20
MUCH = b"x" * (6 << 20)


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    return make_node(workdirs__max_bytes=LIMIT_BYTES).start()


def used_bytes(node: Node, path: Path) -> int | None:
    with node.client() as client:
        return next(each.used_bytes for each in client.workdirs() if each.path == str(path))


def is_over_quota(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as problem:
        return problem.errno == errno.EDQUOT
    return False


@pytest.mark.promise("quota-shown")
def test_nobody_learns_what_anothers_directory_takes(node: Node) -> None:
    """Gain: to watch another's directory grow, byte by byte. statfs(2) asks for no right to the directory itself."""
    home, disk = workdir_of(node, ALICE, "driver_a"), os.statvfs(node.work).f_blocks
    home.chmod(0o700)
    (home / "file").write_bytes(b"x" * (2 << 20))
    wait_until(lambda: (used_bytes(node, home) or 0) > 2 << 20)

    def looks() -> None:
        assert os.statvfs(home).f_blocks == disk
        fd = os.open(home, os.O_PATH)
        assert os.fstatvfs(fd).f_blocks == disk

    MALLORY.do(looks)
    sizes = [os.statvfs(path).f_blocks * os.statvfs(path).f_frsize for path in (home, home / "tmp", home / "file")]
    assert sizes == [LIMIT_BYTES] * 3


@pytest.mark.promise("quota-counted")
def test_a_copy_counts_once_it_is_no_copy_any_more(make_node: NodeFactory) -> None:
    """Gain: any amount of the disk, through a small object that the user may write to here, or one that it links."""
    node = make_node(workdirs__max_bytes=LIMIT_BYTES, stores__checkpoints__uid=MALLORY.uid).start()
    small, large = (put(node.checkpoints / name / "object", data, MALLORY) for name, data in (("s", b"x"), ("l", MUCH)))
    evict(node, small)
    evict(node, large)
    home = workdir_of(node, MALLORY, "driver_m")
    copy, whole = home / "localState/s/object", home / "localState/l/object"

    def reads() -> None:
        assert copy.read_bytes() == b"x"
        assert whole.read_bytes() == MUCH

    MALLORY.do(reads)
    wait_until(lambda: used_bytes(node, home) is not None)
    assert (used_bytes(node, home) or 0) < LIMIT_BYTES

    def appends() -> None:
        with copy.open("ab") as file:
            file.write(MUCH)
        before = copy.stat().st_mtime_ns
        os.utime(copy, ns=(before, before - 10**9))

    MALLORY.do(appends)
    node.wait_event("quota-reached", path="work/driver_m")
    MALLORY.do(copy.unlink)
    node.wait_event("quota-below-again", path="work/driver_m")
    MALLORY.do(lambda: os.link(whole, home / "localState/kept"))
    wait_until(lambda: len(node.events("quota-reached")) == 2)
    MALLORY.do(whole.unlink)
    wait_until(lambda: is_over_quota(lambda: (home / "new").write_bytes(b"")))


@pytest.mark.promise("quota-measured")
def test_a_tree_that_never_ends_keeps_nobody_elses_from_being_measured(node: Node) -> None:
    """Gain: no limit holds for anybody any more. The walk goes down a tree that grows at its end faster than it goes."""
    home, endless = workdir_of(node, ALICE, "driver_a"), workdir_of(node, MALLORY, "driver_m")
    fd = os.open(endless, os.O_RDONLY)

    def goes_deeper(number: int) -> None:
        nonlocal fd
        os.mkdir(b"d", dir_fd=fd)
        below = os.open(b"d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below

    with attacking(MALLORY, goes_deeper):
        for _ in range(3):
            (home / "much").write_bytes(MUCH)
            os.chown(home / "much", ALICE.uid, ALICE.gid)
            node.wait_event("quota-reached", path="work/driver_a")
            wait_until(lambda: is_over_quota(lambda: (home / "new").write_bytes(b"")))
            (home / "much").unlink()
            wait_until(lambda: not is_over_quota(lambda: (home / "new").write_bytes(b"")))
    os.close(fd)
