"""kubectl as tests use it: objects in and out as Python's dictionaries."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.daemons.node import wait_until
from tests.support.processes.children import DIES_WITH_US

Object = Mapping[str, Any]
_PAUSE_SECONDS = 0.2
"""Each question is a process, which would take time from what is waited for."""


class KubectlError(Exception):
    """kubectl refused; the message has its words."""


class Kubectl:
    """``program`` with a file of accesses, in one namespace of Kubernetes."""

    def __init__(self, program: Path, access: Path, namespace: str = "default") -> None:
        self._program, self._access, self._namespace = program, access, namespace

    def within(self, namespace: str) -> Kubectl:
        """Return the same for another namespace."""
        return Kubectl(self._program, self._access, namespace)

    def make_namespace(self, name: str, profile: str) -> Kubectl:
        """Make a namespace that admits pods of a profile of Kubernetes', and return the same for that."""
        labels = {"pod-security.kubernetes.io/enforce": profile}
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
        within = self.within(name)
        wait_for_kubernetes(lambda: within.answers("get", "serviceaccount", "default"))
        return within

    def run(self, *words: str, given: str = "") -> str:
        """Run a command; return what it prints. Raises ``KubectlError``."""
        done = subprocess.run([*self._command(), *words], input=given, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def follow(self, pod: str, log: Path) -> subprocess.Popen[bytes]:
        """Write what a pod says to a file, as it says it. The process that does so ends with the pod's container."""
        command = [*self._command(), "logs", "--follow", pod]
        with log.open("wb") as file:
            return subprocess.Popen([*DIES_WITH_US, *command], stdout=file, stderr=file)

    def answers(self, *words: str) -> bool:
        """Say whether a command succeeds."""
        try:
            self.run(*words)
        except KubectlError:
            return False
        return True

    def _command(self) -> list[str]:
        return [str(self._program), f"--kubeconfig={self._access}", f"--namespace={self._namespace}"]

    def get(self, *words: str) -> Any:
        """Return an object, or a list of them."""
        return json.loads(self.run("get", *words, "--output=json"))

    def apply(self, objects: Iterable[Object]) -> None:
        """Make objects, or change them."""
        self.run("apply", "--filename=-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def delete(self, kind: str, *names: str, wait: bool = True) -> None:
        """Delete objects; return when they are gone, or at once."""
        self.run("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}")

    def pods(self, selector: str) -> list[Any]:
        """Return the pods with these labels that are not being deleted."""
        found: list[Any] = self.get("pods", f"--selector={selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def wait_ready(self, selector: str, but_not: Iterable[str] = (), count: int = 1, seconds: float = 300.0) -> list[Any]:
        """Wait until so many pods are ready, others than those with the uids ``but_not``; return them."""
        ready: list[Any] = []

        def are_ready() -> bool:
            ready[:] = [pod for pod in self.pods(selector) if pod["metadata"]["uid"] not in but_not and is_ready(pod)]
            return len(ready) == count

        try:
            wait_for_kubernetes(are_ready, seconds)
        except AssertionError as problem:
            problem.add_note(self.run("get", "pods", "--all-namespaces", "--output=wide"))
            problem.add_note(self.run("get", "events", "--all-namespaces")[-3000:])
            raise
        return ready


def wait_for_kubernetes(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Ask again, some times a second, until ``condition`` holds; fail after so many seconds."""

    def holds() -> bool:
        if condition():
            return True
        select.select([], [], [], _PAUSE_SECONDS)
        return False

    wait_until(holds, seconds)


def is_ready(pod: Object) -> bool:
    """Say whether a pod is ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
