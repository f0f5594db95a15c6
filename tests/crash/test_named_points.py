"""SIGKILL between any two steps: afterwards a file is what it was or what it was to be, and nothing is lost or left over."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import DaemonUnreachableError
from tests.conftest import NodeFactory
from tests.crash.test_resent_requests import RMDIR
from tests.mount.test_faults import flip
from tests.mount.test_objects import objects
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.faults.crash_points import POINT, POINTS
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, wait_until

OLD, NEW = b"what it was", b"what it is to be"
Outcomes = dict[str, list[bytes | None]]
"""For each name in the checkpoint zone what it may hold afterwards; None: it may be missing."""


def write(node: Node) -> None:
    (node.checkpoints / "file").write_bytes(NEW)


def rename_over(node: Node) -> None:
    (node.checkpoints / "file.tmp").write_bytes(NEW)
    (node.checkpoints / "file.tmp").rename(node.checkpoints / "file")


def rename_object(node: Node) -> None:
    (node.checkpoints / "file").rename(node.checkpoints / "moved")


def rename_over_open(node: Node) -> None:
    with (node.checkpoints / "file").open("rb"):
        rename_over(node)


def rename_out(node: Node) -> None:
    (node.checkpoints / "file").rename(node.work / "moved")


def unlink(node: Node) -> None:
    (node.checkpoints / "file").unlink()
    directory = os.open(node.checkpoints, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read(node: Node) -> None:
    (node.checkpoints / "file").read_bytes()


def read_corrupt(node: Node) -> None:
    flip(node.backing(node.checkpoints / "file"))
    read(node)


def evict(node: Node) -> None:
    with node.client() as client:
        list(client.evict(str(node.checkpoints)))


def acquire(node: Node) -> None:
    with node.client() as client:
        client.acquire("worker", "1", os.getpid())


EITHER: Outcomes = {"file": [OLD, NEW]}
UNCHANGED: Outcomes = {"file": [OLD]}
CASES: list[tuple[str, Callable[[Node], None], Outcomes]] = [
    ("send: before the request", write, EITHER),
    ("send: stored, not recorded", write, EITHER),
    ("send: recorded, not answered", write, EITHER),
    ("send: before the request", rename_over, {"file": [OLD], "file.tmp": [NEW]}),
    ("send: stored, not recorded", rename_over, EITHER),
    ("rename: stored, not renamed", rename_over, EITHER),
    ("rename: renamed, entry not moved", rename_over, EITHER),
    ("rename: the old file is sheltered", rename_over_open, EITHER),
    ("send: stored, not recorded", rename_object, {"file": [OLD, None], "moved": [OLD, None]}),
    ("rename: stored, not renamed", rename_object, {"file": [OLD], "moved": [OLD]}),
    ("deletions: noted", rename_object, {"file": [OLD, None], "moved": [OLD]}),
    ("rename: renamed, entry not moved", rename_object, {"file": [None], "moved": [OLD]}),
    ("rename: out of the store, object not deleted", rename_out, {"file": [OLD]}),
    ("unlink: deletion noted, file there", unlink, UNCHANGED),
    ("unlink: file gone, nodes not told", unlink, {"file": [None]}),
    ("unlink: before the store is told", unlink, {"file": [None]}),
    ("unlink: the store was told", unlink, {"file": [None]}),
    ("evict: entry gone, file there", evict, UNCHANGED),
    ("quarantine: moved, no reason", read_corrupt, UNCHANGED),
]
FETCHES = [point for point in POINTS if point.startswith("fetch: ")]


def crash(node: Node, point: str, action: Callable[[Node], None]) -> None:
    """Carry out ``action`` on a node that dies at ``point``, and start the node again as it ought to be."""
    armed = node.directory / "armed"
    node.faults = ["crash_at_point"]
    node.environment.update({POINT: point, ARMED: str(armed)})
    node.start()
    armed.touch()
    with suppress(OSError, DaemonUnreachableError):
        action(node)
    node.crashed()
    node.faults = []
    node.start()


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def check(node: Node, outcomes: Outcomes, remote: Path) -> None:
    """What the mount shows is allowed, and the store and the local disk agree with it."""
    found = {name: content(node.checkpoints / name) for name in outcomes}
    assert all(found[name] in allowed for name, allowed in outcomes.items()), found
    assert any(found.values()) or None in outcomes["file"], "the bytes are gone under every name"
    assert_in_order(node)
    unsent = {os.path.basename(path) for path in node.status().unsent}
    kept = {name: data for name, data in found.items() if data is not None and not name.endswith(".tmp")}
    wait_until(
        lambda: (
            {name: data for name, data in objects(remote).items() if name not in unsent}
            == {name: data for name, data in kept.items() if name not in unsent}
        )
    )


@pytest.mark.parametrize(("point", "action", "outcomes"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_a_crash_leaves_the_old_or_the_new(
    point: str, action: Callable[[Node], None], outcomes: Outcomes, make_node: NodeFactory, remote_files: Path
) -> None:
    node = make_node().start()
    (node.checkpoints / "file").write_bytes(OLD)
    node.stop()
    crash(node, point, action)
    check(node, outcomes, remote_files)
    if action is rename_out:
        assert (node.work / "moved").read_bytes() == OLD
    (node.checkpoints / "file").write_bytes(b"and it goes on")
    assert objects(remote_files)["file"] == b"and it goes on"


@pytest.mark.parametrize("point", FETCHES)
def test_a_crash_in_a_fetch_leaves_nothing_or_the_whole_file(point: str, make_node: NodeFactory, remote_files: Path) -> None:
    remote_files.mkdir(parents=True)
    (remote_files / "file").write_bytes(OLD)
    node = make_node()
    crash(node, point, read)
    check(node, UNCHANGED, remote_files)


@pytest.mark.parametrize("point", ["async: before the mark", "async: marked and synced", "send: stored, not recorded"])
def test_a_crash_in_an_async_zone_forgets_nothing(point: str, make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node(checkpoints__durability="async")
    crash(node, point, write)
    assert (node.checkpoints / "file").read_bytes() == NEW
    if point != "async: before the mark":  # close had not answered then
        wait_until(lambda: objects(remote_files) == {"file": NEW})


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("acquire: ")])
def test_a_crash_in_acquire_keeps_what_is_kept(point: str, make_node: NodeFactory) -> None:
    node = make_node().start()
    directory = node.work / "worker_1"
    directory.mkdir()
    for name in ("tmp/scratch", "rocksdb/log", "localState/kept", "own"):
        (directory / name).write_bytes(name.encode())
    with node.client() as client:
        client.release("worker", "1")
    node.stop()
    crash(node, point, acquire)
    with node.client() as client:
        client.acquire("worker", "1", os.getpid())
    assert {name: sorted(os.listdir(directory / name)) for name in ("tmp", "rocksdb", "localState")} == {
        "tmp": [],
        "rocksdb": [],
        "localState": ["kept"],
    }
    assert (directory / "own").read_bytes() == b"own"
    wait_until(lambda: list((node.store / "trash").iterdir()) == [])


def test_every_point_is_used() -> None:
    used: set[Any] = {point for point, _, _ in CASES} | set(FETCHES)
    used |= {point for point in POINTS if point.startswith(("async: ", "acquire: ", "other disk: ", "failed disk: "))}
    used |= set(RMDIR) & set(POINTS)
    assert used == set(POINTS)
