"""SIGKILL and power cuts while directories of partitions come to other disks, and go."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.crash.test_named_points import crash
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.faults.crash_points import POINT
from tests.support.daemons.faults.switches import ARMED
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.disks.power_cuts import KEPT
from tests.support.disks.two_disks import TwoDisks, on_two_disks

MIB = 1 << 20
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))


@pytest.fixture
def node(make_node: NodeFactory, workspace: Path) -> Iterator[Node]:
    """A node whose partitions are all on another disk, as it is much larger."""
    with on_two_disks(make_node, workspace, 32 * MIB, 512 * MIB, store__spread_cache=True) as node:
        yield node


def partition(node: Node) -> Path:
    return node.checkpoints / "q/state/0/3"


def make(node: Node) -> None:
    partition(node).mkdir(parents=True)


def write_in_a_new_one(node: Node) -> None:
    make(node)
    (partition(node) / "1.changelog").write_bytes(b"changes")


def read(node: Node) -> None:
    (partition(node) / "1.changelog").read_bytes()


def remove(node: Node) -> None:
    partition(node).rmdir()


PLACING = ("other disk: made, not marked", "other disk: marked, not known")


def check_works(node: Node, workspace: Path, aside: int = 0) -> None:
    """A partition is written, read and found again, on the other disk, whatever a crash has left.

    ``aside`` is the number of directories that were set aside.
    """
    partition(node).mkdir(parents=True, exist_ok=True)
    (partition(node) / "2.changelog").write_bytes(b"it goes on")
    there = list((workspace / "other/holdfast/partitions").glob("*/2.changelog"))
    assert len(there) == 1
    node.stop()
    node.start()
    assert (partition(node) / "2.changelog").read_bytes() == b"it goes on"
    assert len(os.listdir(workspace / "other/holdfast/partitions")) == 1
    assert len(os.listdir(workspace / "other/holdfast/trash")) == aside
    assert_in_order(node)


@pytest.mark.parametrize("point", PLACING)
@pytest.mark.parametrize("action", [make, write_in_a_new_one])
def test_a_directory_that_is_made_is_there_or_not(
    node: Node, workspace: Path, point: str, action: Callable[[Node], None]
) -> None:
    crash(node, point, action)
    assert list((node.checkpoints / "q/state/0").rglob("*")) in ([], [partition(node)])  # mkdir has not returned
    check_works(node, workspace)


@pytest.mark.parametrize("point", [*PLACING, "fetch: before the file is placed", "fetch: placed, no entry"])
def test_what_is_fetched_to_a_new_directory_is_whole_or_fetched_again(
    node: Node, workspace: Path, point: str, remote_files: Path
) -> None:
    (remote_files / "q/state/0/3").mkdir(parents=True)
    (remote_files / "q/state/0/3/1.changelog").write_bytes(b"changes")
    crash(node, point, read)
    assert (partition(node) / "1.changelog").read_bytes() == b"changes"
    check_works(node, workspace)


@pytest.mark.parametrize("point", ["other disk: placeholder marked", "other disk: directory gone, placeholder there"])
def test_a_directory_that_is_removed_is_there_empty_or_gone(node: Node, workspace: Path, point: str) -> None:
    node.start()
    make(node)
    node.stop()
    crash(node, point, remove)
    assert os.listdir(node.checkpoints / "q/state/0") in (["3"], [])
    with suppress(FileNotFoundError):
        remove(node)
    assert os.listdir(node.checkpoints / "q/state/0") == []
    assert os.listdir(workspace / "other/holdfast/partitions") == []
    check_works(node, workspace)


def test_what_was_given_up_and_not_sent_is_told_of_by_the_daemon_after_next(
    node: Node, remote_files: Path, workspace: Path
) -> None:
    node.settings["checkpoints.durability"] = "async"
    node.start()
    write_in_a_new_one(node)
    wait_until(lambda: node.status().unsent == [])
    remote_files.rename(remote_files.with_name("away"))
    (partition(node) / "2.changelog").write_bytes(b"not sent")
    node.kill()
    remote_files.with_name("away").rename(remote_files)
    notes = node.store / "disks.json"
    (disk,) = (known := json.loads(notes.read_text()))["disks"]
    disk["has_failed"] = True  # as a daemon notes it, and then dies
    notes.write_text(json.dumps(known))
    armed = node.directory / "armed"
    armed.touch()
    node.faults = ["crash_at_point"]
    node.environment.update({POINT: "failed disk: set aside, entries there", ARMED: str(armed)})
    with suppress(StartError):  # it may die before it has said that it is ready
        node.start()
    node.crashed()
    node.faults = []
    node.start()
    assert node.wait_event("unsent-lost")["path"] == "checkpoints/q/state/0/3/2.changelog"
    assert node.status().unsent == []
    wait_until(lambda: json.loads(notes.read_text())["disks"][0]["is_to_forget"] is False)
    assert (partition(node) / "1.changelog").read_bytes() == b"changes"
    check_works(node, workspace, aside=1)


def write(file: Path, data: bytes, *, is_synced: bool) -> None:
    """Write a file. One that stays on this node is synced, which is all that a process can do for it."""
    with file.open("wb", buffering=0) as stream:
        stream.write(data)
        if is_synced:
            os.fsync(stream.fileno())


def places_on(disk: Path) -> set[str]:
    """Return the paths in the tree of the directories that are on ``disk``."""
    return {os.getxattr(each, "user.holdfast.place").decode() for each in (disk / "holdfast/partitions").iterdir()}


@pytest.mark.promise("power-cut")
@pytest.mark.parametrize("kept", KEPT)
def test_what_was_synced_is_there_whichever_disk_is_older(make_node: NodeFactory, workspace: Path, kept: float) -> None:
    disks = TwoDisks(workspace)
    first, other = disks.paths
    node = make_node(store__directory=first / "store", store__other_disks=other / "holdfast", store__spread_cache=True)
    synced = [node.checkpoints / f"q/state/0/{number}/.{number}.tmp" for number in range(6)]
    sent = [node.checkpoints / f"q/state/1/{number}/1.changelog" for number in range(6)]
    remade = [node.checkpoints / f"q/state/3/{number}" for number in range(12)]
    with disks.serving(node):
        for number, file in enumerate([*synced, *sent]):
            file.parent.mkdir(parents=True)
            write(file, b"%d" % number * 10_000, is_synced=file in synced)
        assert len(os.listdir(other / "holdfast/partitions")) > 3
        removed = node.checkpoints / "q/state/2/0"
        removed.mkdir(parents=True)
        removed.rmdir()
        for directory in remade:
            directory.mkdir(parents=True)
        for path in disks.paths:
            subprocess.run(["sync", "--file-system", str(path)], check=True)
        before = places_on(other)
        for directory in remade:
            directory.rmdir()
        for directory in remade:  # the first disk need not know of it before power is cut
            directory.mkdir()
        places = before & places_on(other)
        again = [each for each in remade if str(each.relative_to(node.mountpoint)) in places]
        assert again, "none is on the other disk as before"
        for directory in again:
            write(directory / "1.tmp", directory.name.encode(), is_synced=True)
        disks.cut(node, SEED, kept)
    with disks.serving(node):
        for number, file in enumerate([*synced, *sent]):
            assert file.read_bytes() == b"%d" % number * 10_000, file
        for directory in again:
            assert (directory / "1.tmp").read_bytes() == directory.name.encode(), directory
        removed.mkdir(parents=True, exist_ok=True)
        (removed / "1.changelog").write_bytes(b"it goes on")
        for directory in {file.parent for file in sent}:
            (directory / "2.changelog").write_bytes(b"it goes on")
        assert node.events("not-deleted") == []
