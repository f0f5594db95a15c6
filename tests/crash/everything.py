"""``./run python -m tests.crash.everything``: hours of everything at once, on one node with an S3 server behind a proxy.

Work: names, bytes, data, objects and RocksDB, each in a process that checks what it sees, and the demo's Spark job, whose
driver is killed again and again. Meanwhile the store is away, slow, refuses or loses answers; the cache is too small and
evicts; commands prefetch, verify, evict, flush and reload. In the first part the daemon is also killed and replaced, and
restarted between rounds; in the second one daemon lives through all of it, and is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.mount.test_objects import objects
from tests.support.daemons.aftermath import assert_in_order
from tests.support.daemons.node import Node
from tests.support.load.everything import Disturbances, sample
from tests.support.load.kills import KillTest
from tests.support.spark.repeated_job import RepeatedJob
from tests.support.stores.fault_proxy import FaultProxy
from tests.support.stores.s3 import Versitygw, serving_versitygw

_CACHE_BYTES = 4 << 20
_PAUSE_SECONDS = 4.0
_SAMPLE_SECONDS = 10.0
_GROWTH = 1.1
_MARGINS = {"own_bytes": 4 << 20, "resident_bytes": 8 << 20, "threads": 2, "descriptors": 10}


def main() -> None:
    """Run, print what was done and found, end with 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="./run python -m tests.crash.everything", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=10, help="after each, all is checked")
    parser.add_argument("--long-lived", type=int, default=4, help="rounds of one daemon, not killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", default="/var/tmp", help="on the disk that is to be used")
    parser.add_argument("--output", type=Path, default=Path("everything.jsonl"), help="for the samples of memory")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-everything-", dir=options.directory))
    with serving_versitygw() as server, FaultProxy(server.endpoint) as proxy:
        place = server.below("everything").through(proxy.endpoint)
        node = Node(
            directory / "node",
            f"{place.url}/checkpoints",
            f"{place.url}/blobs",
            cache__max_bytes=_CACHE_BYTES,
            log__level="info",
        )
        node.environment.update(place.environment)
        node.supervised = True
        try:
            run = Run(node, server, proxy, directory, options)
            run.all_rounds()
            node.stop()
        finally:
            node.clean_up()
    shutil.rmtree(directory)
    _report(run)


@dataclass
class Run:
    """The rounds, and what was measured in them."""

    node: Node
    server: Versitygw
    proxy: FaultProxy
    directory: Path
    options: argparse.Namespace
    samples: list[dict[str, float]] = field(default_factory=list)
    rounds_of_work: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disturbances = Disturbances(self.node, self.proxy, self.options.seed)
        self.job = RepeatedJob(self.directory / "spark", self.node)
        self._began = time.monotonic()
        self._pauses = random.Random(self.options.seed)

    def all_rounds(self) -> None:
        """Do every round; the node is up at the end."""
        first_long_lived = self.options.rounds - self.options.long_lived
        for number in range(self.options.rounds):
            if number <= first_long_lived:
                self.node.start()
            self._round(number, deadly=number < first_long_lived)
            if number < first_long_lived:
                self.node.stop()

    def _round(self, number: int, *, deadly: bool) -> None:
        seed = self.options.seed + 10 * number
        end = self._began + (number + 1) * self.options.minutes * 60 / self.options.rounds
        with KillTest(self.node, seed, suffix=f"-{number}") as test:
            with self.job.running():
                while time.monotonic() < end:
                    test.watch(self._pauses.uniform(0.0, _PAUSE_SECONDS))
                    self.job.check()
                    self.disturbances.next(deadly=deadly)
                    self._sample(number, deadly=deadly)
                self.disturbances.end()
            for worker, done in zip(test.workers, test.stop(lambda _: None), strict=True):
                self.rounds_of_work[worker.kind] = self.rounds_of_work.get(worker.kind, 0) + done.rounds
        root = self.server.directory / "everything/checkpoints"
        assert_in_order(self.node, partial(objects, root))
        assert self.node.status().counters["corrupt_dropped"] == 0
        self._say(f"round {number + 1} of {self.options.rounds} is in order; {self.job.answers} answers of Spark are right")
        for path in (*self.node.work.iterdir(), *self.node.checkpoints.glob("objects-*")):
            if path.name.endswith(f"-{number}"):
                shutil.rmtree(path)

    def _sample(self, number: int, *, deadly: bool) -> None:
        now = time.monotonic() - self._began
        if deadly or (self.samples and now - self.samples[-1]["seconds"] < _SAMPLE_SECONDS):
            return
        self.samples.append({"seconds": round(now), "round": number, **sample(self.node.pid)})
        with self.options.output.open("a") as file:
            file.write(json.dumps(self.samples[-1]) + "\n")

    def _say(self, text: str) -> None:
        print(f"{(time.monotonic() - self._began) / 60:6.1f} min  {text}", flush=True)


def _report(run: Run) -> None:
    """Print the counts, and compare what the long-lived daemon used in the second and in the last quarter of its life."""
    print("done: " + ", ".join(f"{count} × {kind}" for kind, count in sorted(run.disturbances.done.items())))
    print("rounds of work: " + ", ".join(f"{kind} {count:,}" for kind, count in run.rounds_of_work.items()))
    print(f"Spark: {run.job.starts} drivers, {run.job.batches} batches, {run.job.answers} answers, all right")
    quarter = len(run.samples) // 4
    flat = True
    for name, margin in _MARGINS.items():
        before = statistics.median(each[name] for each in run.samples[quarter : 2 * quarter])
        after = statistics.median(each[name] for each in run.samples[3 * quarter :])
        print(f"{name}: {before:,.0f} in the second quarter of its life, {after:,.0f} in the last")
        flat = flat and after <= before * _GROWTH + margin
    print("flat" if flat else "it has grown")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
