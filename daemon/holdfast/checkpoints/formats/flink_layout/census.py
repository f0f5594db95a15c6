"""The census of checkpoints and savepoints in Flink's layout, as far as names tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.checkpoints.formats.flink_layout.names import FlinkKind, FlinkName
from holdfast.checkpoints.formats.interface import Counted, Found
from holdfast.checkpoints.plans import Listed

_OF_A_SAVEPOINT = (FlinkKind.SAVEPOINT, FlinkKind.SAVEPOINT_METADATA)


def counted(files: Iterable[tuple[Listed, FlinkName]]) -> Iterator[Counted]:
    """Count checkpoints and savepoints, and for each job what its checkpoints share."""
    groups: dict[tuple[bytes, int, bytes, str], list[Listed]] = {}
    complete: set[bytes] = set()
    for listed, name in files:
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
    for (job, number, name_of, what), group in groups.items():
        is_complete = name_of in complete or what == "shared"
        yield Counted(job, number, Found.of(name_of, what, group, is_complete=is_complete))
