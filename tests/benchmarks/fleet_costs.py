"""The cost of reports and questions: ``python -m tests.benchmarks.fleet_costs [--measure NODES]``.

For fleets of 40, 400 and 4,000 nodes with 20,000 partitions and standby copies: requests and bytes an hour by arithmetic and
by simulation with the daemon's own code over a store in memory. Beside it what it would be if each node read all reports.
``--measure`` runs that many nodes against a real S3 server, with minutes of fifteen seconds: run it in a network namespace
of its own, as it counts what goes through the loopback.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import trio
import trio.testing

from holdfast.config import HoldingsSection
from holdfast.holdings.report import Standing, encoded
from holdfast.holdings.ring import SPAN
from holdfast.remote.urls import open_store
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess
from tests.support.load.reporting_nodes import LISTED_BYTES, NAMES_A_PAGE, ZONE, ReportingNode, Shelf, without_threads
from tests.support.stores.s3 import serving_versitygw

PARTITIONS = 20_000
FLEETS = (40, 400, 4000)
DOLLARS = {"PUT": 5e-6, "LIST": 5e-6, "GET": 4e-7}
"""The price of a request at the list prices of S3 in its first region."""
_HOURS_A_MONTH = 730
_SAMPLE = 20
_WARM_UP_SECONDS, _HOUR_SECONDS = 1800, 3600
_MEASURED_REFRESH_SECONDS = 15.0


class Cost(NamedTuple):
    """The cost of one node in an hour: requests and bytes by kind (PUT, LIST, GET). Bytes are of bodies alone."""

    requests: Mapping[str, float]
    size_bytes: Mapping[str, float]

    def line(self, nodes: int) -> str:
        """Return it as text, with that of the whole fleet."""
        each = ", ".join(f"{kind} {self.requests.get(kind, 0):,.1f}" for kind in DOLLARS)
        total, size = sum(self.requests.values()), sum(self.size_bytes.values())
        dollars = sum(DOLLARS[kind] * count for kind, count in self.requests.items()) * _HOURS_A_MONTH
        return (
            f"{each} a node and hour, {size / 1e6:,.2f} MB; "
            f"all: {nodes * total:,.0f} requests, {nodes * size / 1e9:,.2f} GB; "
            f"${dollars:,.3f} a node and month, ${nodes * dollars:,.0f} all"
        )


def held_by(nodes: int, number: int) -> list[int]:
    """Return the partitions of a node: those that it works with, and as many that it keeps standby copies of."""
    return [*range(number, PARTITIONS, nodes), *range((number + 1) % nodes, PARTITIONS, nodes)]


def report_bytes(nodes: int) -> int:
    """Return the size of a node's report."""

    async def size() -> int:
        node = _node(Shelf(), nodes, 0)
        return len(encoded(await node.publishing.report(ZONE)))

    return trio.run(size)


def by_arithmetic(nodes: int, *, ring: bool) -> Cost:
    """Return the cost of a node that works steadily.

    Without ``ring``, as if it asked for all reports every other minute, and told versions each minute.
    """
    pages = -(-nodes // NAMES_A_PAGE)
    rounds = 30 / pages if ring else 30.0
    reports = min(nodes - 1, 2 * SPAN) * 6 if ring else (nodes - 1) * 30
    size = report_bytes(nodes)
    requests = {"PUT": 30.0 if ring else 60.0, "LIST": rounds * pages, "GET": float(reports)}
    return Cost(
        requests, {"PUT": requests["PUT"] * size, "LIST": rounds * nodes * LISTED_BYTES, "GET": requests["GET"] * size}
    )


async def simulated(nodes: int) -> Cost:
    """Return the cost of a node, from an hour of some that run among so many whose reports change as theirs do."""
    shelf = Shelf()
    sample = min(_SAMPLE, nodes)
    running = [_node(shelf, nodes, number) for number in range(sample)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_move_others, shelf, nodes, sample)
        for node in running:
            nursery.start_soon(_work, node, 60.0)
        await trio.sleep(_WARM_UP_SECONDS)
        requests, size_bytes = Counter(shelf.counted), Counter(shelf.counted_bytes)
        await trio.sleep(_HOUR_SECONDS)
        counted, counted_bytes = shelf.counted - requests, shelf.counted_bytes - size_bytes
        nursery.cancel_scope.cancel()
    return Cost(_share(counted, sample), _share(counted_bytes, sample))


async def measured(nodes: int, minutes: float) -> Iterator[str]:
    """Run so many nodes against versitygw for so many of their minutes; return what was counted, as lines."""
    with serving_versitygw() as server:
        store = open_store(server.url, server.options, {}, request_timeout_seconds=60.0, connect_timeout_seconds=10.0)
        access = RemoteAccess(
            ZONE, store, deadline_seconds=60.0, parallel=32, events=EventLog(time.time), counters=Counters(), clock=time.time
        )
        section = HoldingsSection(interval_seconds=3.0, refresh_seconds=_MEASURED_REFRESH_SECONDS)
        running = [_node(access, nodes, number, section) for number in range(nodes)]
        async with trio.open_nursery() as nursery:
            for node in running:
                nursery.start_soon(_work, node, _MEASURED_REFRESH_SECONDS)
            await trio.sleep(20 * _MEASURED_REFRESH_SECONDS)
            server.clear_log()
            before, began = _loopback_bytes(), trio.current_time()
            await trio.sleep(minutes * _MEASURED_REFRESH_SECONDS)
            counted, size = server.requests(), _loopback_bytes() - before
            hours = (trio.current_time() - began) / _MEASURED_REFRESH_SECONDS / 60
            nursery.cancel_scope.cancel()
        stranger, asked = _node(access, nodes, nodes, section), trio.current_time()
        found = await stranger.gathering.gather([ZONE], all_nodes=True)
        seconds = trio.current_time() - asked
    lines = [f"{kind}: {count / nodes / hours:,.1f} a node and hour" for kind, count in counted.most_common()]
    lines += [f"through the network: {size / nodes / hours / 1e6:.2f} MB a node and hour"]
    lines += [f"one question about all {len(found.told) - 1} others: {seconds:.2f} s {found.problems}"]
    return iter(lines)


def _node(access: RemoteAccess, nodes: int, number: int, section: HoldingsSection | None = None) -> ReportingNode:
    name = f"ip-10-{number // 256}-{number % 256}-7.eu-west-1.compute.internal"
    node = ReportingNode(name, access, section or HoldingsSection(hosts=[name.partition(".")[0], f"10.7.{number % 256}.9"]))
    node.held.hold(*held_by(nodes, number), version=1)
    node.publishing.stand_by(ZONE, Standing(copies=1))
    return node


async def _work(node: ReportingNode, minute_seconds: float) -> None:
    """Let a node work with its partitions: their versions move on all the time."""
    partitions, version = [place.store.partition for place in node.held.stores], 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.publishing.run)
        while True:
            await node.gathering.neighbours(ZONE)
            await trio.sleep(minute_seconds / 6)
            version += 1
            node.held.hold(*partitions, version=version)


async def _move_others(shelf: Shelf, nodes: int, sample: int) -> None:
    """Keep the reports of the nodes that do not run as they would be: written every other minute, changed every tenth."""
    others = {number: _node(shelf, nodes, number) for number in range(sample, nodes)}
    data: dict[int, bytes] = {}
    minute = 0
    while True:
        for number, node in others.items():
            if number not in data or (minute + number) % 10 == 0:
                node.held.hold(*held_by(nodes, number), version=minute)
                data[number] = encoded(await node.publishing.report(ZONE))
            if (minute + number) % 2 == 0 or not minute:
                shelf.place(node.object_name, data[number])
        minute += 1
        await trio.sleep(60)


def _share(counted: Mapping[str, int], nodes: int) -> dict[str, float]:
    return {kind: count / nodes for kind, count in counted.items()}


def _loopback_bytes() -> int:
    """Return the bytes that went through the loopback, with the heads of packets."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split()[1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_costs", description=__doc__)
    parser.add_argument("--measure", type=int, metavar="NODES", help="run so many nodes against an S3 server")
    parser.add_argument("--minutes", type=float, default=30.0, help="for so many minutes of theirs (default: 30)")
    options = parser.parse_args(arguments)
    if options.measure:
        print(*trio.run(measured, options.measure, options.minutes), sep="\n")
        return
    for nodes in FLEETS:
        print(f"{nodes:,} nodes, reports of {report_bytes(nodes):,} bytes")
        print("  all reports:  ", by_arithmetic(nodes, ring=False).line(nodes))
        print("  on the ring:  ", by_arithmetic(nodes, ring=True).line(nodes))
        with without_threads():
            found = trio.run(simulated, nodes, clock=trio.testing.MockClock(autojump_threshold=0))
        print("  simulated:    ", found.line(nodes))


if __name__ == "__main__":
    main()
