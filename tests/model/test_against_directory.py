"""Random operations on the mount and on a plain directory: every outcome and the tree in the end must be the same."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from holdfast.store import RENAME_EXCHANGE, RENAME_NOREPLACE
from tests.model import operations as ops
from tests.support.daemons.faults.file_ids import OTHER_DISK
from tests.support.daemons.node import Node
from tests.support.disks.mounts import mounted_image

NAMES = st.sampled_from(["a", "b", "c.tmp", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a"])
DATA = st.binary(max_size=64) | st.integers(1, 200_000).map(lambda size: bytes([size % 251]) * size)
OFFSETS = st.sampled_from([0, 1, 4095, 4096, 100_000])
SETTINGS = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Machine(RuleBasedStateMachine):
    """Two directories side by side. ``node`` and ``bases`` are set by the test."""

    node: Node
    mounted_base: Path
    plain_base: Path
    numbers = itertools.count()
    is_store = False

    def __init__(self) -> None:
        super().__init__()
        name = f"run{next(self.numbers)}"
        self.mounted, self.plain = self.mounted_base / name, self.plain_base / name
        self.mounted.mkdir()
        self.plain.mkdir()

    def both(self, operation: ops.Operation) -> None:
        note(operation.words)
        expected, found = operation.outcome(self.plain), operation.outcome(self.mounted)
        assert found == expected, operation.words

    def teardown(self) -> None:
        assert ops.snapshot(self.mounted) == ops.snapshot(self.plain)
        shutil.rmtree(self.mounted)
        assert not self.mounted.exists()
        shutil.rmtree(self.plain)

    @rule(name=NAMES, data=DATA, offset=OFFSETS)
    def write(self, name: str, data: bytes, offset: int) -> None:
        self.both(ops.write(name, data, offset))

    @rule(name=NAMES, data=DATA)
    def append(self, name: str, data: bytes) -> None:
        self.both(ops.append(name, data))

    @rule(name=NAMES, flags=st.sampled_from([0, 0o200, 0o1000, 0o2000]))
    def create(self, name: str, flags: int) -> None:
        self.both(ops.create(name, flags))

    @rule(name=NAMES)
    def read(self, name: str) -> None:
        self.both(ops.read(name))

    @rule(name=NAMES, size=st.sampled_from([0, 1, 10, 5000, 123_456]))
    def truncate(self, name: str, size: int) -> None:
        self.both(ops.truncate(name, size))

    @rule(name=NAMES)
    def mkdir(self, name: str) -> None:
        self.both(ops.mkdir(name))

    @rule(name=NAMES)
    def rmdir(self, name: str) -> None:
        self.both(ops.rmdir(name))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.both(ops.unlink(name))

    @rule(name=NAMES)
    def unlink_while_open(self, name: str) -> None:
        self.both(ops.unlink_while_open(name))

    @rule(name=NAMES, new=NAMES)
    def link(self, name: str, new: str) -> None:
        self.both(ops.link(name, new))

    @precondition(lambda self: not self.is_store)
    @rule(name=NAMES)
    def symlink(self, name: str) -> None:
        self.both(ops.symlink("a", name))

    @precondition(lambda self: not self.is_store)
    @rule(name=NAMES, new=NAMES, flags=st.sampled_from([0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE]))
    def rename(self, name: str, new: str, flags: int) -> None:
        self.both(ops.rename(name, new, flags))

    @precondition(lambda self: self.is_store)
    @rule(name=NAMES, new=NAMES, flags=st.sampled_from([0, 0, RENAME_NOREPLACE]))
    def rename_file(self, name: str, new: str, flags: int) -> None:
        if not (self.plain / name).is_dir():  # a directory that holds objects answers EXDEV
            self.both(ops.rename(name, new, flags))

    @rule(name=NAMES, new=NAMES)
    def rename_while_open(self, name: str, new: str) -> None:
        if not (self.plain / name).is_dir() and name != new:
            self.both(ops.rename_while_open(name, new))

    @rule(name=NAMES, mode=st.sampled_from([0o600, 0o644, 0o755, 0o4711]))
    def chmod(self, name: str, mode: int) -> None:
        self.both(ops.chmod(name, mode))

    @rule(name=NAMES, mtime_ns=st.integers(0, 2**61))
    def utime(self, name: str, mtime_ns: int) -> None:
        self.both(ops.utime(name, mtime_ns))

    @rule(name=st.sampled_from([".", "d", "d/e", "f", "a"]))
    def list_directory(self, name: str) -> None:
        self.both(ops.list_directory(name))

    @rule(name=NAMES)
    def status(self, name: str) -> None:
        self.both(ops.status(name))


class StoreMachine(Machine):
    """In a zone over a store."""

    is_store = True


class RestartingMachine(Machine):
    """In a working directory, with the daemon stopped and started in between."""

    @rule()
    def restart(self) -> None:
        note("restart")
        self.node.stop()
        self.node.start()


class KilledMachine(Machine):
    """In a working directory, with the daemon killed and started in between."""

    @rule()
    def kill(self) -> None:
        note("kill")
        self.node.kill()
        self.node.start()


class KilledStoreMachine(StoreMachine):
    """In a zone over a store, with the daemon killed and started in between."""

    @rule()
    def kill(self) -> None:
        note("kill")
        self.node.kill()
        self.node.start()


@pytest.fixture
def bases(node: Node, workspace: Path) -> tuple[Path, Path]:
    (workspace / "plain").mkdir()
    (node.work / "plain").mkdir()
    return workspace / "plain", node.work / "plain"


def run(machine: type[Machine], node: Node, mounted: Path, plain: Path, examples: int) -> None:
    machine.node, machine.mounted_base, machine.plain_base = node, mounted, plain
    run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=examples))


@pytest.mark.promise("local-model")
def test_a_working_directory_is_like_a_plain_one(node: Node, bases: tuple[Path, Path]) -> None:
    run(Machine, node, bases[1], bases[0], 60)


@pytest.mark.promise("local-model")
def test_local_state_is_like_a_plain_directory(node: Node, bases: tuple[Path, Path]) -> None:
    (node.work / "worker_1").mkdir()
    run(Machine, node, node.work / "worker_1/localState", bases[0], 30)


def test_a_store_zone_is_like_a_plain_directory_for_one_node(node: Node, bases: tuple[Path, Path]) -> None:
    run(StoreMachine, node, node.checkpoints, bases[0], 60)


def test_a_working_directory_stays_the_same_over_restarts(node: Node, bases: tuple[Path, Path]) -> None:
    run(RestartingMachine, node, bases[1], bases[0], 10)


def test_a_store_zone_stays_the_same_over_kills(node: Node, bases: tuple[Path, Path]) -> None:
    run(KilledStoreMachine, node, node.checkpoints, bases[0], 10)


@pytest.fixture
def node_with_ids(node: Node) -> Node:
    """A node whose files are not known by their inode numbers."""
    node.stop()
    node.faults = ["ids_beside_inode_numbers"]
    node.start()
    (node.work / "known").mkdir()
    assert (node.work / "known").stat().st_ino == node.backing(node.work / "known").stat().st_ino | OTHER_DISK
    return node


def test_a_working_directory_stays_the_same_whatever_its_files_are_known_by(
    node_with_ids: Node, bases: tuple[Path, Path]
) -> None:
    run(RestartingMachine, node_with_ids, bases[1], bases[0], 10)


def test_a_store_zone_stays_the_same_whatever_its_files_are_known_by(node_with_ids: Node, bases: tuple[Path, Path]) -> None:
    run(KilledStoreMachine, node_with_ids, node_with_ids.checkpoints, bases[0], 10)


@pytest.fixture
def workdir_elsewhere(node: Node, workspace: Path) -> Iterator[Path]:
    """A working directory on another disk than the node's store."""
    with (
        mounted_image("ext4", workspace / "first", 64 << 20) as first,
        mounted_image("ext4", workspace / "disk", 256 << 20) as disk,
    ):
        (disk / "holdfast").mkdir()
        node.stop()
        node.settings |= {"store.directory": first / "store", "store.other_disks": disk / "holdfast"}
        node.start()
        workdir = node.work / "worker_1"
        workdir.mkdir()
        assert len(os.listdir(disk / "holdfast/workdirs")) == 1
        yield workdir
        node.clean_up()  # before the disks go


@pytest.mark.promise("workdir-disks")
@pytest.mark.parametrize("machine", [RestartingMachine, KilledMachine])
def test_a_working_directory_on_another_disk_is_like_a_plain_one(
    machine: type[Machine], workdir_elsewhere: Path, node: Node, workspace: Path
) -> None:
    (workspace / "plain").mkdir()
    (workdir_elsewhere / "base").mkdir()
    run(machine, node, workdir_elsewhere / "base", workspace / "plain", 10)
