"""The plan of a sweep: of everything below a root, what no retained checkpoint needs and nobody is going to need."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.checkpoints.layouts import FlinkKind, FlinkName, SparkName, parse_flink
from holdfast.checkpoints.reachability.asking import Asking, Examination, together
from holdfast.checkpoints.reachability.flink_tree import about, plan_drop, plan_tree, superfluous_directories
from holdfast.checkpoints.reachability.plan import Listed, Phase, Plan, PlanBuilder, Policy, Reason
from holdfast.checkpoints.reachability.roots import Roots, sorted_by_root
from holdfast.checkpoints.reachability.spark_drop import plan_batches
from holdfast.checkpoints.reachability.spark_query import Query, plan_query, plan_wrapped
from holdfast.errors import PlanError


def sweep(listing: Iterable[Listed], policy: Policy, now_ns: int) -> Examination[Plan]:
    """Begin to plan the sweep of a root.

    ``listing`` is everything below the root, ``now_ns`` the time at which it was begun (ns since the epoch, by the store's
    clock). Manifests are to be read after the listing was complete.
    """
    listing = list(listing)
    return Examination(_sweep(listing, sorted_by_root(listing), PlanBuilder(policy, now_ns)))


def drop(listing: Iterable[Listed], checkpoints: Collection[bytes], now_ns: int) -> Examination[Plan]:
    """Begin to plan to drop checkpoints of Flink's or Holdfast's layout, named by their directories (``<job>/chk-7``)."""
    listing = list(listing)
    return Examination(_drop(listing, sorted_by_root(listing), frozenset(checkpoints), PlanBuilder(Policy(), now_ns)))


def drop_batches(listing: Iterable[Listed], location: bytes, last: int, now_ns: int) -> Examination[Plan]:
    """Begin to plan to drop all batches up to ``last`` of the Spark query at ``location``.

    Raises ``PlanError`` when there is no such query, or Spark could not start without one of them.
    """
    query = sorted_by_root(listing).queries.get(location)
    if query is None:
        raise PlanError(f"there is no checkpoint location of Spark at {location.decode(errors='backslashreplace') or '.'}")
    return Examination(_drop_batches(query, last, PlanBuilder(Policy(grace_ns=0, abandoned_ns=0), now_ns)))


def up_to(listing: Iterable[Listed], checkpoint: bytes) -> frozenset[bytes]:
    """Return the names of all checkpoints of a job up to and including ``checkpoint``, complete or not."""
    limit = parse_flink(checkpoint + b"/_metadata")
    if not isinstance(limit, FlinkName) or limit.kind is not FlinkKind.METADATA or limit.checkpoint is None:
        return frozenset()
    tree = sorted_by_root(listing).flink
    return frozenset(
        name.checkpoint_name
        for _, name in (*tree.files, *tree.directories)
        if name.job == limit.job and name.checkpoint is not None and name.checkpoint <= limit.checkpoint
    )


def _sweep(listing: list[Listed], roots: Roots, builder: PlanBuilder) -> Asking[Plan]:
    queries = [plan_query(query, builder) for query in roots.queries.values()]
    yield from together([*queries, plan_tree(roots.flink, builder)])
    plan_sink_logs(roots.sink_logs, builder)
    for listed in roots.staged:
        plan_staged(listed, builder)
    _plan_directories(listing, superfluous_directories(roots.flink, builder), builder)
    return builder.plan()


def plan_sink_logs(files: Iterable[tuple[Listed, SparkName]], builder: PlanBuilder) -> None:
    """Plan to remove temporary files and checksums beside the logs of file sinks; each directory is judged by itself."""
    files = list(files)
    entries = {listed.name for listed, name in files if not name.layers}
    plan_wrapped([each for each in files if each[1].layers], entries, builder)
    builder.retain(entries)


def plan_staged(listed: Listed, builder: PlanBuilder) -> None:
    """Plan to remove an object that was on its way to its name."""
    if builder.is_old(listed):
        builder.add(listed, Reason.STAGED_UPLOAD, "of Holdfast")


def _drop(listing: list[Listed], roots: Roots, checkpoints: frozenset[bytes], builder: PlanBuilder) -> Asking[Plan]:
    yield from plan_drop(roots.flink, checkpoints, builder)
    dropped = [(listed, about(name)) for listed, name in roots.flink.directories if listed.name in checkpoints]
    _plan_directories(listing, dropped, builder)
    return builder.plan()


def _drop_batches(query: Query, last: int, builder: PlanBuilder) -> Asking[Plan]:
    yield from plan_batches(query, last, builder)
    return builder.plan()


def _plan_directories(listing: list[Listed], superfluous: list[tuple[Listed, str]], builder: PlanBuilder) -> None:
    """Plan to remove those of the superfluous directories in which nothing stays."""
    names = {listed.name for listed, _ in superfluous}
    occupied: set[bytes] = set()
    for listed in listing:
        if not builder.goes(listed.name) and listed.name not in names:
            directory = listed.name.rpartition(b"/")[0]
            while directory and directory not in occupied:
                occupied.add(directory)
                directory = directory.rpartition(b"/")[0]
    for listed, what_for in superfluous:
        if listed.name not in occupied:
            builder.add(listed, Reason.EMPTY_DIRECTORY, what_for, Phase.DIRECTORY)
