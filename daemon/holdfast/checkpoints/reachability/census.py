"""Which checkpoints there are below a root, as far as names tell: for people who want to look before they drop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.checkpoints.layouts import FlinkKind
from holdfast.checkpoints.reachability.flink_tree import Tree
from holdfast.checkpoints.reachability.plan import Listed
from holdfast.checkpoints.reachability.roots import sorted_by_root
from holdfast.checkpoints.reachability.spark_query import Query

_OF_A_SAVEPOINT = (FlinkKind.SAVEPOINT, FlinkKind.SAVEPOINT_METADATA)


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint, a savepoint, a batch of a Spark query, or what several of these share.

    ``name`` is what ``drop`` takes: ``<job>/chk-7``, ``<location>/commits/12``; of a savepoint and of shared files it is
    the directory. ``what`` is ``checkpoint``, ``savepoint``, ``batch``, ``shared`` or ``state``. Bytes are of what lies
    there, for a checkpoint of its exclusive files; ``newest_ns`` is when it was last written to.
    """

    name: bytes
    what: str
    is_complete: bool
    files: int
    size_bytes: int
    newest_ns: int


def census(listing: Iterable[Listed]) -> list[Found]:
    """Return what there is, by name, batches and checkpoints in the order of their numbers."""
    roots = sorted_by_root(listing)
    found = _of_flink(roots.flink)
    for query in roots.queries.values():
        found += _of_query(query)
    return [each for _, each in sorted(found, key=lambda each: each[0])]


_Sortable = tuple[tuple[bytes, int, bytes], Found]


def _of_flink(tree: Tree) -> list[_Sortable]:
    groups: dict[tuple[bytes, int, bytes, str], list[Listed]] = {}
    complete: set[bytes] = set()
    for listed, name in tree.files:
        if name.kind in _OF_A_SAVEPOINT:
            directory = b"%s/%s" % (name.job, name.directory) if name.job else name.directory
            name_of, what, number = directory.split(b"/_metadata")[0], "savepoint", 0
        elif name.checkpoint is not None:
            name_of, what, number = name.checkpoint_name, "checkpoint", name.checkpoint
        elif name.kind in (FlinkKind.SHARED, FlinkKind.SHARED_SEGMENTS, FlinkKind.TASK_OWNED):
            above = b"taskowned" if name.kind is FlinkKind.TASK_OWNED else b"shared"
            name_of, what, number = (b"%s/%s" % (name.job, above) if name.job else above), "shared", -1
        else:
            continue
        if name.kind in (FlinkKind.METADATA, FlinkKind.SAVEPOINT_METADATA):
            complete.add(name_of)
        groups.setdefault((name.job, number, name_of, what), []).append(listed)
    return [
        ((job, number, name), _found(name, what, name in complete or what == "shared", files))
        for (job, number, name, what), files in groups.items()
    ]


def _of_query(query: Query) -> list[_Sortable]:
    prefix = query.location + b"/" if query.location else b""
    found: list[_Sortable] = []
    for number in sorted(query.commits.keys() | query.offsets.keys()):
        files = [log[number] for log in (query.commits, query.offsets) if number in log]
        name = b"%scommits/%d" % (prefix, number)
        found.append(((query.location, number, name), _found(name, "batch", number in query.commits, files)))
    state = [listed for store in query.stores.values() for listed in (*store.shared, *(each for each, _ in store.versions))]
    if state:
        name = b"%sstate" % prefix
        found.append(((query.location, -1, name), _found(name, "state", is_complete=True, files=state)))
    return found


def _found(name: bytes, what: str, is_complete: bool, files: list[Listed]) -> Found:
    newest_ns = max(listed.mtime_ns for listed in files)
    return Found(name, what, is_complete, len(files), sum(listed.size_bytes for listed in files), newest_ns)
