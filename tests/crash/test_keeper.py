"""A mount that outlives the daemon's pod: pods that work in it see no error while a keeper in another pod lives.

A pod is a process in namespaces of its own. That of the daemon has the host's process namespace (hostPID) and gives its
mounts to the host (Bidirectional).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.mount import mount_calls, mountpoint
from tests.conftest import NodeFactory
from tests.support.daemons.kept import KeeperProcess, keeper
from tests.support.daemons.node import Node, StartError, wait_until
from tests.support.disks.mounts import shared
from tests.support.kernel.needs import need_takeover
from tests.support.load.watching_pod import HOST_TO_CONTAINER, PLAIN, Watched, watching_pod
from tests.support.processes.memory import memory

KEEPERS_POD = (
    "unshare",
    "--mount",
    "--pid",
    "--net",
    "--uts",
    "--fork",
    "--kill-child=SIGKILL",
    "setpriv",
    "--bounding-set=-all",
)
DAEMONS_POD = ["unshare", "--mount", "--propagation", "unchanged", "--net", "--uts"]
NO_FLAGS = ["setpriv", "--inh-caps=-linux_immutable", "--bounding-set=-linux_immutable"]
KEPT = "takeover"
"""The words of status for a mount that outlives its daemon."""


@pytest.fixture
def kept(make_node: NodeFactory) -> Iterator[Node]:
    """A node whose daemon, in a pod of its own, will have its mount kept in ``keeper`` of its directory."""
    need_takeover()
    node = make_node()
    node.settings["mount.keeper"] = node.directory / "keeper"
    node.prefix = list(DAEMONS_POD)
    with shared(node.directory):
        yield node
        node.clean_up()


@contextmanager
def keepers_pod(node: Node, *options: str) -> Iterator[KeeperProcess]:
    with keeper(node.directory / "keeper", *options, prefix=KEEPERS_POD) as process:
        yield process


@contextmanager
def pods(node: Node) -> Iterator[list[Watched]]:
    """Two pods that work in the mount: one that is given later mounts too, one that has but this."""
    (node.work / "pods").mkdir()
    with ExitStack() as running:
        yield [
            running.enter_context(watching_pod(node.work / "pods", node.directory / f"book-{how}", how))
            for how in (HOST_TO_CONTAINER, PLAIN)
        ]


def kill_pod(node: Node) -> None:
    """SIGKILL all processes of the daemon's pod, as when its container is killed."""
    namespace = os.readlink(f"/proc/{node.pid}/ns/mnt")
    if node.supervised:
        node.signal_supervisor(signal.SIGKILL)  # first: it would start another one
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            if os.readlink(process / "ns/mnt") == namespace:
                os.kill(int(process.name), signal.SIGKILL)
    node.wait_end()


def below(node: Node) -> list[str]:
    with mount_calls.bare(str(node.mountpoint)) as fd:
        return os.listdir(fd)


def is_kept(node: Node) -> bool:
    status = node.status()
    return status.takeover == KEPT and not any("the mount ends with" in problem for problem in status.problems)


@pytest.mark.parametrize("container", [[], NO_FLAGS], ids=["privileged", "no flags"])
def test_no_pod_sees_an_error_whichever_of_the_others_goes(container: list[str], kept: Node) -> None:
    kept.prefix += container
    kept.supervised = True
    with ExitStack() as stack:
        first = stack.enter_context(keepers_pod(kept))
        kept.start()
        assert is_kept(kept)
        watched = stack.enter_context(pods(kept))

        def all_go_on() -> None:
            for pod in watched:
                pod.goes_on()

        kept.kill_daemon()
        all_go_on()
        kill_pod(kept)
        kept.start()
        all_go_on()
        kept.terminate()  # a rolling update
        assert first.holds()
        kept.start()
        all_go_on()
        first.end()
        wait_until(lambda: not is_kept(kept))
        second = stack.enter_context(keepers_pod(kept))
        wait_until(lambda: is_kept(kept))
        assert second.holds()
        kill_pod(kept)
        kept.start()
        all_go_on()
    assert [pod.errors for pod in watched] == [[], []]
    assert below(kept) == []
    assert kept.events("takeover-failed") == []


def mounts_there(node: Node) -> list[str]:
    return [mount.file_system for mount in mountpoint.stack_on(str(node.mountpoint))]


@pytest.mark.parametrize("abandons", [False, True], ids=["the keeper is dead", "the keeper gives up"])
def test_pods_get_an_error_when_no_keeper_holds_the_mount_and_the_next_one_is_mounted_afresh(
    abandons: bool, kept: Node
) -> None:
    kept.prefix += NO_FLAGS
    with keepers_pod(kept, *(["--abandon", "0.5"] if abandons else [])) as first:
        kept.start()
        with pods(kept) as watched:
            if not abandons:
                first.end(signal.SIGKILL)
            kill_pod(kept)
            for pod in watched:
                pod.fails("E")
                assert {error.split()[0] for error in pod.errors} <= {"ENOTCONN", "ECONNABORTED"}
    with keepers_pod(kept):
        kept.start()
        assert is_kept(kept)
        assert kept.events("takeover-failed") == [{"why": "nobody has kept its descriptor"}]
        (kept.work / "after").mkdir()
    assert below(kept) == []
    assert mounts_there(kept) == [mountpoint.FILE_SYSTEM, "tmpfs"]


def test_a_keeper_that_holds_a_mount_takes_15_mb(kept: Node) -> None:
    with keepers_pod(kept) as first:
        kept.start()
        wait_until(lambda: is_kept(kept))
        assert memory(first.pid).resident < 15_000_000, memory(first.pid)


def test_a_daemon_whose_keeper_is_dead_says_so_and_unmounts_on_sigterm(kept: Node) -> None:
    with keepers_pod(kept) as first:
        kept.start()
        first.end()
        wait_until(lambda: kept.status().takeover.startswith("no takeover: "))
        assert "the keeper" in "".join(kept.status().problems)
        kept.terminate()
        assert mounts_there(kept) == []


def test_an_unmount_ends_the_daemon_and_lets_the_keeper_go_though_a_pod_still_sees_the_mount(kept: Node) -> None:
    with keepers_pod(kept) as first, ExitStack() as stack:
        kept.start()
        with_later_mounts, with_this_one = stack.enter_context(pods(kept))
        mountpoint.detach(str(kept.mountpoint))
        with_later_mounts.fails("ENOENT")
        with_this_one.goes_on()
        kept.terminate()  # as 'holdfast umount' does after a while
        with_this_one.fails("ENOTCONN")
        assert first.holds() == ""
    with pytest.raises(PermissionError):
        (kept.mountpoint / "file").touch()


def test_sigterm_unmounts_if_that_is_wanted_and_a_second_daemon_is_refused_meanwhile(
    kept: Node, make_node: NodeFactory
) -> None:
    with keepers_pod(kept) as first:
        kept.start(mount__on_stop="unmount")
        with pytest.raises(StartError, match="serves another daemon"):
            make_node("b", mount__keeper=first.directory).start()
        assert is_kept(kept)
        kept.terminate()
        assert first.holds() == ""
    assert mounts_there(kept) == []
