"""Pods that work in a node's mount all the time, each of which has it by another kind of volume."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.support.daemons.node import wait_until
from tests.support.kubernetes.application_pods import PodVolume, application_pod, claimed
from tests.support.kubernetes.cluster import KubernetesCluster
from tests.support.kubernetes.release import MOUNTPOINT
from tests.support.load.watching_pod import Watched, watching

_PATIENCE_SECONDS = 600.0
_DATA = Path("/data")
_TEAM = {"store": "checkpoints", "path": "team"}
_INLINE = {"csi-store": _TEAM, "csi-workdir": {"workdir": "executor/watching", "slots": "true"}}
_CLAIMED = claimed("team", {**_TEAM, "path": "claimed"})


class WatchingPods:
    """Pods on the first node of ``cluster``; ``name`` tells them from those of others."""

    def __init__(self, cluster: KubernetesCluster, name: str) -> None:
        self._cluster = cluster
        self._node = cluster.nodes[0]
        self._name = name
        self._books: dict[str, Watched] = {}
        self._seen: dict[str, int] = {}

    def start_on_volumes(self) -> None:
        """Make those that have the mount by the driver: all of it, a directory of a store, a claim, a working directory."""
        self._cluster.kubectl.apply(_CLAIMED)
        self._start("csi-all", PodVolume.of_driver("all", MOUNTPOINT, {}), MOUNTPOINT / "checkpoints")
        self._start("csi-claim", PodVolume.of_claim("part", _DATA, "team"), _DATA)
        for kind, attributes in _INLINE.items():
            self._start(kind, PodVolume.of_driver("part", _DATA, attributes), _DATA)

    def start_on_paths(self) -> None:
        """Make those that have it by a path of the node: the mountpoint, and the directory above it."""
        above = PodVolume.of_node("above", MOUNTPOINT.parent, mountPropagation="HostToContainer")
        for kind, volume in {"path-above": above, "path": PodVolume.of_node("mount", MOUNTPOINT)}.items():
            directory = MOUNTPOINT / "checkpoints" / f"{self._name}-{kind}"
            self._node.does("mkdir", str(directory))
            self._start(kind, volume, directory)

    def wait_until_at_work(self) -> None:
        """Wait until all work."""
        for book in self._books.values():
            wait_until(partial(_has_done, book, 2, 0), _PATIENCE_SECONDS)
        self._seen = {name: len(book.lines) for name, book in self._books.items()}

    def longest_seconds(self) -> float:
        """Wait until all have gone on; return the longest round since this was called before, or they were at work."""
        for name, book in self._books.items():
            wait_until(partial(_has_done, book, 2, len(book.lines)), _PATIENCE_SECONDS)
            status = self._cluster.kubectl.get("pod", name)["status"]
            restarts = sum(container["restartCount"] for container in status["containerStatuses"])
            assert (status["phase"], restarts) == ("Running", 0), status
        longest = max(book.longest_seconds(self._seen[name]) for name, book in self._books.items())
        self._seen = {name: len(book.lines) for name, book in self._books.items()}
        return longest

    @property
    def bound_by_the_driver(self) -> int:
        """The number of those whose volume the driver has bound."""
        return sum(name.startswith(f"{self._name}-csi-") for name in self._books)

    def errors(self) -> list[str]:
        """Return the errors of all, each kind once."""
        return sorted(f"{name}: {error}" for name, book in self._books.items() for error in book.errors)

    def fail(self) -> None:
        """Wait until all have had an error."""
        for book in self._books.values():
            wait_until(lambda book=book: bool(book.errors), _PATIENCE_SECONDS)  # type: ignore[misc]

    def end(self, *, wait: bool = True) -> None:
        """End all; return when Kubernetes has taken their volumes away, or at once."""
        self._cluster.kubectl.delete("pod", *self._books, wait=wait)

    def are_gone(self) -> bool:
        """Say whether Kubernetes has taken all away."""
        return not self._cluster.kubectl.run("get", "pods", *self._books, "--ignore-not-found", "--output=name")

    def _start(self, kind: str, volume: PodVolume, directory: Path) -> None:
        name = f"{self._name}-{kind}"
        book = self._cluster.shared / name
        books = PodVolume.of_node("books", self._cluster.shared)
        pod = application_pod(name, watching(directory, book), [volume, books], node=self._node.name)
        self._cluster.kubectl.apply([pod])
        self._books[name], self._seen[name] = Watched(book), 0


def _has_done(book: Watched, rounds: int, after: int) -> bool:
    return sum(line.startswith("ok ") for line in book.lines[after:]) >= rounds
