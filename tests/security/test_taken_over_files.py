"""What one user has open when the daemon is followed by another one: the takeover must not be at its mercy."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from tests.conftest import NodeFactory
from tests.support.daemons.node import wait_until

_FILES = 800
"""More than one message on a Unix socket can pass on (253)."""


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Let the test itself, too, have as many files open as it may."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_hundreds_of_open_files_are_taken_over(make_node: NodeFactory) -> None:
    """Gain: every takeover fails from then on, and everybody's open files are lost with each."""
    node = make_node()
    node.supervised = True
    node.start()
    (node.work / "many").mkdir()
    opened = [os.open(node.work / f"many/{number}", os.O_CREAT | os.O_RDWR) for number in range(_FILES)]
    node.kill_daemon()
    for number, fd in enumerate(opened):
        assert os.write(fd, b"%d" % number)
    wait_until(node.answers)  # a file that is open needs no daemon
    taken_over = node.wait_event("taken-over")
    assert taken_over["open_files"] == _FILES
    for number, fd in enumerate(opened):
        assert os.pread(fd, 10, 0) == b"%d" % number
        os.close(fd)
