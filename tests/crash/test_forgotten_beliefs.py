"""What a killed daemon knew of its store, and the next one does not: nobody takes that for what is there, or is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.crash.test_takeover import no_daemon
from tests.mount.test_objects import objects
from tests.support.daemons.faults.switches import SWITCHES
from tests.support.daemons.node import Node, settle, wait_until

_PART = 2**20
LARGE = 64 * 2**20


class Switches:
    """What a daemon waits for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def on(self, name: str) -> None:
        (self._directory / name).touch()

    def off(self) -> None:
        for path in self._directory.iterdir():
            path.unlink()

    def wait_held(self) -> None:
        """Wait until something has to wait."""
        wait_until((self._directory / "held").exists)


@pytest.fixture
def switches(workspace: Path) -> Switches:
    directory = workspace / "switches"
    directory.mkdir()
    return Switches(directory)


@pytest.fixture
def make_waiting(make_node: NodeFactory, workspace: Path, switches: Switches) -> Callable[..., Node]:
    """Make a supervised node that can be told to wait for its store; it believes for an hour what it has been told."""

    def make(**settings: object) -> Node:
        node = make_node(**{"remote__metadata_ttl_seconds": 3600, **settings})
        node.supervised = True
        node.faults = ["waiting_store"]
        node.environment = {SWITCHES: str(workspace / "switches")}
        return node.start()

    return make


def killed(node: Node) -> None:
    node.kill_daemon()
    wait_until(node.answers)


def put(remote_files: Path, name: str, data: bytes) -> Path:
    """Store an object as another node does."""
    path = remote_files / name
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name("fresh")
    fresh.write_bytes(data)
    fresh.rename(path)
    return path


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_file_that_was_opened_for_writing_while_it_arrived_is_not_sent(
    durability: str, make_waiting: Callable[..., Node], switches: Switches, remote_files: Path
) -> None:
    data = os.urandom(_PART) * (LARGE // _PART)
    remote = put(remote_files, "large", data)
    before = remote.stat().st_ino
    node = make_waiting(checkpoints__durability=durability, remote__read_while_arriving_bytes=_PART)
    switches.on("fetches")
    fd = os.open(node.checkpoints / "large", os.O_RDWR)
    assert os.pread(fd, 10, 0) == data[:10]
    killed(node)
    os.close(fd)
    assert node.status().unsent == []
    switches.off()
    assert (node.checkpoints / "large").read_bytes() == data
    settle(node.checkpoints)
    assert remote.read_bytes() == data
    assert remote.stat().st_ino == before


def test_two_versions_are_not_mixed(make_waiting: Callable[..., Node], switches: Switches, remote_files: Path) -> None:
    put(remote_files, "large", b"a" * LARGE)
    node = make_waiting(remote__metadata_ttl_seconds=0, remote__read_while_arriving_bytes=_PART)
    switches.on("fetches")
    with (node.checkpoints / "large").open("rb", buffering=0) as file:
        assert file.read(10) == b"a" * 10
        with no_daemon(node):
            put(remote_files, "large", b"b" * LARGE)
            switches.off()
        with pytest.raises(OSError, match="Input/output error"):
            os.pread(file.fileno(), 10, LARGE // 2)
    assert (node.checkpoints / "large").read_bytes() == b"b" * LARGE


def test_a_file_that_was_read_while_it_arrived_goes_on_with_the_same_version(
    make_waiting: Callable[..., Node], switches: Switches, remote_files: Path
) -> None:
    data = os.urandom(_PART) * (LARGE // _PART)
    put(remote_files, "large", data)
    node = make_waiting(remote__read_while_arriving_bytes=_PART)
    switches.on("fetches")
    with (node.checkpoints / "large").open("rb", buffering=0) as file:
        assert file.read(10) == data[:10]
        killed(node)
        switches.off()
        assert file.read() == data[10:]


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.with_name("other.tmp").write_bytes(b"other")
    path.with_name("other.tmp").rename(path)


@pytest.mark.promise("takeover-losses")
@pytest.mark.parametrize("lose_name", [remove, replace])
def test_a_file_that_lost_its_name_while_it_arrived_can_not_be_read_and_is_never_another_one(
    lose_name: Callable[[Path], None], make_waiting: Callable[..., Node], switches: Switches, remote_files: Path
) -> None:
    data, new = os.urandom(_PART) * (LARGE // _PART), os.urandom(_PART) * (LARGE // _PART)
    put(remote_files, "large", data)
    node = make_waiting(remote__read_while_arriving_bytes=_PART)
    path = node.checkpoints / "large"
    switches.on("fetches")
    with path.open("rb", buffering=0) as file:
        assert file.read(10) == data[:10]
        lose_name(path)
        killed(node)
        switches.off()
        path.write_bytes(new)
        for offset in (_PART, LARGE // 2, LARGE - 10):
            with pytest.raises(OSError, match="Input/output error"):
                os.pread(file.fileno(), 10, offset)
        with pytest.raises(OSError, match="Input/output error"):
            os.fstat(file.fileno())
        assert path.read_bytes() == new
    settle(node.checkpoints)
    assert objects(remote_files) == {"large": new}
    assert path.read_bytes() == new
    assert node.status().unsent == []
    wait_until(lambda: not [*(node.store / "orphans").iterdir(), *(node.store / "fetching").iterdir()])
    killed(node)
    assert node.events("taken-over")[0]["open_files"] == 0


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_a_temporary_file_gets_its_final_name(
    durability: str, make_waiting: Callable[..., Node], remote_files: Path
) -> None:
    node = make_waiting(checkpoints__durability=durability)
    job = node.checkpoints / "job"
    job.mkdir()
    (job / "x.tmp").write_bytes(b"state")
    node.backing(job / "x.tmp")
    killed(node)
    (job / "x.tmp").rename(job / "x")
    wait_until(lambda: objects(remote_files) == {"job/x": b"state"})
    wait_until(lambda: node.status().unsent == [])


@pytest.mark.parametrize("goes", [os.unlink, lambda path: os.rename(path, f"{path}.tmp")], ids=["unlink", "rename"])
def test_what_an_unsent_file_was_to_replace_goes_with_it(
    goes: Callable[[Path], None],
    make_node: NodeFactory,
    make_waiting: Callable[..., Node],
    switches: Switches,
    remote_files: Path,
) -> None:
    """Another node has stored it, so that nothing but what was known of it tells that it may go."""
    other = make_node("b").start()
    node = make_waiting(checkpoints__durability="async")
    (other.checkpoints / "x").write_bytes(b"old")
    assert (node.checkpoints / "x").read_bytes() == b"old"
    switches.on("puts")
    (node.checkpoints / "x.tmp").write_bytes(b"new")
    (node.checkpoints / "x.tmp").rename(node.checkpoints / "x")
    killed(node)
    goes(node.checkpoints / "x")
    switches.off()
    settle(node.checkpoints)
    assert not (node.checkpoints / "x").exists()
    assert objects(remote_files) == {}


@pytest.mark.parametrize("durability", ["commit", "async"])
def test_what_was_stored_and_not_answered_goes_with_its_file(
    durability: str, make_waiting: Callable[..., Node], switches: Switches, remote_files: Path
) -> None:
    node = make_waiting(checkpoints__durability=durability)
    switches.on("answers")
    with ThreadPoolExecutor() as threads:
        writing = threads.submit((node.checkpoints / "x").write_bytes, b"state")
        switches.wait_held()
        assert objects(remote_files) == {"x": b"state"}
        switches.on("puts")
        killed(node)
        (node.checkpoints / "x").unlink()
        switches.off()
        with suppress(OSError):
            writing.result()
    settle(node.checkpoints)
    assert not (node.checkpoints / "x").exists()
    assert objects(remote_files) == {}


def test_who_has_lost_a_name_is_told_by_the_next_daemon_too(make_waiting: Callable[..., Node], remote_files: Path) -> None:
    node = make_waiting()
    (node.checkpoints / "offsets").mkdir()
    losers = [(node.checkpoints / "offsets/7").open("wb", buffering=0) for _ in range(2)]
    losers[0].write(b"mine")
    put(remote_files, "offsets/7", b"other")
    with pytest.raises(FileExistsError):
        losers[0].close()
    killed(node)
    with pytest.raises(FileExistsError):
        losers[1].close()
    assert (node.checkpoints / "offsets/7").read_bytes() == b"other"


def test_what_only_the_store_has_keeps_its_attributes(make_waiting: Callable[..., Node], remote_files: Path) -> None:
    node = make_waiting(remote__metadata_ttl_seconds=0)
    put(remote_files, "x", b"state")
    fd = os.open(node.checkpoints / "x", os.O_PATH)
    try:
        killed(node)
        assert os.fstat(fd).st_size == len(b"state")
    finally:
        os.close(fd)
