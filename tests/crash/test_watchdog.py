"""A daemon that hangs is found and replaced; who works in the mount waits, and goes on."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.supervision import watchdog
from holdfast.supervision.mount_probe import MountProbe
from holdfast.supervision.watchdog import Hang
from tests.conftest import NodeFactory
from tests.support.daemons.faults.requests import BLOCKED
from tests.support.daemons.node import Node, wait_until
from tests.support.disks.mounts import unserved
from tests.support.kernel.needs import needs_takeover
from tests.support.processes.children import children_of
from tests.support.users.privileges import needs_root

_SECONDS = 4.0
_SILENT = """
import pathlib, select, sys
from holdfast.supervision.mount_probe import MountProbe
probe = MountProbe(sys.argv[1], pathlib.Path(sys.argv[2]), 1.0)
probe.ask()
select.select([probe.channel], [], [])
print(end=".", flush=True)
sys.stdin.read()
"""
"""Has its mount asked once, and never again."""


@pytest.fixture
def watched(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    node = make_node()
    node.supervised, node.outlives_daemon = True, False
    node.watchdog_seconds = getattr(request, "param", _SECONDS)
    node.faults = ["hang_on_signal"]
    node.start()
    wait_until(lambda: probes(node) != [] and node.status().kernel_requests.get("STATFS", 0) > 0)
    return node


def probes(node: Node) -> list[int]:
    """Return the processes that ask the mount for the daemon: one, or none while it is started."""
    return children_of(node.pid, b"mount_probe")


@needs_takeover
@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGUSR1], ids=["stopped", "event loop blocked"])
def test_a_daemon_that_hangs_is_replaced_under_running_work(blow: signal.Signals, watched: Node) -> None:
    watched.expected_faults += ["Fatal Python error: Aborted", "most recent call first", "  File "]
    hung = watched.pid
    path = watched.work / "file"
    with path.open("w+b", buffering=0) as file:
        file.write(b"before")
        os.kill(hung, blow)
        wait_until(lambda: "\nState:\tT" in Path(f"/proc/{hung}/status").read_text() or BLOCKED in watched.log.read_text())
        path.rename(path.with_name("moved"))  # nobody answers now
        assert watched.pid != hung
        file.write(b" and after")
        assert (watched.work / "moved").read_bytes() == b"before and after"
    (event,) = watched.events("hang-ended")
    assert event["why"] in ("its event loop did not turn", "its mount did not answer")
    log = watched.log.read_text()
    assert f"no sign of life for {_SECONDS:g} s" in log
    if blow == signal.SIGUSR1:  # the log has where it hung
        assert "in block_event_loop" in log
    watched.stop()


@pytest.mark.parametrize("watched", [4 * _SECONDS], indirect=True, ids=["patient"])
def test_a_daemon_that_is_slow_for_a_while_is_left_alone(watched: Node) -> None:
    busy, note = watched.pid, watched.socket.with_suffix(".session") / "hang"
    os.kill(busy, signal.SIGSTOP)
    try:
        wait_until(note.exists)  # soon it would be replaced
    finally:
        os.kill(busy, signal.SIGCONT)
    wait_until(lambda: not note.exists())
    assert (watched.pid, watched.events("hang-ended")) == (busy, [])


def test_the_process_that_asks_the_mount_is_replaced_when_it_is_killed(watched: Node) -> None:
    daemon, (killed,) = watched.pid, probes(watched)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: probes(watched) not in ([], [killed]))
    assert watched.pid == daemon


@needs_root
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "busy"])
def test_the_note_of_a_daemon_that_somebody_has_stopped_says_so(is_stopped: bool, tmp_path: Path) -> None:
    note = tmp_path / "note"
    command = [sys.executable, "-c", _SILENT, str(tmp_path), str(note)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as silent:
        assert silent.stdout is not None
        assert silent.stdout.read(1) == b"."
        if is_stopped:
            silent.send_signal(signal.SIGSTOP)
        wait_until(lambda: note.exists() and note.read_text() != "")
        silent.send_signal(signal.SIGKILL)
    assert watchdog.taken(note) == Hang("its event loop did not turn", is_stopped)
    assert watchdog.taken(note) is None


@needs_root
def test_a_mount_that_does_not_answer_is_noted_though_the_event_loop_turns(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with unserved(tmp_path / "mount") as path:
        probe = MountProbe(str(path), note, 0.2)
        probe.ask()
        wait_until(lambda: note.exists() and note.read_text() != "")
        assert note.read_text() == "its mount did not answer"
        assert select.select([probe.channel], [], [], 0)[0] == []
        probe.close()
    probe._process.wait()
    assert note.exists()


@needs_root
def test_nothing_is_noted_of_a_daemon_that_has_ended_and_whose_mount_waits_for_the_next_one(tmp_path: Path) -> None:
    note = tmp_path / "note"
    with unserved(tmp_path / "mount") as path:
        probe = MountProbe(str(path), note, 0.001)
        os.kill(probe._process.pid, signal.SIGSTOP)  # so that it hears of the question and the end at the same time
        os.waitid(os.P_PID, probe._process.pid, os.WSTOPPED | os.WNOWAIT)
        probe.ask()
        probe.close()
        os.kill(probe._process.pid, signal.SIGCONT)
        wait_until(lambda: len(os.listdir(f"/proc/{probe._process.pid}/task")) == 2)  # it waits for the mount
    probe._process.wait()
    assert not note.exists()


@needs_root
def test_the_event_loop_is_noted_when_it_does_not_ask(tmp_path: Path) -> None:
    """It is forgotten with the first question that comes in time after an answer, not with a late one."""
    note = tmp_path / "note"
    probe = MountProbe(str(tmp_path), note, 1.0)

    def is_answered() -> bool:
        probe.ask()
        select.select([probe.channel], [], [])
        return probe.has_answered()

    assert is_answered()
    for _ in range(2):
        wait_until(lambda: note.exists() and note.read_text() != "")
        assert note.read_text() == "its event loop did not turn"
        assert is_answered()
        assert note.exists()
        assert is_answered()
        assert not note.exists()
    probe.close()
    probe._process.wait()
