"""A day of a fleet on paper: ``python -m tests.benchmarks.fleet_day [--plot FILE]``: 400 nodes, 20,000 partitions.

Nodes are lost with their disks, drained, restarted in groups of ten of one rack at a time; a rack loses its power, and two
nodes are lost at once. The same day passes without standby copies and with one of each partition, and once more with all
nodes restarted without having been drained.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.fleet_model import FETCHED_A_SECOND, NEW_AN_HOUR, NODES, PARTITIONS, RACKS, STATE_BYTES, Model, Shape
from tests.benchmarks.fleet_plot import Sample, plot

_HOUR, _MINUTE = 3600.0, 60.0
_SAMPLE_SECONDS = 300.0
_FAILURES, _DRAINS = 12, 16
_GROUP, _DRAIN_MINUTES, _OFF_MINUTES, _GROUP_EVERY_MINUTES = 10, 2, 3, 6
_DAYS = (
    ("without standby copies", 0, True),
    ("one standby copy of each partition", 1, True),
    ("without standby copies, restarted without a drain", 0, False),
    ("one standby copy of each partition, restarted without a drain", 1, False),
)


def schedule(model: Model, *, drains: bool, seed: int = 7) -> None:
    """Let the day's events happen to ``model``; with ``drains`` nodes are drained before they are restarted."""
    chance = random.Random(seed)
    names = sorted(model.members)
    for name in chance.sample(names, _FAILURES):
        time = chance.uniform(1, 23) * _HOUR
        model.at(time, partial(model.lose, [name], "lost", with_disks=True))
        model.at(time + chance.uniform(20, 90) * _MINUTE, partial(model.come_back, [name]))
    for name in chance.sample(names, _DRAINS):
        time = chance.uniform(6, 9) * _HOUR
        model.at(time, partial(model.drain, [name], "drained"))
        model.at(time + _DRAIN_MINUTES * _MINUTE, partial(model.lose, [name], "drained", with_disks=False))
        model.at(time + 30 * _MINUTE, partial(model.come_back, [name]))
    by_rack = sorted(names, key=lambda name: model.members[name].rack)
    for number, first in enumerate(range(0, NODES, _GROUP)):
        group, time = by_rack[first : first + _GROUP], 10 * _HOUR + number * _GROUP_EVERY_MINUTES * _MINUTE
        if drains:
            model.at(time, partial(model.drain, group, "restarted"))
        model.at(time + _DRAIN_MINUTES * _MINUTE, partial(model.lose, group, "restarted", with_disks=False))
        model.at(time + _DRAIN_MINUTES * _MINUTE + _OFF_MINUTES * _MINUTE, partial(model.come_back, group))
    rack = [name for name in names if model.members[name].rack == "rack07"]
    model.at(16 * _HOUR, partial(model.lose, rack, "rack without power", with_disks=False))
    model.at(16.25 * _HOUR, partial(model.come_back, rack))
    two = chance.sample(names, 2)
    model.at(18 * _HOUR, partial(model.lose, two, "two lost at once", with_disks=True))
    model.at(19 * _HOUR, partial(model.come_back, two))


def day(shape: Shape, *, drains: bool) -> tuple[Model, list[Sample]]:
    """Let a day pass; return the fleet after it, and how it was every five minutes."""
    model = Model(shape)
    schedule(model, drains=drains)
    samples = []
    for step in range(1, int(24 * _HOUR / _SAMPLE_SECONDS) + 1):
        model.run(step * _SAMPLE_SECONDS)
        fewest, most = model.loads()
        uncovered = model.uncovered() if shape.standbys else PARTITIONS
        samples.append(Sample(model.now / _HOUR, model.found.waited.total(), uncovered, fewest, most))
    return model, samples


def summary(model: Model) -> list[str]:
    """Return what a day came to, as lines."""
    found, all_bytes = model.found, PARTITIONS * STATE_BYTES
    rows = [(why, moved, found.ahead[why], found.waited[why]) for why, moved in found.moved.items()]
    rows.append(("all", found.moved.total(), found.ahead.total(), found.waited.total()))
    return [
        *(
            f"  {why:20} {moved:6,} moved: {moved - ahead - waited:,} at once, {ahead:,} when fetched, {waited:,} waited; "
            f"complete {1 - waited / moved:.3%}"
            for why, moved, ahead, waited in rows
        ),
        f"  fetched while a batch waits: {found.waited_bytes / 1e9:,.1f} GB of {all_bytes / 1e9:,.0f} GB of state",
        f"  fetched ahead, for drains and balance: {found.ahead_bytes / 1e9:,.1f} GB",
        f"  fetched by standbys because nodes came and went: {found.standby_bytes / 1e9:,.1f} GB",
        f"  in the day's checkpoints, which each copy follows: {24 * NEW_AN_HOUR * all_bytes / 1e9:,.0f} GB",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, and draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_day", description=__doc__)
    parser.add_argument("--plot", type=Path, help="where to put the picture")
    parser.add_argument("--queries", type=int, default=1, help="that share the partitions (default: 1)")
    parser.add_argument(
        "--rate", type=float, default=FETCHED_A_SECOND / 1e6, help="MB/s at which standbys fetch (default: 50)"
    )
    options = parser.parse_args(arguments)
    size = f"{PARTITIONS:,} partitions of {STATE_BYTES / 1e6:g} MB"
    print(f"{NODES} nodes in {RACKS} racks, {options.queries} queries, {size}")
    samples = {}
    for name, standbys, drains in _DAYS:
        model, samples[name] = day(Shape(standbys, options.queries, options.rate * 1e6), drains=drains)
        print(name, *summary(model), sep="\n")
        uncovered = sum(sample.uncovered for sample in samples[name]) * _SAMPLE_SECONDS / _HOUR
        print(f"  without a complete copy on another node: {uncovered:,.0f} hours of a partition of {24 * PARTITIONS:,}")
        print(f"  of a node's share {min(s.fewest for s in samples[name]):.2f} to {max(s.most for s in samples[name]):.2f}")
    if options.plot:
        options.plot.write_text(plot({name: samples[name] for name, _, drains in _DAYS if drains}))


if __name__ == "__main__":
    main()
