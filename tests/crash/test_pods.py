"""Real containers: daemon, keeper and driver as the chart has them, killed and replaced under applications that work.

Kubelet's part is the test's: it starts containers again, replaces pods, and asks the driver for volumes.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.daemons.node import wait_until
from tests.support.kernel.needs import needs_takeover
from tests.support.kubernetes.container_node import container_node
from tests.support.kubernetes.container_runtime import Pod, Propagation, Volume
from tests.support.kubernetes.holdfast_pods import HoldfastPods
from tests.support.load.watching_pod import Watched

GRACE_SECONDS = 60
KILLED, NO_PERMISSION = 128 + signal.SIGKILL, 77
NOT_PERMITTED, DEAD = "Operation not permitted", "Transport endpoint is not connected"


@pytest.fixture
def pods() -> Iterator[HoldfastPods]:
    with container_node() as node:
        pods = HoldfastPods(node)
        yield pods
        assert pods.faults() == []


def host_to_container(pods: HoldfastPods) -> Volume:
    """A pod's volume that is given later mounts too."""
    return Volume(pods.above, Propagation.HOST_TO_CONTAINER)


def plain(pods: HoldfastPods) -> Volume:
    """A pod's volume that has but the mount which was there when its container began."""
    return Volume(pods.mountpoint)


def csi_volume(pods: HoldfastPods) -> Volume:
    return Volume(pods.csi.publish("team", {"store": "checkpoints", "path": "team"}), at="/data")


def all_watch(pods: HoldfastPods) -> dict[str, tuple[Pod, Watched]]:
    """A pod for each way to get the mount."""
    for name in ("later", "plain"):
        pods.seen(pods.mountpoint / "work" / name).mkdir()
    volume = csi_volume(pods)
    return {
        "later mounts too": pods.watching(pods.mountpoint / "work/later", host_to_container(pods)),
        "this mount": pods.watching(pods.mountpoint / "work/plain", plain(pods)),
        "a CSI volume": pods.watching(Path(volume.at), volume),
    }


class Waits:
    """The longest round of each watching pod after each thing that has happened."""

    def __init__(self, watched: dict[str, tuple[Pod, Watched]], record: Callable[[str, object], None]) -> None:
        self._books = [book for _, book in watched.values()]
        self._seen = [0 for _ in self._books]
        self._record = record

    def all_go_on_after(self, what: str) -> None:
        for book in self._books:
            book.goes_on()
        longest = max(book.longest_seconds(seen) for book, seen in zip(self._books, self._seen, strict=True))
        self._seen = [len(book.lines) for book in self._books]
        self._record(f"longest wait after {what}, in seconds", longest)


def shows_something(directory: Path) -> bool:
    """Say whether there is anything in a directory: not in that of a dead mount, nor where none is."""
    try:
        return os.listdir(directory) != []
    except OSError:
        return False


@needs_takeover
def test_no_application_sees_an_error_whichever_of_our_pods_is_killed_or_replaced(
    pods: HoldfastPods, record_property: Callable[[str, object], None]
) -> None:
    early = pods.application(host_to_container(pods))
    keeper, daemon, driver = pods.keeper(), pods.daemon(), pods.driver()
    assert pods.is_kept()
    assert pods.status().data_mode == "passthrough"
    watched = all_watch(pods)
    waits = Waits(watched, record_property)
    big = f"{pods.mountpoint}/checkpoints/big"
    status, printed = early.run("sh", "-c", f"head -c 20M /dev/urandom > {big} && sha1sum {big}")
    sent = hashlib.sha1((pods.remote / "checkpoints/big").read_bytes()).hexdigest()
    assert (status, printed.split()[0]) == (0, sent)
    waits.all_go_on_after("the start")
    pods.kill_daemon(daemon)
    waits.all_go_on_after("SIGKILL of the daemon")
    for number in range(3):
        pods.kill_container(daemon)
        waits.all_go_on_after(f"SIGKILL of the container, number {number}")
    daemon.stop(0)
    daemon.remove()
    daemon = pods.daemon()
    waits.all_go_on_after("a killed pod")
    daemon.stop(GRACE_SECONDS)
    assert daemon.exit_code == 0, daemon.log
    daemon.remove()
    daemon = pods.daemon()
    waits.all_go_on_after("SIGTERM and another pod")
    keeper.stop(0)
    keeper.remove()
    wait_until(lambda: not pods.is_kept())
    keeper = pods.keeper()
    wait_until(pods.is_kept)
    driver.stop(0)
    driver.remove()
    pods.driver()
    waits.all_go_on_after("another keeper and another driver")
    pods.kill_container(daemon)
    waits.all_go_on_after("SIGKILL of the container under the new keeper")
    assert {name: book.errors for name, (_, book) in watched.items()} == {name: [] for name in watched}
    assert pods.below() == []


def tried(pod: Pod, directory: str) -> str:
    """Return what comes of writing a file in ``directory``: nothing, or the words of the error."""
    status, printed = pod.run("sh", "-c", f"mkdir -p {directory}/job && echo state > {directory}/job/1")
    assert (status == 0) == (printed == ""), printed
    return printed.strip().rpartition(": ")[2]


def test_without_a_keeper_pods_get_errors_but_never_write_below_and_have_the_next_mount(pods: HoldfastPods) -> None:
    daemon = pods.daemon(keeper=False)
    pods.driver()
    in_mount = f"{pods.mountpoint}/checkpoints"
    later, this = pods.application(host_to_container(pods)), pods.application(plain(pods))
    bound = [pods.csi.publish("whole", {}), pods.csi.publish("part", {"store": "checkpoints", "path": "team"})]
    whole, part = (pods.application(Volume(at, Propagation.HOST_TO_CONTAINER, at="/data")) for at in bound)

    def tries() -> list[str]:
        return [tried(pod, directory) for pod, directory in volumes]

    def all_get_the_next_mount() -> None:
        daemon.restart_container()
        pods.wait_ready(daemon)
        wait_until(lambda: all(shows_something(pods.seen(at)) for at in bound))  # the driver has bound them anew
        assert tries() == ["", "", DEAD, DEAD]
        for pod in (this, part):
            pod.stop(0)
            pod.restart_container()
        assert tries() == ["", "", "", ""]

    volumes = ((later, in_mount), (whole, "/data/checkpoints"), (this, in_mount), (part, "/data"))
    assert tries() == ["", "", "", ""]
    daemon.stop(GRACE_SECONDS)
    assert daemon.exit_code == 0, daemon.log
    assert tries() == [NOT_PERMITTED, DEAD, DEAD, DEAD]
    assert pods.below() == []
    all_get_the_next_mount()
    pods.kill(daemon)
    assert tries() == [DEAD, DEAD, DEAD, DEAD]
    all_get_the_next_mount()
    assert pods.below() == []


def test_a_daemon_in_a_process_namespace_of_its_own_says_why_no_pod_gets_a_working_directory(pods: HoldfastPods) -> None:
    pods.daemon(host_pid=False, keeper=False)
    pod = pods.application(host_to_container(pods), socket=True)
    assert pod.run("mkdir", f"{pods.mountpoint}/work/executor_x")[1].strip().endswith(NOT_PERMITTED)
    with pods.client() as client:
        refused = [event.fields for event in client.events() if event.kind == "workdir-refused"]
    assert ["no process namespace that the daemon sees" in str(fields) for fields in refused] == [True]
    status, said = pod.run("holdfast", "workdir", "acquire", "--role", "executor", "--id", "x", "--pid", "1")
    assert (status, "run the daemon in the host's process namespace" in said) == (78, True), said


def test_a_pod_holds_a_working_directory_until_it_ends_and_its_root_is_no_operator(pods: HoldfastPods) -> None:
    pods.daemon(keeper=False)
    there = Volume(pods.mountpoint, at="/data")
    pod = pods.application(there, socket=True, HOLDFAST_MOUNT="/data")
    acquired = pod.run("holdfast", "workdir", "acquire", "--role", "executor", "--id", "x", "--pid", "1")
    assert acquired == (0, "/data/work/executor_x\n")
    with pods.client() as client:
        assert [info.holder for info in client.workdirs()] == [f"pid {pod.first_pid} (sleep)"]
        other = pods.application(there, socket=True, uid=1000, HOLDFAST_MOUNT="/data")
        assert pod.run("holdfast", "restart")[0] == NO_PERMISSION
        status, said = other.run("holdfast", "workdir", "release", "--role", "executor", "--id", "x")
        assert status == NO_PERMISSION, said
        pod.stop(0)
        assert pod.exit_code == KILLED
        wait_until(lambda: [info.holder for info in client.workdirs()] == [None])
