"""Directories with very many entries: whoever works with one must not make the others wait (docs/concurrency.md)."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.index import Index
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node
from tests.support.users.attackers import attacking, running
from tests.support.users.privileges import MALLORY
from tests.support.users.stalls import bystander

_OBJECTS = 20_000
_AT_ONCE = 8
_DELETED = 250_000


def filled(directory: Path, count: int = _OBJECTS) -> Path:
    """Fill a directory of a store, as others would, with so many objects."""
    directory.mkdir(parents=True, exist_ok=True)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number in range(count):
            os.close(os.open(f"object-{number:06}", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
    finally:
        os.close(fd)
    return directory


@contextmanager
def at_once(step: Callable[[int], object]) -> Iterator[None]:
    """Let many processes of MALLORY's call ``step`` again and again while the body runs."""
    with ExitStack() as stack:
        for _ in range(_AT_ONCE):
            stack.enter_context(attacking(MALLORY, step))
        yield


@pytest.fixture
def large(node: Node, remote_files: Path) -> Path:
    """A directory of a store, as the mount shows it, with very many objects."""
    directory = node.checkpoints / "large"
    directory.mkdir()
    os.chown(directory, MALLORY.uid, MALLORY.gid)
    node.stop()  # what it has cached of its own directory is forgotten
    filled(remote_files / "large")
    node.start()
    return directory


def test_many_who_list_a_large_directory_of_a_store_at_once_cost_others_nothing(node: Node, large: Path) -> None:
    """Gain: each listing merges and sorts all names, and eight do so at once."""
    with bystander(node) as waits, at_once(lambda _: os.listdir(large)):
        waits.wait_rounds(30)
    waits.check()


def test_listing_a_large_directory_with_attributes_costs_others_nothing(node: Node, large: Path) -> None:
    """Gain: an entry with attributes costs ten times as much as a name."""

    def listed(_: int) -> None:
        with os.scandir(large) as entries:
            for entry in entries:
                entry.stat()

    with bystander(node) as waits, attacking(MALLORY, listed), attacking(MALLORY, listed):
        waits.wait_rounds(30)
    waits.check()


def test_commands_on_a_large_directory_cost_others_nothing(node: Node, large: Path) -> None:
    """Gain: the control socket lists it by pages, each of which needs all names, and prefetch looks at each object."""
    with node.client() as client, bystander(node) as waits:
        entries = list(client.entries(str(large)))
        assert len(entries) == _OBJECTS
    waits.check()
    with node.client() as client, bystander(node) as waits:
        for step in client.prefetch(str(large)):
            if step.done > 500:
                break
    waits.check()


def test_removing_a_large_directory_costs_others_nothing(node: Node, large: Path, remote_files: Path) -> None:
    """Gain: all of its names wait to be deleted in the store, in bulk, and each LIST meanwhile shows them again."""

    def remove() -> None:
        names = os.listdir(large)
        fd = os.open(large, os.O_RDONLY | os.O_DIRECTORY)
        for name in names[: _OBJECTS // 2]:
            os.unlink(name, dir_fd=fd)
        assert len(os.listdir(large)) == _OBJECTS - _OBJECTS // 2
        for name in names[_OBJECTS // 2 :]:
            os.unlink(name, dir_fd=fd)
        os.close(fd)

    with bystander(node) as waits:
        MALLORY.do(remove)
        large.rmdir()
    waits.check()
    assert not (remote_files / "large").exists()


def test_a_refused_rename_of_a_large_directory_costs_others_nothing(node: Node, large: Path) -> None:
    """Gain: whether it holds objects is for its listing to say."""

    def rename(_: int) -> None:
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            os.rename(large, large.with_name("other"))

    with bystander(node) as waits, at_once(rename):
        waits.wait_rounds(30)
    waits.check()


def with_deleted_names(node: Node) -> Node:
    """Restart ``node`` with very many names that were deleted in MALLORY's working directory."""
    node.stop()
    store_id = json.loads((node.store / "format.json").read_text())["store"]
    index = Index.open(node.store / "index", store_id)
    for number in range(_DELETED):
        index.marks.white_out(b"work/mallory_1/localState/%d" % number)
    index.close()
    return node.start()


def test_a_directory_in_which_very_many_names_were_deleted_is_made_again_without_others_waiting(node: Node) -> None:
    """Gain: whoever has deleted very many names of a store makes its next holder show all of them again."""
    with_deleted_names(node)
    with bystander(node) as waits:
        MALLORY.do((node.work / "mallory_1").mkdir)
    waits.check()


def test_a_directory_in_which_very_many_names_were_deleted_is_acquired_without_others_waiting(node: Node) -> None:
    """Gain: as above."""
    MALLORY.do((node.work / "mallory_1").mkdir)
    with_deleted_names(node)
    with bystander(node) as waits, node.client() as client:
        client.acquire("mallory", "1", os.getpid(), MALLORY.uid, MALLORY.gid)
    waits.check()


def test_a_directory_in_which_very_many_names_were_deleted_expires_without_others_waiting(make_node: NodeFactory) -> None:
    """Gain: as above."""
    node = make_node(workdirs__retain_seconds=0).start()
    path = node.work / "mallory_1"
    with running(MALLORY, path.mkdir) as holder:
        with_deleted_names(node)
        with bystander(node) as waits:
            os.kill(holder, signal.SIGKILL)
            node.wait_event("workdir-removed", path="work/mallory_1")
    waits.check()
