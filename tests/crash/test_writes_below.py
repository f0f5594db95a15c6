"""Whoever retries while a mount dies, ends or is made anew never writes into the directory below it.

A process that works at the path without rest is told of success only for what the mount has.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.mount import covered_directory, mount_calls, mountpoint, protection_marks
from tests.conftest import NodeFactory
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import shared
from tests.support.load.retrying_writer import Book, retrying_writer

ROUNDS = 2
NO_FLAGS = ["setpriv", "--inh-caps=-linux_immutable", "--bounding-set=-linux_immutable"]
"""A command without the capability to make a directory immutable, as in most containers."""

KERNELS = [
    pytest.param([], id="this kernel"),
    pytest.param(["no_takeover"], id="no takeover"),
    pytest.param(["no_takeover", "no_mount_beneath"], id="no mount beneath"),
]
"""Faults that make a kernel older."""


@contextmanager
def nothing_lands_below(node: Node, *prefix: str) -> Iterator[Book]:
    """A writer works at the mountpoint in the block; the directory below stays empty, the mount has all that was written."""
    with retrying_writer(node.mountpoint, node.directory / "book", *prefix) as book:
        book.goes_on()
        yield book
        book.goes_on()
    with mount_calls.bare(str(node.mountpoint)) as below:
        assert os.listdir(below) == []
    assert book.written
    assert [path for path in book.written if not path.exists()] == []


def killed(node: Node) -> None:
    """The daemon is killed, and started again by hand over its dead mount."""
    os.kill(node.pid, signal.SIGKILL)
    node.wait_end()
    node.start()


def unmounted(node: Node) -> None:
    mountpoint.detach(str(node.mountpoint))
    node.wait_end()
    node.start()


def terminated(node: Node) -> None:
    node.terminate()
    node.start()


def mounts_there(node: Node) -> list[str]:
    return [mount.file_system for mount in mountpoint.stack_on(str(node.mountpoint))]


@pytest.mark.promise("below-the-mount")
@pytest.mark.parametrize("faults", KERNELS)
@pytest.mark.parametrize("prefix", [[], NO_FLAGS], ids=["root", "container"])
@pytest.mark.parametrize("end", [killed, unmounted, terminated])
def test_while_a_daemon_ends_and_the_next_one_mounts(
    end: Callable[[Node], None], prefix: list[str], faults: list[str], make_node: NodeFactory
) -> None:
    node = make_node()
    node.faults, node.prefix = faults, prefix
    node.start()
    with nothing_lands_below(node) as book:
        for _ in range(ROUNDS):
            end(node)
            book.goes_on()
    assert mounts_there(node).count(mountpoint.FILE_SYSTEM) == 1, "no dead mounts pile up"
    assert node.status().mountpoint_protection == ("covered" if prefix else "immutable")
    assert node.events("hidden-files") == []


@pytest.mark.promise("below-the-mount")
@pytest.mark.parametrize("prefix", [[], NO_FLAGS], ids=["privileged", "no flags"])
def test_while_the_daemons_pod_ends_and_another_pod_writes(prefix: list[str], make_node: NodeFactory) -> None:
    """Each in a mount namespace of its own: the daemon's gives its mounts to the host, and the host to the other."""
    node = make_node()
    node.prefix = ["unshare", "--mount", "--propagation", "unchanged", *prefix]
    with shared(node.directory):
        node.start()
        with nothing_lands_below(node, "unshare", "--mount", "--propagation", "slave") as book:
            for end in (killed, terminated, unmounted):
                end(node)
                book.goes_on()
        assert mounts_there(node) == [mountpoint.FILE_SYSTEM, *(["tmpfs"] if prefix else [])]
        node.clean_up()


@pytest.mark.promise("below-the-mount")
@pytest.mark.parametrize("faults", KERNELS)
def test_while_a_supervised_daemon_is_killed(faults: list[str], make_node: NodeFactory) -> None:
    node = make_node()
    node.faults, node.supervised, node.outlives_daemon = faults, True, False
    node.start()
    with nothing_lands_below(node) as book:
        for _ in range(ROUNDS):
            node.kill_daemon()
            wait_until(node.answers)
            book.goes_on()
    assert mounts_there(node) == [mountpoint.FILE_SYSTEM]


@pytest.mark.promise("below-the-mount")
def test_while_supervisor_and_daemon_are_killed(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised, node.outlives_daemon = True, False
    node.start()
    with nothing_lands_below(node) as book:
        for _ in range(ROUNDS):
            node.signal_supervisor(signal.SIGKILL)
            node.kill_orphan()
            node.start()
            book.goes_on()
    assert mounts_there(node) == [mountpoint.FILE_SYSTEM]


@pytest.mark.promise("mountpoint-protected")
def test_nor_before_the_next_start_whoever_took_the_mount_away(make_node: NodeFactory) -> None:
    node = make_node().start()
    node.stop()
    with pytest.raises(PermissionError):
        (node.mountpoint / "file").touch()
    with pytest.raises(PermissionError):
        (node.mountpoint / "checkpoints").mkdir()
    with pytest.raises(PermissionError):
        node.mountpoint.rmdir()
    node.start()
    subprocess.run(["umount", "--lazy", node.mountpoint], check=True)
    node.wait_end()
    with pytest.raises(PermissionError):
        (node.mountpoint / "file").touch()


@pytest.mark.promise("mountpoint-protected")
def test_a_cover_takes_no_writes_and_the_next_mount_comes_over_it(make_node: NodeFactory) -> None:
    node = make_node()
    node.prefix = NO_FLAGS
    node.start()
    assert mounts_there(node) == [mountpoint.FILE_SYSTEM, "tmpfs"]
    node.stop()
    assert mounts_there(node) == ["tmpfs"]
    with pytest.raises(OSError, match="Read-only file system"):
        (node.mountpoint / "file").touch()
    node.start()
    assert mounts_there(node) == [mountpoint.FILE_SYSTEM, "tmpfs"]
    (node.checkpoints / "file").write_bytes(b"in the mount")


@pytest.mark.promise("hidden-files")
def test_what_an_earlier_version_left_open_is_protected_when_its_mount_is_taken_over(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    with mount_calls.bare(str(node.mountpoint)) as below:
        protection_marks.set_immutable(below, on=False)
        Path(f"/proc/self/fd/{below}/lost").touch()
    node.kill_daemon()
    wait_until(lambda: node.answers() and bool(node.events("taken-over")))
    assert node.status().mountpoint_protection == "covered"
    assert node.status().hidden_files == ["lost"]
    assert node.events("hidden-files") == [{"mountpoint": str(node.mountpoint), "names": "lost"}]
    node.stop()
    with pytest.raises(OSError, match="Read-only file system"):
        (node.mountpoint / "other").touch()
    with mount_calls.bare(str(node.mountpoint)) as below:
        assert os.listdir(below) == ["lost"]
        assert protection_marks.is_immutable(below)


@pytest.mark.promise("below-the-mount")
@pytest.mark.parametrize("prefix", [[], NO_FLAGS], ids=["root", "container"])
def test_nor_into_directories_that_are_there_already(prefix: list[str], make_node: NodeFactory) -> None:
    """A job's directory from before the protection: that the mountpoint is immutable keeps no writer out of it."""
    node = make_node()
    node.prefix = prefix
    node.start()
    node.stop()
    covered_directory.release(str(node.mountpoint))
    (node.mountpoint / "checkpoints/job").mkdir(parents=True)
    node.start()
    with retrying_writer(node.mountpoint, node.directory / "book") as book:
        for end in (unmounted, terminated, killed):
            book.goes_on()
            end(node)
        book.goes_on()
    assert [path for path in book.written if not path.exists()] == []
    with mount_calls.bare(str(node.mountpoint)) as below:
        assert os.listdir(f"/proc/self/fd/{below}/checkpoints/job") == []
    assert [event["names"] for event in node.events("hidden-files")] == ["checkpoints"]
