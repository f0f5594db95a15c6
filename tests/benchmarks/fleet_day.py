"""A day of a fleet on paper: ``python -m tests.benchmarks.fleet_day [--plot FILE]``: 400 nodes, 20,000 partitions.

Nodes are lost with their disks, drained, restarted in groups of ten of one rack at a time; a rack loses its power, and two
nodes are lost at once. The same day passes without standby copies and with one of each partition.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.fleet_model import NEW_AN_HOUR, NODES, PARTITIONS, QUERIES, RACKS, STATE_BYTES, Model
from tests.benchmarks.fleet_plot import Sample, plot

_HOUR, _MINUTE = 3600.0, 60.0
_SAMPLE_SECONDS = 300.0
_FAILURES, _DRAINS = 12, 16
_GROUP, _OFF_MINUTES, _GROUP_EVERY_MINUTES = 10, 3, 6


def schedule(model: Model, seed: int = 7) -> None:
    """Let the day's events happen to ``model``."""
    chance = random.Random(seed)
    names = sorted(model.members)
    for name in chance.sample(names, _FAILURES):
        time = chance.uniform(1, 23) * _HOUR
        model.at(time, partial(model.lose, [name], "lost", with_disks=True))
        model.at(time + chance.uniform(20, 90) * _MINUTE, partial(model.come_back, [name]))
    for name in chance.sample(names, _DRAINS):
        time = chance.uniform(6, 9) * _HOUR
        model.at(time, partial(model.drain, name))
        model.at(time + 2 * _MINUTE, partial(model.lose, [name], "drained", with_disks=False))
        model.at(time + 30 * _MINUTE, partial(model.come_back, [name]))
    by_rack = sorted(names, key=lambda name: model.members[name].rack)
    for number, first in enumerate(range(0, NODES, _GROUP)):
        group, time = by_rack[first : first + _GROUP], 10 * _HOUR + number * _GROUP_EVERY_MINUTES * _MINUTE
        model.at(time, partial(model.lose, group, "restarted", with_disks=False))
        model.at(time + _OFF_MINUTES * _MINUTE, partial(model.come_back, group))
    rack = [name for name in names if model.members[name].rack == "rack07"]
    model.at(16 * _HOUR, partial(model.lose, rack, "rack without power", with_disks=False))
    model.at(16.25 * _HOUR, partial(model.come_back, rack))
    two = chance.sample(names, 2)
    model.at(18 * _HOUR, partial(model.lose, two, "two lost at once", with_disks=True))
    model.at(19 * _HOUR, partial(model.come_back, two))


def day(standbys: int) -> tuple[Model, list[Sample]]:
    """Let a day pass; return the fleet after it, and how it was every five minutes."""
    model = Model(standbys)
    schedule(model)
    samples = []
    for step in range(1, int(24 * _HOUR / _SAMPLE_SECONDS) + 1):
        model.run(step * _SAMPLE_SECONDS)
        fewest, most = model.loads()
        waited = model.found.moved.total() - model.found.complete.total()
        uncovered = model.uncovered() if standbys else QUERIES * PARTITIONS
        samples.append(Sample(model.now / _HOUR, waited, uncovered, fewest, most))
    return model, samples


def summary(model: Model) -> list[str]:
    """Return what a day came to, as lines."""
    found, all_bytes = model.found, QUERIES * PARTITIONS * STATE_BYTES
    rows = [(why, moved, found.complete[why]) for why, moved in found.moved.items()]
    rows.append(("all", found.moved.total(), found.complete.total()))
    return [
        *(
            f"  {why:20} {moved:6,} moved, {whole:6,} found a complete copy ({whole / moved:.3%})"
            for why, moved, whole in rows
        ),
        f"  fetched while a batch waits: {found.waited_bytes / 1e9:,.1f} GB of {all_bytes / 1e9:,.0f} GB of state",
        f"  fetched ahead, for balance: {found.ahead_bytes / 1e9:,.1f} GB",
        f"  fetched by standbys because nodes came and went: {found.standby_bytes / 1e9:,.1f} GB",
        f"  in the day's checkpoints, which each copy follows: {24 * NEW_AN_HOUR * all_bytes / 1e9:,.0f} GB",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, and draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet_day", description=__doc__)
    parser.add_argument("--plot", type=Path, help="where to put the picture")
    options = parser.parse_args(arguments)
    print(f"{NODES} nodes in {RACKS} racks, {QUERIES} queries of {PARTITIONS:,} partitions, {STATE_BYTES / 1e6:g} MB each")
    samples = {}
    for name, standbys in (("without standby copies", 0), ("one standby copy of each", 1)):
        model, samples[name] = day(standbys)
        print(name, *summary(model), sep="\n")
        print(f"  of a node's share {min(s.fewest for s in samples[name]):.2f} to {max(s.most for s in samples[name]):.2f}")
    if options.plot:
        options.plot.write_text(plot(samples))


if __name__ == "__main__":
    main()
