"""``holdfast flush`` and ``holdfast drain``: what is on this node alone gets to its store, or is named with the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.control.messages import Progress
from tests.conftest import NodeFactory
from tests.mount.conftest import S3NodeFactory, keys
from tests.mount.test_objects import objects
from tests.mount.test_send_retries import SETTINGS
from tests.support.daemons.node import Node, wait_until
from tests.support.processes.programs import holdfast
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import S3Server


@pytest.fixture
def far(make_s3_node: S3NodeFactory, place: S3Server, proxy: FaultProxy) -> Node:
    """A node whose files are sent later, through a proxy."""
    return make_s3_node(place.through(proxy.endpoint), checkpoints__durability="async", **SETTINGS).start()


def flush(node: Node, path: Path | None = None, seconds: float = 60) -> list[Progress]:
    """Return the problems."""
    with node.client() as client:
        return [step for step in client.flush(str(path) if path else None, seconds) if step.problem]


def drain(node: Node, seconds: float = 60) -> list[Progress]:
    with node.client() as client:
        return [step for step in client.drain(seconds) if step.problem]


def test_flush_returns_when_the_store_has_everything(far: Node, place: S3Server, proxy: FaultProxy) -> None:
    names = [f"checkpoints/{number}" for number in range(20)]
    proxy.answer(503, method="PUT", times=1 << 30)
    for name in names:
        (far.mountpoint / name).write_bytes(b"bytes")
    assert far.status().unsent_files == len(names)
    proxy.heal()
    assert flush(far) == []
    assert far.status().unsent_files == 0
    assert keys(place) == set(names)


def test_flush_carries_out_deletions_that_were_held_back(make_node: NodeFactory, remote_files: Path) -> None:
    node = make_node(remote__delete_delay_seconds=3600).start()
    (node.checkpoints / "gone").write_bytes(b"bytes")
    (node.checkpoints / "gone").unlink()
    assert objects(remote_files) == {"gone": b"bytes"}
    assert flush(node, node.checkpoints) == []
    assert objects(remote_files) == {}


def test_flush_says_what_is_not_sent_and_why(far: Node, proxy: FaultProxy) -> None:
    (far.checkpoints / "other").mkdir()
    with (far.checkpoints / "queued").open("wb") as file:
        file.write(b"bytes")
        proxy.down()
    far.wait_event("send-delayed")
    (problem,) = flush(far, far.checkpoints, seconds=1)
    assert problem.path == str(far.checkpoints / "queued")
    assert problem.problem is not None
    assert "gave up after" in problem.problem
    assert flush(far, far.checkpoints / "other", seconds=0) == []
    answer = holdfast("flush", "--all", "--timeout", 0, "--socket", far.socket, status=1)
    assert f"{far.checkpoints}/queued: " in answer
    assert "sent 0 of 1 file, 0 B; 1 problem" in answer
    proxy.up()
    assert flush(far) == []


def test_flush_does_not_wait_for_a_writer(node: Node) -> None:
    with (node.checkpoints / "report").open("wb") as file:
        file.write(b"half")
        file.flush()
        (problem,) = flush(node)
        assert "open for writing" in str(problem.problem)
    assert flush(node) == []


def test_flush_sends_nothing_that_was_cut_off(node: Node, remote_files: Path) -> None:
    descriptor = os.open(node.checkpoints / "report", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(descriptor, b"half")
    node.kill()
    with pytest.raises(OSError, match=r"not connected|connection abort"):
        os.close(descriptor)
    node.start()
    (problem,) = flush(node)
    assert "cut off" in str(problem.problem)
    assert objects(remote_files) == {}


def test_flush_sends_what_a_store_had_refused(far: Node, place: S3Server, proxy: FaultProxy) -> None:
    descriptor = os.open(far.checkpoints / "report", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(descriptor, b"bytes")
    proxy.down()
    with pytest.raises(OSError, match="Input/output"):
        os.fsync(descriptor)
    os.close(descriptor)
    proxy.up()
    assert flush(far) == []
    assert keys(place) == {"checkpoints/report"}


def test_a_path_that_is_not_there_is_not_flushed(node: Node) -> None:
    assert "there is no" in holdfast("flush", node.checkpoints / "misspelt", "--socket", node.socket, status=1)


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as problem:
        return problem.errno == errno.EROFS
    return False


def test_a_drained_node_takes_nothing_new_for_its_stores(node: Node, remote_files: Path) -> None:
    report, moved = node.checkpoints / "report", node.checkpoints / "moved"
    report.write_bytes(b"bytes")
    (node.work / "driver_1").mkdir()
    (node.work / "driver_1/file").write_bytes(b"bytes")
    assert drain(node) == []
    assert node.status().draining
    assert refused(lambda: (node.checkpoints / "new").touch())
    assert refused(lambda: (node.checkpoints / "directory").mkdir())
    assert refused(lambda: report.open("ab"))
    assert refused(lambda: os.truncate(report, 0))
    assert refused(lambda: report.rename(moved))
    assert refused(lambda: os.link(report, moved))
    assert refused(lambda: (node.work / "driver_1/file").rename(moved))
    assert refused(lambda: (node.work / "driver_1/blobStorage/new").touch())
    assert objects(remote_files) == {"report": b"bytes"}
    assert report.read_bytes() == b"bytes"
    (node.work / "driver_1/file").write_bytes(b"goes on")
    (node.work / "driver_1/localState/file").write_bytes(b"goes on")
    report.unlink()
    wait_until(lambda: objects(remote_files) == {})
    with node.client() as client:
        client.end_drain()
    report.write_bytes(b"again")
    assert not node.status().draining


def test_drain_waits_for_those_who_are_writing(node: Node, remote_files: Path) -> None:
    with (node.checkpoints / "report").open("wb") as file:
        file.write(b"first half, ")
        file.flush()
        (problem,) = drain(node, seconds=0)
        assert "open for writing" in str(problem.problem)
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", "drain", "--socket", node.socket], stdout=subprocess.PIPE, text=True
        ) as command:
            file.write(b"second half")
            file.close()
            answer, _ = command.communicate()
    assert command.returncode == 0
    assert "this node may go" in answer
    assert objects(remote_files) == {"report": b"first half, second half"}


def test_the_next_daemon_goes_on_draining_and_the_next_mount_does_not(make_node: NodeFactory) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    assert drain(node) == []
    node.kill_daemon()
    wait_until(node.answers)
    assert node.status().draining
    assert refused(lambda: (node.checkpoints / "new").touch())
    node.stop()
    node.start()
    (node.checkpoints / "new").touch()


def test_a_daemon_that_ends_says_what_no_store_has(far: Node, proxy: FaultProxy) -> None:
    with (far.checkpoints / "queued").open("wb") as file:
        file.write(b"bytes")
        proxy.down()
    said = holdfast("umount", far.mountpoint, "--socket", far.socket)
    assert "1 file had not been sent to a store yet" in said
