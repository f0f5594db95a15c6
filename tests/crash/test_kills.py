"""Many SIGKILLs at random moments, under load from several processes: nobody fails, and nothing is lost."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import NodeFactory
from tests.mount.test_objects import objects
from tests.support.node import Node, wait_until

KILLS = int(os.environ.get("HOLDFAST_TEST_KILLS", "50"))
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "1"))
_SECONDS = 60.0
_LONGEST_ALIVE_SECONDS = 0.5
_EARLY = 0.2  # how many are killed while they start


@dataclass
class Worker:
    """One process of ``tests.support.steady_load``."""

    kind: str
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, kind: str, directory: Path, seed: int) -> Worker:
        directory.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.support.steady_load", kind, str(directory), str(seed)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return cls(kind, process)

    @property
    def output(self) -> IO[str]:
        """What it says; it ends with the process."""
        assert self.process.stdout is not None
        return self.process.stdout

    def line(self) -> str:
        assert select.select([self.output], [], [], _SECONDS)[0], f"{self.kind} says nothing"
        return self.output.readline()

    def stop(self) -> tuple[int, float]:
        """Let it end; return how many rounds it did, and the median of those that had to wait for a daemon, in seconds."""
        output, errors = self.process.communicate(timeout=_SECONDS)
        assert self.process.returncode == 0, f"{self.kind}: {errors}"
        rounds, waited = output.split()
        return int(rounds), float(waited)

    def fails(self) -> bool:
        return self.process.poll() is not None


@pytest.fixture
def load(request: pytest.FixtureRequest) -> Callable[[str, Path, int], Worker]:
    def start(kind: str, directory: Path, seed: int) -> Worker:
        worker = Worker.start(kind, directory, seed)
        request.addfinalizer(worker.process.kill)
        assert worker.line() == "ready\n"
        return worker

    return start


@pytest.mark.timeout(1200)  # fifty starts of a daemon, on a machine that has four more processes to run
def test_nobody_notices_fifty_kills(
    make_node: NodeFactory, load: Callable[[str, Path, int], Worker], remote_files: Path
) -> None:
    node = make_node()
    node.supervised = True
    node.start()
    moments = random.Random(SEED)
    workers = [
        load("names", node.work / "names", SEED),
        load("names", node.work / "more", SEED + 1),
        load("data", node.work / "data", SEED + 2),
        load("objects", node.checkpoints / "objects", SEED + 3),
    ]
    for _ in range(KILLS):
        if moments.random() > _EARLY:
            os.statvfs(node.mountpoint)  # returns once a daemon serves requests
        ends = [worker.output for worker in workers]
        select.select(ends, [], [], moments.uniform(0.0, _LONGEST_ALIVE_SECONDS))
        assert not [worker.kind for worker in workers if worker.fails()], complaints(workers)
        node.kill_daemon()
    for worker in workers:
        rounds, waited = worker.stop()
        print(f"{worker.kind}: {rounds} rounds; those that waited took {waited:.2f} s (median)")
        assert rounds > KILLS
    wait_until(node.answers)
    check(node, remote_files)


def complaints(workers: list[Worker]) -> str:
    return "\n".join(worker.process.communicate()[1] for worker in workers if worker.fails())


def check(node: Node, remote: Path) -> None:
    """The index agrees with the tree and the store, and nothing is left over."""
    with node.client() as client:
        assert [step.problem for step in client.verify(None) if step.problem] == []
    wait_until(lambda: node.status().unsent == [])
    here = {
        str(path.relative_to(node.checkpoints)): path.read_bytes()
        for path in node.checkpoints.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    wait_until(lambda: objects(remote) == here)
    wait_until(lambda: not any(os.listdir(node.store / name) for name in ("fetching", "orphans")))
    node.stop()
