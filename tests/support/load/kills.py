"""Many SIGKILLs of a supervised daemon at random moments, while processes work on its mount and check what they see."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.daemons.node import Node, wait_until

_SECONDS = 60.0
_EARLY = 0.2  # how many are killed while they start


@dataclass(frozen=True)
class Done:
    """What a worker did: rounds, and in seconds the median of those that had to wait for a daemon, and the longest."""

    rounds: int
    waited: float
    longest: float


class Worker:
    """One process of ``tests.support.load.steady_load``."""

    def __init__(self, kind: str, directory: Path, seed: int) -> None:
        self.kind = kind
        directory.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.support.load.steady_load", kind, str(directory), str(seed)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    @property
    def output(self) -> IO[str]:
        """What it says; it ends with the process."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait_ready(self) -> None:
        """Return when it is at work."""
        assert select.select([self.output], [], [], _SECONDS)[0], f"{self.kind} says nothing"
        assert self.output.readline() == "ready\n", self._process.communicate()[1]

    def complaint(self) -> str:
        """Return why it has failed; empty while it works."""
        return "" if self._process.poll() is None else f"{self.kind}: {self._process.communicate()[1]}"

    def stop(self) -> Done:
        """Let it end; return what it did."""
        output, errors = self._process.communicate(timeout=_SECONDS)
        assert self._process.returncode == 0, f"{self.kind}: {errors}"
        rounds, waited, longest = output.split()
        return Done(int(rounds), float(waited), float(longest))

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


class KillTest:
    """Workers of all kinds on ``node``, which is started already, and moments to kill its daemon at.

    A daemon lives for ``longest_life_seconds`` at most once it serves: Spark needs some to get on. ``suffix`` ends the names
    of the workers' directories, which are new.

    Used in a ``with`` statement; what still runs at its end is killed.
    """

    def __init__(self, node: Node, seed: int, longest_life_seconds: float = 0.5, suffix: str = "") -> None:
        self._node = node
        self._longest_life_seconds = longest_life_seconds
        self._moments = random.Random(seed)
        self._ends = ExitStack()
        self.workers = [
            Worker("names", node.work / f"names{suffix}", seed),
            Worker("names", node.work / f"more{suffix}", seed + 1),
            Worker("bytes", node.work / f"bytes{suffix}", seed + 2),
            Worker("data", node.work / f"data{suffix}", seed + 3),
            Worker("objects", node.checkpoints / f"objects{suffix}", seed + 4),
            Worker("rocksdb", node.work / f"worker_1{suffix}", seed),
        ]

    def __enter__(self) -> Self:
        for worker in self.workers:
            self._ends.callback(worker.kill)
        for worker in self.workers:
            worker.wait_ready()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.close()

    def kill(self) -> None:
        """Kill the daemon at some moment from now on: most have begun to serve by then, some have not."""
        if self._moments.random() > _EARLY:
            os.statvfs(self._node.mountpoint)  # returns once a daemon serves requests
        self.watch(self._moments.uniform(0.0, self._longest_life_seconds))
        self._node.kill_daemon()

    def watch(self, seconds: float) -> None:
        """Let the workers work for so long, and fail as soon as one of them complains."""
        select.select([worker.output for worker in self.workers], [], [], seconds)
        complaints = [complaint for worker in self.workers if (complaint := worker.complaint())]
        assert not complaints, "\n".join(complaints)

    def stop(self, tell: Callable[[str], None]) -> list[Done]:
        """Let all workers end, each after it has checked everything; return what they did, in their order."""
        results = []
        for worker in self.workers:
            done = worker.stop()
            results.append(done)
            tell(
                f"{worker.kind}: {done.rounds} rounds; those that waited took {done.waited:.2f} s (median); "
                f"the longest {done.longest:.2f} s"
            )
        wait_until(self._node.answers)
        return results
