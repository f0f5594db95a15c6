"""One user's files and requests must not make the others wait: for each attack, the longest wait of a bystander."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import NodeFactory
from tests.support import hanging_daemon
from tests.support.node import Node, wait_until
from tests.support.stalls import bystander


def test_a_bystander_feels_a_daemon_that_hangs_until_the_next_one_answers(make_node: NodeFactory) -> None:
    """What the other tests here measure with would notice."""
    node = make_node()
    node.supervised, node.watchdog_seconds, node.module = True, 2.0, hanging_daemon.__name__
    node.start()
    node.expected_faults += ["Fatal Python error: Aborted", "most recent call first", "  File "]
    with bystander(node) as waits:
        hung = node.pid
        os.kill(hung, signal.SIGUSR1)
        wait_until(lambda: node.pid_now() not in (0, hung))
    assert waits.longest_ms > 1000
    with pytest.raises(AssertionError, match="calls, at most"):
        waits.check()


def test_a_bystander_of_nobody_waits_for_nothing(node: Node) -> None:
    with bystander(node) as waits:
        pass
    assert min(longest.calls for longest in waits.by_call.values()) >= 1
    waits.check()
