"""A sweep in parts, for listings that are too large for one machine: each part is judged by the same rules.

- ``evidence_of`` and ``part_of`` (``division``) say what is needed to split the listing, of each name by itself;
- ``sweep_location`` judges one checkpoint location, ``sweep_group`` one group;
- ``read_references`` says what one manifest of a tree refers to, ``plan_alone`` judges what nothing refers to.

The caller does what takes the whole listing: it joins references with names, and finds the directories that stay occupied.
``sweep`` does all of it in one place. Both must give the same plan (``tests/unit/checkpoints/test_checkpoint_formats.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.checkpoints.examination import Asking, Examination, Wanted
from holdfast.checkpoints.formats import Formats
from holdfast.checkpoints.formats.interface import Completions
from holdfast.checkpoints.plans import Kept, Listed, Phase, Plan, PlanBuilder, Policy, Reason
from holdfast.checkpoints.reachability.division import Part, part_of, plan_staged
from holdfast.checkpoints.references import Reference


def sweep_location(
    layout: int, location: bytes, listing: Iterable[Listed], policy: Policy, now_ns: int, formats: Formats
) -> Examination[Plan]:
    """Begin to plan the sweep of one location, of what belongs to it and to no location within it."""
    builder = PlanBuilder(policy, now_ns)
    return Examination(_planned(formats.locations[layout].sweep(location, listing, builder), builder))


def sweep_group(layout: int, listing: Iterable[Listed], policy: Policy, now_ns: int, formats: Formats) -> Examination[Plan]:
    """Begin to plan the sweep of one group."""
    builder = PlanBuilder(policy, now_ns)
    return Examination(_planned(formats.groups[layout].sweep(listing, builder), builder))


def read_references(layout: int, listed: Listed, formats: Formats) -> Examination[Collection[Reference] | Kept]:
    """Begin to read what a manifest refers to, or why nothing of its layout below the root can be judged."""
    return Examination(_references(layout, listed, formats))


def plan_alone(
    listed: Listed, completed: Mapping[int, int], silent_since_ns: int, builder: PlanBuilder, formats: Formats
) -> None:
    """Plan what becomes of one thing that lies in no location and no group, and that no manifest refers to.

    ``completed`` are the times of the job's complete checkpoints by number, ``silent_since_ns`` is when a file beside it was
    last written. A directory is planned as if it were empty.
    """
    placed = part_of(listed, formats)
    if placed.part is Part.STAGED:
        plan_staged(listed, builder)
    elif placed.part is Part.TREE:
        tree, completions = formats.trees[placed.layout], Completions(completed)
        if not listed.is_directory:
            tree.sweep_unreferenced(listed, placed.name, completions, silent_since_ns, builder)
        elif tree.is_superfluous(listed, placed.name, completions, builder):
            builder.add(listed, Reason.EMPTY_DIRECTORY, tree.about(placed.name), Phase.DIRECTORY)


def _references(layout: int, listed: Listed, formats: Formats) -> Asking[Collection[Reference] | Kept]:
    tree = formats.trees[layout]
    name = tree.parse(listed)
    if name is None:
        return ()
    answers = yield [Wanted(listed.name, formats.manifests[layout], listed.size_bytes)]
    return tree.references_of(name, answers[listed.name])


def _planned(asking: Asking[None], builder: PlanBuilder) -> Asking[Plan]:
    yield from asking
    return builder.plan()
