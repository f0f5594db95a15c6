"""The plan of a drop: named checkpoints, with all that only they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from holdfast.checkpoints.examination import Asking, Examination
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import Batch, TreeName
from holdfast.checkpoints.plans import Listed, Plan, PlanBuilder, Policy
from holdfast.checkpoints.reachability.division import Division
from holdfast.checkpoints.reachability.sweep import plan_empty_directories
from holdfast.checkpoints.reachability.tree import Tree, drop_from_tree
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.system.text import shown


class _Named(NamedTuple):
    """The checkpoint that a name stands for, and the position of its layout among the locations or the trees."""

    layout: int
    checkpoint: Batch | TreeName


def root_of_drop(name: bytes, root: bytes | None, formats: Formats = FORMATS) -> bytes:
    """Return the directory that has to be listed to drop the checkpoint ``name``: others below it may refer to its files.

    ``root`` is what the caller asks for. By default it is the directory of the job's directory, in which its siblings lie.
    A batch of a query always takes the query's location. Raises ``PlanError`` when ``name`` is no checkpoint's, or does not
    lie below ``root``.
    """
    checkpoint = _named(name, formats).checkpoint
    if isinstance(checkpoint, Batch):
        return checkpoint.location
    if root is None:
        return checkpoint.job.rpartition(b"/")[0]
    if root and not name.startswith(root + b"/"):
        raise PlanError(f"{shown(name)} does not lie below {shown(root)}")
    return root


def checkpoints_to_drop(
    listing: Iterable[Listed], name: bytes, *, all_before: bool, formats: Formats = FORMATS
) -> tuple[bytes, ...]:
    """Return the names of the checkpoints that go with ``name``; with ``all_before`` all up to it.

    Raises ``PlanError`` when it is not there, or can't go alone.
    """
    layout, checkpoint = _named(name, formats)
    if isinstance(checkpoint, Batch):
        return formats.locations[layout].batches_to_drop(listing, checkpoint.number, all_before=all_before)
    found = up_to(listing, name, formats)
    if name not in found:
        raise NoSuchPlanError(f"there is no checkpoint {shown(name)}: nothing of it is in the store")
    return tuple(sorted(found)) if all_before else (name,)


def up_to(listing: Iterable[Listed], checkpoint: bytes, formats: Formats = FORMATS) -> frozenset[bytes]:
    """Return the names of all checkpoints of a job up to and including ``checkpoint``, complete or not."""
    try:
        layout, limit = _named(checkpoint, formats)
    except PlanError:
        return frozenset()
    if isinstance(limit, Batch) or limit.checkpoint is None:
        return frozenset()
    tree = Division(listing, formats).trees[layout]
    return frozenset(
        name.checkpoint_name
        for _, name in (*tree.files, *tree.directories)
        if name.job == limit.job and name.checkpoint is not None and name.checkpoint <= limit.checkpoint
    )


def drop(
    listing: Iterable[Listed], checkpoints: Collection[bytes], now_ns: int, formats: Formats = FORMATS
) -> Examination[Plan]:
    """Begin to plan to drop ``checkpoints`` of one layout, of a query at most one: all before that go with it.

    Raises ``PlanError`` when there are none, or one of them is needed.
    """
    listing = list(listing)
    layout, first = _named(next(iter(checkpoints), b""), formats)
    division = Division(listing, formats)
    if not isinstance(first, Batch):
        builder = PlanBuilder(Policy(), now_ns)
        return Examination(_drop(listing, division.trees[layout], frozenset(checkpoints), builder))
    location = division.locations.get(first.location)
    if location is None or location.layout != layout:
        raise NoSuchPlanError(f"there is no {formats.locations[layout].title} at {shown(first.location) or '.'}")
    builder = PlanBuilder(Policy(grace_ns=0, abandoned_ns=0), now_ns)
    batches = formats.locations[layout].drop(first.location, location.listing, first.number, builder)
    return Examination(_planned(batches, builder))


def _named(name: bytes, formats: Formats) -> _Named:
    """Return what ``name`` stands for. Raises ``PlanError`` when it is no checkpoint."""
    for position, layout in enumerate(formats.locations):
        if (batch := layout.batch_of(name)) is not None:
            return _Named(position, batch)
    for position, tree in enumerate(formats.trees):
        manifest: TreeName | None = tree.checkpoint_named(name)
        if manifest is not None:
            return _Named(position, manifest)
    raise PlanError(
        f"{shown(name) or 'the store'} is no checkpoint: name {formats.named_by} "
        "('holdfast checkpoint ls' shows what there is)"
    )


def _drop(listing: list[Listed], tree: Tree[TreeName], checkpoints: frozenset[bytes], builder: PlanBuilder) -> Asking[Plan]:
    yield from drop_from_tree(tree, checkpoints, builder)
    dropped = [(listed, tree.layout.about(name)) for listed, name in tree.directories if listed.name in checkpoints]
    plan_empty_directories(listing, dropped, builder)
    return builder.plan()


def _planned(asking: Asking[None], builder: PlanBuilder) -> Asking[Plan]:
    yield from asking
    return builder.plan()
