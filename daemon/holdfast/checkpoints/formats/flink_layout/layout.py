"""The rules for deleting files in Flink's layout, and the words in which users are told of them.

Jobs refer to each other's files: with CLAIM a job goes on from another's checkpoint, and its first ones share that one's
files. So a single manifest that can't be read stops the judgement of everything below the root. References are compared by
their last component, a UUID: metadata holds absolute URIs, and the root may be mounted, copied or reached by another name
now. After a CLAIM restore from a native savepoint, names that were meant relative to the savepoint are read as relative to
the checkpoint (FLINK-39964, to Flink 2.3).

Savepoints can be copied and moved, and so can checkpoints that share no files with others: they name their files relative to
the metadata (Flink's documentation, "Savepoints"; tried in ``tests/conformance/test_flink_verify.py``).

Never judged: ``taskowned/`` and ``dstl/``, savepoints, unknown names, and anything outside a job's directory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import cast

from holdfast.checkpoints.formats.flink_layout.names import (
    METADATA_NAME,
    FlinkKind,
    FlinkName,
    parse_flink,
    parse_flink_directory,
)
from holdfast.checkpoints.formats.interface import TEMPORARY, Completions, Counted, Found, Retained, TreeLayout
from holdfast.checkpoints.manifests import Manifest, Trouble, Unreadable
from holdfast.checkpoints.plans import Kept, Listed, PlanBuilder, Reason
from holdfast.checkpoints.references import Reference, Referring
from holdfast.system.text import shown

_JOB_ID = re.compile(rb"(?:.*/)?[0-9a-f]{32}", re.DOTALL)
_PURPOSES = {
    FlinkKind.SHARED: "shared",
    FlinkKind.SHARED_SEGMENTS: "shared",
    FlinkKind.EXCLUSIVE: "exclusive",
    FlinkKind.TASK_OWNED: "task-owned",
    FlinkKind.SAVEPOINT: "savepoints",
    FlinkKind.SAVEPOINT_METADATA: "savepoints",
    FlinkKind.METADATA: "metadata",
    FlinkKind.OTHER_METADATA: "metadata",
}
_OF_A_SAVEPOINT = (FlinkKind.SAVEPOINT, FlinkKind.SAVEPOINT_METADATA)


class FlinkLayout(TreeLayout[FlinkName]):
    """Jobs with checkpoints ``chk-<n>``, and savepoints."""

    named_by = "the directory chk-<n> of a job (savepoints are never touched)"
    manifest = "checkpoint metadata"
    can_be_copied = "take a savepoint, which can be copied"
    purposes = tuple(dict.fromkeys(_PURPOSES.values()))

    def parse(self, listed: Listed) -> FlinkName | None:
        """Say what a name is."""
        name = parse_flink_directory(listed.name) if listed.is_directory else parse_flink(listed.name)
        return name if isinstance(name, FlinkName) else None

    def checkpoint_named(self, name: bytes) -> FlinkName | None:
        """Return the metadata of ``<job>/chk-<n>``."""
        metadata = parse_flink(b"%s/%s" % (name, METADATA_NAME))
        return metadata if isinstance(metadata, FlinkName) and metadata.kind is FlinkKind.METADATA else None

    def references_of(self, name: FlinkName, manifest: Manifest) -> Collection[Reference] | Kept:
        """Return what metadata refers to, or why nothing below the root can be judged."""
        if not isinstance(manifest, Unreadable):
            return cast(Referring, manifest).references
        if manifest.trouble is Trouble.FOREIGN and name.kind is FlinkKind.OTHER_METADATA:
            return ()  # outside checkpoints and savepoints it is another program's, Parquet's for one
        return Kept(name.name, f"{manifest}; nothing of Flink's below the root is judged", manifest.trouble)

    def sweep_unreferenced(
        self, listed: Listed, name: FlinkName, completions: Completions, silent_since_ns: int, builder: PlanBuilder
    ) -> None:
        """Plan what becomes of a file that nothing refers to."""
        if not builder.is_old(listed):
            return
        if name.kind is FlinkKind.UNFINISHED_METADATA:
            builder.add(listed, Reason.TEMPORARY, self.about(name))
        elif not _is_a_jobs(name, completions):
            return
        elif name.kind is FlinkKind.EXCLUSIVE:
            self._sweep_exclusive(listed, name, completions, builder)
        elif name.kind is FlinkKind.SHARED:
            if completions.after(listed) or builder.is_abandoned(listed):
                builder.add(listed, Reason.UNREFERENCED, self.about(name))
        elif builder.is_abandoned(Listed(b"", 0, silent_since_ns)):
            # A TaskManager appends to these, and may hold one that is not referred to at the moment.
            builder.add(listed, Reason.UNREFERENCED, self.about(name))

    def _sweep_exclusive(self, listed: Listed, name: FlinkName, completions: Completions, builder: PlanBuilder) -> None:
        number = name.checkpoint if name.checkpoint is not None else -1
        if number in completions.times_ns:
            builder.add(listed, Reason.FAILED_ATTEMPT, f"not part of {self.about(name)}")
        elif completions.after(listed, above=number):
            builder.add(listed, Reason.EXPIRED_CHECKPOINT, self.about(name))
        elif builder.is_abandoned(listed):
            builder.add(listed, Reason.FAILED_ATTEMPT, f"{self.about(name)}, which was never completed")

    def is_superfluous(self, listed: Listed, name: FlinkName, completions: Completions, builder: PlanBuilder) -> bool:
        """Return whether nothing is going to be written into a directory any more."""
        if not _is_a_jobs(name, completions) or not builder.is_old(listed):
            return False
        is_over = name.checkpoint is not None and completions.after(listed, above=name.checkpoint)
        return is_over or builder.is_abandoned(listed)

    def restorable(self, name: FlinkName, manifest: Manifest | None) -> Retained | None:
        """Return the checkpoint or savepoint that metadata describes, by its directory. A copy may have any name."""
        if name.kind is FlinkKind.METADATA:
            return Retained(name.checkpoint_name, "checkpoint")
        is_foreign = isinstance(manifest, Unreadable) and manifest.trouble is Trouble.FOREIGN
        directory = name.name.rpartition(b"/")[0]
        if not directory or (is_foreign and name.kind is FlinkKind.OTHER_METADATA):
            return None
        return Retained(directory, "savepoint")

    def about(self, name: FlinkName) -> str:
        """Say for people what a name belongs to."""
        job = shown(name.job)
        where = f" of {job}" if job else ""
        if name.checkpoint is not None:
            return f"checkpoint {name.checkpoint}{where}"
        return f"{shown(name.directory)}{where}"

    def census(self, files: Iterable[tuple[Listed, FlinkName]]) -> Iterable[Counted]:
        """Count checkpoints, savepoints, and what they share."""
        return counted(files)

    def usage_of(self, name: FlinkName) -> tuple[bytes, str] | None:
        """Return the job or savepoint that owns a file, and the file's purpose."""
        if name.kind is FlinkKind.OTHER_METADATA:
            return None
        return name.job or name.directory.partition(b"/")[0], _PURPOSES.get(name.kind, TEMPORARY)


def _is_a_jobs(name: FlinkName, completions: Completions) -> bool:
    """Return whether the directory is known to be a job's: it has a complete checkpoint, or is named like a job's id."""
    return bool(completions.times_ns) or _JOB_ID.fullmatch(name.job) is not None


LAYOUT = FlinkLayout()
"""The one instance that all formats with this layout share."""


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
