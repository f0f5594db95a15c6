"""A real history of Spark's: batches, kills, garbage, a sweep by the daemon, restarts from every batch that is retained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.control.messages import PlanInfo, SweepRequest
from holdfast_spark.demo.driver import Batch
from tests.support.checkpoints.roots import Root
from tests.support.daemons.node import Node, wait_until
from tests.support.spark import garbage as spark_garbage
from tests.support.spark.flights_job import Job
from tests.support.spark.leftovers import leftovers
from tests.support.spark.restarts import commits
from tests.support.spark.restore import Checkpoint, Restorable

QUERY = "flights"
_FLUSH_SECONDS = 60.0


@dataclass(frozen=True)
class Extent:
    """How much there is below a directory."""

    files: int
    size_bytes: int

    @classmethod
    def of(cls, directory: Path) -> Extent:
        sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
        return cls(len(sizes), sum(sizes))


@dataclass(frozen=True)
class Swept:
    """What a sweep did to the query: ``leftovers`` it ought to have taken too, what is ``lost`` can't be restored now."""

    plan: PlanInfo
    planted: int
    before: Extent
    after: Extent
    leftovers: set[bytes]
    lost: set[Restorable]
    planned_again: int


@dataclass(frozen=True)
class Restart:
    """What came of a retained batch: how many flights its state has counted, and whether the batch after it, run again from
    there, came to its old result (None: it was not run).
    """

    commit: int
    counted: int
    equal: bool | None


class History:
    """The flights query on one node after the other. ``remote`` is the directory that is the store of checkpoints."""

    def __init__(self, job: Job, remote: Path, directory: Path, min_batches: int) -> None:
        self.job = job
        self.location = remote / QUERY
        self.kept = directory / "as-swept"
        self._scratch = directory / "restarts"
        self._min_batches = min_batches

    def play(self, node: Node, kills: Iterable[int], tell: Callable[[Batch], None] | None = None) -> None:
        """Let files arrive and batches run, and SIGKILL driver and JVM in the middle of each of the batches ``kills``.

        Every other kill comes when some of the batch's state has been written.
        """
        arrived = 0
        for number, batch in enumerate(kills):
            self.job.arrive(arrived, batch)
            arrived = batch + 1
            wait = (lambda version: lambda: self._wait_state(version))(batch + 1) if number % 2 == 0 else None
            self.job.run(node, batch + 1, kill_in=batch, before_kill=wait, tell=tell)

    def sweep(self, node: Node) -> Swept:
        """Plant garbage, let the daemon plan and execute a sweep, and keep a copy of what it has left."""
        with node.client() as client:
            for _ in client.flush(None, _FLUSH_SECONDS):  # what Spark has deleted goes now, not while the store is read
                pass
        retained = commits(self.location)
        oldest = min(retained[0], retained[-1] - self._min_batches)
        planted = spark_garbage.plant(self.location, max(oldest, 0))
        root = Root.of_directory(self.location.parent)
        restorable, before = Checkpoint(root).restorable(), Extent.of(self.location)
        with node.client() as client:
            request = SweepRequest(
                path=str(node.checkpoints), grace_seconds=0, abandoned_seconds=0, min_batches_to_retain=self._min_batches
            )
            plan = client.plan_sweep(request)
            for _ in client.execute(plan.id):
                pass
            plan = client.plan(plan.id)
            again = client.plan_sweep(request)
        left = [path for path in planted if path.exists()]
        assert not left, f"{left[0]} was planted, and is left; kept: {plan.kept}"
        shutil.copytree(self.location, self.kept, copy_function=os.link)
        root = Root.of_directory(self.location.parent)
        return Swept(
            plan,
            len(planted),
            before,
            Extent.of(self.location),
            leftovers(root, QUERY.encode(), self._min_batches),
            restorable - Checkpoint(root).restorable(),
            again.count,
        )

    def go_on(self, node: Node, until: int) -> None:
        """Let the query end batch ``until`` on a node that has seen none of this."""
        self.job.arrive(0, until)
        self.job.run(node, until)

    def retained(self) -> list[int]:
        """Return the batches that the sweep has left."""
        return commits(self.kept)

    def restarts(self, only: Iterable[int] = ()) -> Iterator[Restart]:
        """Read the state of every commit that the sweep has left; restart from each, or from those that are named.

        The batch after the last of them has to have run.
        """
        command = [sys.executable, "-m", "tests.support.spark.restarts", f"--checkpoint={self.kept}"]
        command += [f"--input={self.job.input}", f"--output={self.job.output}", f"--scratch={self._scratch}"]
        command += [f"--conf={key}={value}" for key, value in self.job.settings.items()]
        command += ["--restart", *map(str, only)] if only else []
        with (
            self.job.log.open("ab") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            assert process.stdout is not None
            for line in process.stdout:
                yield Restart(**json.loads(line))
        assert process.returncode == 0, self.job.log.read_text(errors="replace")[-3000:]

    def _wait_state(self, version: int) -> None:
        wait_until(lambda: any(self.location.glob(f"state/0/*/{version}[._]*")))
