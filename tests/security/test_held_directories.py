"""Whoever may list a directory can hold its lock, and then the kernel drops no name in it: others do not wait for that."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.fs.fuse.name_drops import PATIENCE_SECONDS
from tests.conftest import NodeFactory
from tests.security.stores import workdir_of
from tests.support.daemons.node import Node, wait_until
from tests.support.users.attackers import running
from tests.support.users.held_locks import held
from tests.support.users.privileges import ALICE, MALLORY

_MANY = 24
"""More than the threads that wait for locks to begin with."""


@pytest.fixture
def own(workspace: Path) -> Path:
    """A directory for Mallory's file system."""
    path = workspace / "own"
    path.mkdir()
    return path


@pytest.mark.promise("held-directories")
@pytest.mark.parametrize("faults", [[], ["no_takeover"]], ids=["this kernel", "an old kernel"])
def test_who_holds_a_directory_keeps_nobody_elses_from_expiring(
    make_node: NodeFactory, own: Path, faults: list[str]
) -> None:
    """Gain: nothing expires on the node any more, and the disk fills.

    When Mallory's working directory has expired, the kernel is to be told that links to its files have one name less.
    """
    node = make_node(workdirs__retain_seconds=0)
    node.faults = faults
    node.start()
    home, plain = node.work / "driver_m", [node.work / f"plain{number}" for number in range(_MANY)]

    def links() -> None:
        for number, directory in enumerate(plain):
            (home / f"tmp/{number}").touch()
            os.link(home / f"tmp/{number}", directory / "link")

    def makes() -> None:
        for each in (home, *plain):
            each.mkdir()

    with ExitStack() as holding:
        with running(MALLORY, makes):
            MALLORY.do(links)
            holding.enter_context(held(MALLORY, plain, own))
        wait_until(lambda: not home.exists())
        workdir_of(node, ALICE, "driver_a")
        wait_until(lambda: not (node.work / "driver_a").exists())
    wait_until(lambda: all((directory / "link").stat().st_nlink == 1 for directory in plain))


@pytest.mark.promise("held-directories")
def test_many_held_directories_keep_no_name_elsewhere_from_being_dropped(node: Node, own: Path) -> None:
    """Gain: copies are evicted, and names swept, for nobody any more, and the threads of the daemon are used up."""
    directories = [node.checkpoints / f"open{number}" for number in range(_MANY)]
    other = node.checkpoints / "other/state"
    for directory in (*directories, other.parent):
        directory.mkdir()
        (directory / "state").write_bytes(b"state")

    def evict(path: Path) -> float:
        began = time.monotonic()
        with node.client() as client:
            list(client.evict(str(path)))
        return time.monotonic() - began

    with ThreadPoolExecutor(_MANY) as threads, held(MALLORY, directories, own):
        waiting = [threads.submit(evict, directory / "state") for directory in directories]
        assert evict(other) < PATIENCE_SECONDS
        assert all(each.result() >= PATIENCE_SECONDS for each in waiting)
        assert evict(directories[0]) < PATIENCE_SECONDS, "what is known to be held is not waited for again"
    assert all((directory / "state").read_bytes() == b"state" for directory in directories)


@pytest.mark.promise("held-directories")
def test_who_acquires_a_directory_that_is_held_is_told(node: Node, own: Path) -> None:
    """Gain: her process waits for ever, and with it all that acquire after her."""
    home = workdir_of(node, ALICE, "driver_a")
    with node.client() as client:
        client.release("driver", "a")
        ALICE.do(lambda: (home / "tmp/file").touch())
        with held(MALLORY, [home], own):
            with pytest.raises(HoldfastError, match="a process holds the lock of work/driver_a: end what hangs there"):
                client.acquire("driver", "a", os.getpid(), ALICE.uid, ALICE.gid)
            client.acquire("driver", "b", os.getpid(), ALICE.uid, ALICE.gid)
        client.acquire("driver", "a", os.getpid(), ALICE.uid, ALICE.gid)
    assert os.listdir(home / "tmp") == []
