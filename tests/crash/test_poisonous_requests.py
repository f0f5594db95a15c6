"""A request that hangs or ends the daemon that executes it gets EIO from the next one; all others are answered."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.faults.switches import HELD
from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import ALICE, MALLORY
from tests.support.users.stalls import bystander

_DEATHS = 3
"""So many daemons may end during the same request."""


@pytest.fixture
def node(make_node: NodeFactory) -> Node:
    made = make_node()
    # Another daemon that gets no processor for as long would be one more hang.
    made.supervised, made.watchdog_seconds, made.faults = True, 4.0, ["poisonous_names"]
    made.environment = {HELD: str(made.directory / "held")}
    made.expected_faults += ["Fatal Python error: Aborted", "most recent call first", "  File "]
    return made.start()


def looked_for(path: Path) -> int:
    """Return the errno of a look for ``path``."""
    try:
        os.stat(path)
    except OSError as problem:
        return problem.errno or 0
    return 0


@pytest.mark.parametrize("name", ["hangs", "hangs-late"])
def test_a_request_that_hangs_a_daemon_is_known_to_the_next_one(name: str, node: Node) -> None:
    home = node.work / "mallory_1"
    MALLORY.do(home.mkdir)
    first = node.pid
    with bystander(node):  # who gets no error, only waits
        pid, reader = MALLORY.fork(lambda told: os.write(told, b"%d" % looked_for(home / name)))
        with open(reader) as channel:
            assert channel.read() == str(errno.EIO)
        os.waitpid(pid, 0)
    assert node.pid != first
    (refused,) = node.events("request-refused")
    assert (refused["operation"], refused["uid"], refused["pid"]) == ("lookup", MALLORY.uid, pid)
    assert refused["inode"] == home.stat().st_ino
    assert len(node.events("hang-ended")) == 1


@pytest.mark.parametrize("name", ["dies", "dies-late"])
def test_a_request_during_which_daemons_end_is_refused_in_the_end(name: str, node: Node) -> None:
    node.expected_faults += ["the daemon has ended with -9"]
    home = node.work / "mallory_1"
    MALLORY.do(home.mkdir)
    with bystander(node):
        assert looked_for(home / name) == errno.EIO
    log = node.log.read_text()
    assert log.count("the daemon has ended with -9") == _DEATHS
    assert len(node.events("request-refused")) == 1


@pytest.fixture
def waiting(node: Node) -> Iterator[Callable[[], None]]:
    """A request of ALICE's waits; call this to wait until the daemon of now has begun it. In the end it gets its answer."""
    held = node.directory / "held"
    held.touch()
    ALICE.do((node.work / "alice_1").mkdir)
    pid, reader = ALICE.fork(lambda told: os.write(told, b"%d" % looked_for(node.work / "alice_1/waits")))

    def wait() -> None:
        wait_until(held.with_suffix(".waits").exists)
        held.with_suffix(".waits").unlink()

    yield wait
    held.unlink()
    with open(reader) as channel:
        assert channel.read() == str(errno.ENOENT)
    os.waitpid(pid, 0)


def test_a_request_that_waits_while_another_one_hangs_the_daemon_is_answered(
    node: Node, waiting: Callable[[], None]
) -> None:
    waiting()
    MALLORY.do((node.work / "mallory_1").mkdir)
    assert looked_for(node.work / "mallory_1/hangs") == errno.EIO
    waiting()
    assert len(node.events("request-refused")) == 1


def test_a_request_that_waits_each_time_its_daemon_is_killed_is_answered(node: Node, waiting: Callable[[], None]) -> None:
    node.expected_faults += ["the daemon has ended with -9"]
    for _ in range(_DEATHS + 1):
        waiting()
        node.kill_daemon()
    waiting()
    assert node.events("request-refused") == []
