"""The part of a verification that executors do: judging a checkpoint location, or what a manifest of a tree refers to.

The judges are the daemon's own. A location is judged in one piece: a task holds the names of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoints.examination import Asking, Examination, Wanted
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import EngineVersion, Restore
from holdfast.checkpoints.manifests import Unreadable, WholeLength
from holdfast.checkpoints.plans import Kept
from holdfast.checkpoints.reachability import Listed
from holdfast.checkpoints.references import ReferenceKind
from holdfast.checkpoints.sweeps.plan_format import text_of
from holdfast_spark.arrow_forms import LISTED, Form
from holdfast_spark.jobs.manifest_reads import examined, reader_below
from holdfast_spark.jobs.parsed_names import listed_of
from holdfast_spark.stores import StoreAddress, in_parallel

VERDICT = Form(
    name="string",
    what="string",
    is_expired="boolean",
    is_newest="boolean",
    files="bigint",
    broken="bigint",
    because="string",
)
"""The verdict on a batch, checkpoint or savepoint; it can be restored if nothing is ``broken``."""

NEEDED = Form(
    layout="bigint",
    unit="string",
    number="bigint",
    name="string",
    what="string",
    component="string",
    is_directory="boolean",
    least_bytes="bigint",
    length="string",
    because="string",
)
"""A file or directory that a manifest of a tree refers to, by its last component; or ``because``, why it can't be told.

``length`` names the kind of file whose ``least_bytes`` are those before compression (``Formats.compressed``)."""

FOUND = NEEDED.with_columns(least="bigint", spoilt="boolean", file="string")
"""A row of ``NEEDED`` with the smallest file of that last component: its size, and its name."""


class RestoreJudge:
    """Judges what lies below ``root`` of a store; ``spoilt`` are names of corrupt objects, ``engine`` is the Spark
    that restarts (None: the newest). Travels to executors.
    """

    def __init__(
        self,
        address: StoreAddress,
        root: str,
        spoilt: frozenset[bytes] = frozenset(),
        formats: Formats = FORMATS,
        engine: EngineVersion | None = None,
    ) -> None:
        self.formats = formats
        self._address = address
        self.spoilt = spoilt
        self._root = root
        self._engine = engine

    def location(self, key: tuple[Any, ...], table: Any) -> Any:
        """Judge one checkpoint location (``LISTED`` in, ``VERDICT`` out). ``key``: its name, the position of its layout."""
        name, layout = (each.as_py() for each in key)
        listing = map(listed_of, LISTED.rows(table))
        judged = self.formats.locations[layout].restores(name.encode(), listing, None, self.spoilt, self._engine)
        return VERDICT.table(map(_verdict, examined(Examination(judged), reader_below(self._address, self._root))))

    def needed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Read what manifests refer to (``MANIFESTS`` in, ``NEEDED`` out)."""
        form = LISTED.with_columns(layout="bigint", unit="string", completes="bigint")
        read = reader_below(self._address, self._root)
        rows = (row for batch in batches for row in form.rows(batch))

        def one(row: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            *listed, layout, unit, number = row
            found = examined(Examination(self._of_manifest(listed_of(tuple(listed)), layout)), read)
            return [(layout, unit, number, *each) for each in found]

        yield from NEEDED.batches(each for found in in_parallel(one, rows) for each in found)

    def lengths(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Put in place of a compressed file's size the one before compression (``FOUND`` in and out)."""
        read = reader_below(self._address, self._root)

        def one(row: tuple[Any, ...]) -> tuple[Any, ...]:
            *needed, least_bytes, length, because, least, spoilt, file = row
            if length is not None and least not in (None, least_bytes):
                found = read(Wanted(file.encode(), self.formats.compressed[length], least))
                because = f"{file}: {found}" if isinstance(found, Unreadable) else None
                least = found.size_bytes if isinstance(found, WholeLength) else least
            return (*needed, least_bytes, length, because, least, spoilt, file)

        for batch in batches:
            if batch.column("length").null_count == batch.num_rows:  # none of them may be compressed, as mostly
                yield batch
            else:
                yield from FOUND.batches(in_parallel(one, FOUND.rows(batch)))

    def _of_manifest(self, listed: Listed, layout: int) -> Asking[list[tuple[Any, ...]]]:
        tree = self.formats.trees[layout]
        name = tree.parse(listed)
        if name is None:
            return []
        answers = yield [Wanted(listed.name, self.formats.manifests[layout], listed.size_bytes)]
        manifest = answers[listed.name]
        retained = tree.restorable(name, manifest)
        if retained is None:
            return []
        called = retained.name.decode(), retained.what
        references = tree.references_of(name, manifest)
        if listed.name in self.spoilt or isinstance(manifest, Unreadable) or isinstance(references, Kept):
            why = "its bytes are not those that its digest was made of" if listed.name in self.spoilt else str(manifest)
            return [(*called, None, False, 0, None, f"{listed.name.decode()}: {why}")]
        return [
            (
                *called,
                text_of(each.last_component),
                each.kind is ReferenceKind.DIRECTORY,
                each.least_bytes,
                each.length.name if each.length else None,
                None,
            )
            for each in references
        ] or [(*called, None, False, 0, None, None)]


def _verdict(restore: Restore) -> tuple[Any, ...]:
    first = next((f"{text_of(fault.name)}: {fault.why}" for fault in restore.faults), None)
    return (
        text_of(restore.name),
        restore.what,
        restore.is_expired,
        restore.is_newest,
        len(set(restore.files())),
        len(restore.faults),
        first,
    )
