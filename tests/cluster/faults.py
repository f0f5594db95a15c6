"""What befalls a cluster while the demo's job runs on it: each fault as a step that strikes and one that mends.

The driver runs on ``home``; ``victim`` is another node, with an executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster import disks
from tests.cluster.cluster import Cluster
from tests.cluster.node import ClusterNode
from tests.support.daemons.node import wait_until

Step = Callable[["Scene"], None]


@dataclass
class Scene:
    """A cluster with two nodes that matter now."""

    cluster: Cluster
    home: ClusterNode
    victim: ClusterNode

    @property
    def third(self) -> ClusterNode:
        """Another node that is neither of the two."""
        return next(node for node in reversed(self.cluster.nodes) if node not in (self.home, self.victim))

    def fail_over(self) -> None:
        """The driver is to run on the other one of the two."""
        self.home, self.victim = self.victim, self.home


@dataclass(frozen=True)
class Fault:
    """``strike`` comes in the middle of a batch, ``mend`` once the store knows it or the next batch is done.

    ``kills_driver``: the driver does not live on, and is started again on ``home`` after the strike.
    ``mends_at_once``: the job waits for the mending, and not the other way round.
    """

    name: str
    strike: Step
    mend: Step
    kills_driver: bool = False
    mends_at_once: bool = False


def _nothing(scene: Scene) -> None:
    """There is nothing to do."""


def _kill_executors(scene: Scene) -> None:
    scene.victim.kill_executors()


def _kill_worker(scene: Scene) -> None:
    scene.victim.kill_worker()


def _start_worker(scene: Scene) -> None:
    scene.victim.start_worker()
    scene.victim.wait_for_worker()


def _kill_daemon(scene: Scene) -> None:
    scene.victim.kill_daemon()


def _kill_node(scene: Scene) -> None:
    scene.victim.kill()


def _lose_node(scene: Scene) -> None:
    scene.victim.kill()
    scene.victim.lose_disk()


def _start_node(scene: Scene) -> None:
    scene.victim.start()
    scene.victim.wait_for_worker()


def _cut_off(scene: Scene) -> None:
    scene.victim.link.cut()
    with scene.victim.client() as client:
        wait_until(lambda: not all(store.up for store in client.status().remotes.values()))


def _reconnect(scene: Scene) -> None:
    scene.victim.link.open()


def _fill_disk(scene: Scene) -> None:
    disks.fill(scene.victim.seen_from_outside(scene.victim.disk.path))


def _clear_disk(scene: Scene) -> None:
    disks.clear(scene.victim.seen_from_outside(scene.victim.disk.path))


def _lose_two(scene: Scene) -> None:
    for node in (scene.victim, scene.third):
        node.kill()
    for node in (scene.victim, scene.third):
        node.lose_disk()


def _start_two(scene: Scene) -> None:
    for node in (scene.victim, scene.third):
        node.start()
    for node in (scene.victim, scene.third):
        node.wait_for_worker()


def _cut_all_off(scene: Scene) -> None:
    for node in scene.cluster.nodes:
        node.link.cut()
    for node in scene.cluster.nodes:
        with node.client() as client:
            wait_until(lambda: not all(store.up for store in client.status().remotes.values()))


def _reconnect_all(scene: Scene) -> None:
    for node in scene.cluster.nodes:
        node.link.open()


def _pull_disk_out(scene: Scene) -> None:
    disks.pull_out(scene.victim.seen_from_outside(scene.victim.disk.path))


def _start_on_another_disk(scene: Scene) -> None:
    _lose_node(scene)
    _start_node(scene)


def _lose_home(scene: Scene) -> None:
    scene.fail_over()
    scene.victim.kill()
    scene.victim.lose_disk()


EXECUTOR_KILLED = Fault("executor killed", _kill_executors, _nothing)
DAEMON_KILLED = Fault("daemon killed", _kill_daemon, _nothing)
WORKER_KILLED = Fault("worker killed", _kill_worker, _start_worker)
CUT_OFF = Fault("a node cut off from the store", _cut_off, _reconnect, mends_at_once=True)
DISK_FULL = Fault("a node's disk filled up", _fill_disk, _clear_disk)
DISK_PULLED_OUT = Fault("a node's disk pulled out", _pull_disk_out, _start_on_another_disk)
NODE_DOWN = Fault("a node without power", _kill_node, _start_node)
NODE_LOST = Fault("a node lost with its disk", _lose_node, _start_node)
TWO_LOST = Fault("two nodes lost with their disks at once", _lose_two, _start_two)
STORE_AWAY = Fault("the store away from all nodes", _cut_all_off, _reconnect_all, mends_at_once=True)
DRIVER_KILLED = Fault("driver killed, back on its node", _nothing, _nothing, kills_driver=True)
DRIVER_MOVES = Fault("driver killed, on another node", Scene.fail_over, _nothing, kills_driver=True)
HOME_LOST = Fault("the driver's node lost with its disk", _lose_home, _start_node, kills_driver=True)

ALL = (
    DRIVER_KILLED,
    EXECUTOR_KILLED,
    DAEMON_KILLED,
    WORKER_KILLED,
    CUT_OFF,
    DISK_FULL,
    DISK_PULLED_OUT,
    NODE_DOWN,
    NODE_LOST,
    DRIVER_MOVES,
    HOME_LOST,
)
WITH_STANDBYS = (EXECUTOR_KILLED, NODE_LOST, TWO_LOST, STORE_AWAY, DISK_FULL)
"""Those that standby copies are about, or that befall them."""
