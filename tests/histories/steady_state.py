"""``./run python -m tests.histories.steady_state``: what standby copies cost a job that nothing befalls.

The demo's job runs on some nodes, in blocks of batches one after the other, by turns with standby copies and without; a
block with them begins and ends when all copies are complete. Prints for each block the median of its batches and, with
copies, the bytes that standbys have fetched beside those that the nodes have sent. Exits with 1 if the median over all
batches is more than 2 % above that without copies, or standbys have fetched more than 1.1 of what was sent. All nodes share
one machine here, so the standbys take processor time from the executors, as they would not elsewhere. Only on a quiet
machine do the times count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.config.units import ByteSize
from holdfast_spark.demo.driver import Batch, Driver
from tests.cluster.cluster import Cluster
from tests.cluster.job import ClusterJob
from tests.cluster.placed import are_covered, fetched_by_standbys, sent
from tests.cluster.settings import Settings
from tests.histories.line_options import add_line_options
from tests.support.daemons.node import wait_until

_FILES = 480
_FOR_EVER = 10**6
_MOST_RATIO, _MOST_FETCHED = 1.02, 1.1
_PATIENCE_SECONDS = 600.0
_FASTER = (("holdings.interval_seconds", "0.5"), ("holdings.refresh_seconds", "1"))


@dataclass(frozen=True)
class Block:
    """Batches one after the other, without the first one. Bytes are 0 without standby copies."""

    milliseconds: list[int]
    fetched_bytes: int = 0
    sent_bytes: int = 0


class Job:
    """The demo's job on a cluster, and its driver, which runs in this block's lifetime."""

    def __init__(self, cluster: Cluster, job: ClusterJob, driver: Driver, standby_seconds: float) -> None:
        self._cluster = cluster
        self._job = job
        self._driver = driver
        self._standby_seconds = standby_seconds

    @classmethod
    @contextmanager
    def running(cls, cluster: Cluster, standby_seconds: float) -> Iterator[Job]:
        """Start the job on the first node; it is killed at the end."""
        job = ClusterJob(cluster, "flights", _FILES)
        driver = job.driver(cluster.nodes[0], _FOR_EVER)
        try:
            yield cls(cluster, job, driver, standby_seconds)
        finally:
            driver.kill()

    def run(self, batches: int) -> list[int]:
        """Run so many batches; return their times in milliseconds."""
        done: list[Batch] = []
        self._driver.run_until_done(self._job.arrive(batches), done.append)
        return [batch.milliseconds for batch in done]

    def without_copies(self, batches: int) -> Block:
        """Run a block without standby copies."""
        self._keep_copies(0)
        return Block(self.run(batches)[1:])

    def with_copies(self, batches: int) -> Block:
        """Run a block with a standby copy of each partition."""
        self._keep_copies(1)
        self._wait_until_covered()
        fetched_bytes, sent_bytes = fetched_by_standbys(self._cluster), sent(self._cluster)
        milliseconds = self.run(batches)[1:]
        self._wait_until_covered()
        fetched_bytes, sent_bytes = fetched_by_standbys(self._cluster) - fetched_bytes, sent(self._cluster) - sent_bytes
        return Block(milliseconds, fetched_bytes, sent_bytes)

    def _keep_copies(self, copies: int) -> None:
        options = (
            ("stores.checkpoints.standbys", str(copies)),
            ("stores.checkpoints.standby_seconds", str(self._standby_seconds)),
        )
        for node in self._cluster.nodes:
            node.set_options((*_FASTER, *options))

    def _wait_until_covered(self) -> None:
        partitions = self._cluster.settings.partitions
        wait_until(lambda: are_covered(self._cluster, self._job.name, partitions), seconds=_PATIENCE_SECONDS)


def main() -> int:
    """Run the blocks; return the exit status."""
    options = _parser().parse_args()
    settings = Settings(
        nodes=options.nodes,
        partitions=options.partitions,
        away_seconds=options.delay / 2000,
        bytes_per_second=options.bandwidth * 125_000,
        options=_FASTER,
    )
    until = time.monotonic() + options.minutes * 60
    alone: list[Block] = []
    copied: list[Block] = []
    with (
        Cluster.running(options.directory, settings) as cluster,
        Job.running(cluster, options.standby_seconds) as job,
    ):
        job.run(options.warm_up)
        most = (_FILES - options.warm_up) // options.batches - 2
        while time.monotonic() < until and len(alone) + len(copied) <= most:
            for is_copied in (False, True) if len(alone) % 2 == 0 else (True, False):
                block = job.with_copies(options.batches) if is_copied else job.without_copies(options.batches)
                (copied if is_copied else alone).append(block)
                print(_row(block, is_copied=is_copied), flush=True)
    return _judged(alone, copied)


def _row(block: Block, *, is_copied: bool) -> str:
    median = f"{statistics.median(block.milliseconds):.0f} ms"
    if not is_copied:
        return f"without standby copies: {median}"
    moved = f"{ByteSize(block.fetched_bytes)} fetched by standbys, {ByteSize(block.sent_bytes)} sent by all nodes"
    return f"with a standby copy: {median}, {moved}"


def _judged(alone: list[Block], copied: list[Block]) -> int:
    """Print the outcome; return the exit status."""
    without, with_copies = (
        statistics.median(each for block in blocks for each in block.milliseconds) for blocks in (alone, copied)
    )
    part = sum(block.fetched_bytes for block in copied) / sum(block.sent_bytes for block in copied)
    print(
        f"median of a batch: {without:.0f} ms without, {with_copies:.0f} ms with copies ({with_copies / without:.3f}); "
        f"standbys fetched {part:.3f} of what was sent",
        flush=True,
    )
    return 0 if with_copies / without <= _MOST_RATIO and part <= _MOST_FETCHED else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run python -m tests.histories.steady_state", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--batches", type=int, default=20, help="in a block (default 20)")
    parser.add_argument("--warm-up", type=int, default=60, metavar="BATCHES", help="before the first block (default 60)")
    parser.add_argument("--minutes", type=float, default=8.0, help="in which new blocks are begun (default 8)")
    parser.add_argument("--standby-seconds", type=float, default=15.0, help="stores.NAME.standby_seconds (default 15)")
    add_line_options(parser, bandwidth=1000, delay=30.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
