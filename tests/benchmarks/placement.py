"""Placement on paper: ``python -m tests.benchmarks.placement [--plot FILE]``: 40 nodes, 2,000 partitions, nodes come
and go.

Three ways to place are compared through the same events: wherever a core is free (Spark by itself after a new start),
by a rendezvous hash alone, and Holdfast's (``holdfast_spark.placement.assignment``). A node that has had a partition
keeps its state; a node that is new, or comes back with an empty disk, holds nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.checkpoints.formats.interface import StateStore
from holdfast.holdings.held_stores import HeldStore, Place
from holdfast.holdings.report import NodeReport, encoded, held_of
from holdfast_spark.placement.assignment import Held, assign
from tests.benchmarks.placement_plot import plot

NODES, PARTITIONS, CORES = 40, 2000, 8
_BYTES = 25 * 10**6
_QUERY = "file:/mnt/holdfast/checkpoints/flights"
_REFRESHES_PER_HOUR, _UNCHANGED_PER_HOUR = 60, 6

Holdings = dict[int, dict[str, Held]]
Way = Callable[[dict[str, int], Holdings], list[str]]


class Outcome(NamedTuple):
    """What an event cost one way of placing: the state fetched as a part of all, and the partitions of the nodes."""

    event: str
    fetched: float
    fewest: float
    most: float
    seconds: float


def _anywhere(seed: int) -> Way:
    chance = random.Random(seed)

    def place(cores: dict[str, int], held: Holdings) -> list[str]:
        del held
        return [chance.choice(sorted(cores)) for _ in range(PARTITIONS)]

    return place


def _by_hash(cores: dict[str, int], held: Holdings) -> list[str]:
    del held
    return assign(_QUERY, PARTITIONS, cores, {})


def _by_holdings(cores: dict[str, int], held: Holdings) -> list[str]:
    return assign(_QUERY, PARTITIONS, cores, held)


def events() -> list[tuple[str, dict[str, int], set[str]]]:
    """Return what happens: a name, the nodes with their cores after it, and those that have lost their disks."""
    all_nodes = {f"node{number:02}": CORES for number in range(NODES)}
    one_less = {name: cores for name, cores in all_nodes.items() if name != "node07"}
    four_less = {name: cores for name, cores in all_nodes.items() if name not in ("node03", "node11", "node20", "node31")}
    larger = {**all_nodes, **{f"large{number}": 2 * CORES for number in range(4)}}
    return [
        ("first start", all_nodes, set()),
        ("new driver", all_nodes, set()),
        ("a node leaves", one_less, set()),
        ("it comes back", all_nodes, set()),
        ("four leave", four_less, set()),
        ("they come back empty", all_nodes, {"node03", "node11", "node20", "node31"}),
        ("new driver", all_nodes, set()),
        ("four large ones come", larger, set()),
        ("new driver", larger, set()),
    ]


def simulate(way: Way) -> list[Outcome]:
    """Run the events through one way of placing."""
    held: Holdings = {partition: {} for partition in range(PARTITIONS)}
    outcomes = []
    for version, (event, cores, emptied) in enumerate(events(), 1):
        for holders in held.values():
            for node in emptied:
                holders.pop(node, None)
        began = time.perf_counter()
        placed = way(cores, held)
        seconds = time.perf_counter() - began
        fetched = sum(version > 1 and node not in held[partition] for partition, node in enumerate(placed))
        for partition, node in enumerate(placed):
            held[partition][node] = Held(version, _BYTES)
        loads, total = Counter(placed), sum(cores.values())
        of_share = [loads[name] * total / (PARTITIONS * count) for name, count in cores.items()]
        outcomes.append(Outcome(event, fetched / PARTITIONS, min(of_share), max(of_share), seconds))
    return outcomes


def telling() -> dict[str, float]:
    """Return what it costs to tell: bytes of a report, requests of all nodes in an hour, and of a driver's start."""
    held = {
        Place("checkpoints", StateStore(b"flights", 0, partition, b"default")): HeldStore(4711, _BYTES + 4099 * partition)
        for partition in range(0, PARTITIONS, NODES)
    }
    report = NodeReport(
        node="node07",
        hosts=["node07", "node07.example.org", "192.0.2.7"],
        cores=CORES,
        queries=held_of(held, "checkpoints").queries,
    )
    size = len(encoded(report))
    return {
        "report_bytes": size,
        "puts_an_hour_busy": NODES * _REFRESHES_PER_HOUR,
        "puts_an_hour_idle": NODES * _UNCHANGED_PER_HOUR,
        "bytes_an_hour_busy": NODES * _REFRESHES_PER_HOUR * size,
        "requests_of_a_start": 1 + NODES,
        "bytes_of_a_start": NODES * size,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, and draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.placement", description=__doc__)
    parser.add_argument("--plot", type=Path, help="where to put the picture")
    options = parser.parse_args(arguments)
    ways = {"anywhere": _anywhere(1), "by hash": _by_hash, "by holdings": _by_holdings}
    found = {name: simulate(way) for name, way in ways.items()}
    for name, outcomes in found.items():
        print(name)
        for each in outcomes:
            print(
                f"  {each.event:22} fetched {each.fetched:6.1%}  of a node's share {each.fewest:.2f} to {each.most:.2f}"
                f"  placed in {each.seconds * 1000:.0f} ms"
            )
    print(json.dumps(telling(), indent=2))
    if options.plot:
        options.plot.write_text(
            plot({name: [(e.event, e.fetched, e.fewest, e.most) for e in o] for name, o in found.items()})
        )


if __name__ == "__main__":
    main()
