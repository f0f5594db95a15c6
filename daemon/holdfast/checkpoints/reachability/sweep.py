"""The plan of a sweep: the files that no retained checkpoint below a root needs, and no checkpoint under way will need."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.checkpoints.examination import Asking, Examination, together
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.plans import Listed, Phase, Plan, PlanBuilder, Policy, Reason
from holdfast.checkpoints.reachability.division import Division, plan_staged
from holdfast.checkpoints.reachability.tree import superfluous_directories, sweep_tree


def sweep(listing: Iterable[Listed], policy: Policy, now_ns: int, formats: Formats = FORMATS) -> Examination[Plan]:
    """Begin to plan the sweep of a root.

    ``listing`` is everything below the root, ``now_ns`` the time at which it was begun (ns since the epoch, by the store's
    clock). Manifests are to be read after the listing was complete.
    """
    return Examination(_sweep(list(listing), PlanBuilder(policy, now_ns), formats))


def _sweep(listing: list[Listed], builder: PlanBuilder, formats: Formats) -> Asking[Plan]:
    division = Division(listing, formats)
    locations = [
        formats.locations[layout].sweep(location, below, builder) for location, (layout, below) in division.locations.items()
    ]
    groups = [formats.groups[layout].sweep(files, builder) for (layout, _), files in division.groups.items()]
    yield from together([*locations, *groups, *(sweep_tree(tree, builder) for tree in division.trees)])
    for listed in division.staged:
        plan_staged(listed, builder)
    superfluous = [each for tree in division.trees for each in superfluous_directories(tree, builder)]
    plan_empty_directories(listing, superfluous, builder)
    return builder.plan()


def plan_empty_directories(listing: Iterable[Listed], superfluous: list[tuple[Listed, str]], builder: PlanBuilder) -> None:
    """Plan to remove those of the superfluous directories in which nothing stays."""
    names = {listed.name for listed, _ in superfluous}
    occupied: set[bytes] = set()
    seen: set[bytes] = set()
    for listed in listing if names else ():
        directory = listed.name.rpartition(b"/")[0]
        if directory in seen or builder.goes(listed.name) or listed.name in names:
            continue
        seen.add(directory)
        while directory and directory not in occupied:
            if directory in names:  # not the others: a deep name would take as much memory as many names
                occupied.add(directory)
            directory = directory.rpartition(b"/")[0]
    for listed, what_for in superfluous:
        if listed.name not in occupied:
            builder.add(listed, Reason.EMPTY_DIRECTORY, what_for, Phase.DIRECTORY)
