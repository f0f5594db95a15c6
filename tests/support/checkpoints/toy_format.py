"""A third checkpoint format, as small as one can be: what a new format has to bring, and all that it has to bring.

Its tree: ``JOB/ckpt-<n>/MANIFEST`` is a text, ``toy 1`` and then a line for each file in ``JOB/data/`` that the checkpoint
needs. Its locations: a directory with ``TABLE`` and ``log/<n>`` is a table; ``log/<n>`` finishes version n, of which
``part-<p>/<n>`` are the partitions. ``JOB/scratch/…`` are groups of which only the newest file stays.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from holdfast.checkpoints.examination import Asking
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import (
    OTHER,
    Batch,
    Completions,
    Copied,
    Counted,
    EngineVersion,
    Evidence,
    Fault,
    FetchReferences,
    FinishedBatch,
    Format,
    Found,
    GroupLayout,
    ListDirectories,
    LocationLayout,
    ReadAhead,
    Restore,
    Retained,
    Role,
    StatePartition,
    TreeLayout,
)
from holdfast.checkpoints.manifests import Manifest, MetadataReader, Trouble, Unreadable
from holdfast.checkpoints.plans import Kept, Listed, Phase, PlanBuilder, Reason
from holdfast.checkpoints.references import Reference, ReferenceKind
from holdfast.errors import PlanError
from holdfast.zones import NameKind
from tests.support.checkpoints.roots import DAY, Root

FIRST_LINE = b"toy 1\n"
_MANIFEST = re.compile(rb"(?P<job>.+)/ckpt-(?P<number>[0-9]+)/MANIFEST")
_DIRECTORY = re.compile(rb"(?P<job>.+)/ckpt-(?P<number>[0-9]+)")
_DATA = re.compile(rb"(?P<job>.+)/data/[^/]+")
_LOG = re.compile(rb"(?:(?P<location>.+)/)?log/(?P<number>[0-9]+)")
_PARTITION = re.compile(rb"part-(?P<partition>[0-9]+)/(?P<version>[0-9]+)")


def manifest(*files: str) -> bytes:
    return FIRST_LINE + "".join(f"{file}\n" for file in files).encode()


@dataclass(frozen=True)
class ToyManifest(Manifest):
    references: frozenset[Reference]


def read_toy_manifest(stream: BinaryIO, size_bytes: int) -> Manifest:
    text = stream.read(size_bytes)
    if not text.startswith(FIRST_LINE):
        return Unreadable(Trouble.FOREIGN, "no manifest of a toy")
    lines = text[len(FIRST_LINE) :].splitlines()
    return ToyManifest(frozenset(Reference(ReferenceKind.RELATIVE, b"data/" + line) for line in lines))


@dataclass(frozen=True)
class ToyName:
    name: bytes
    role: Role
    job: bytes
    checkpoint: int | None
    is_appended: bool = False

    @property
    def completes(self) -> bool:
        return self.role is Role.MANIFEST

    @property
    def checkpoint_name(self) -> bytes:
        return b"%s/ckpt-%d" % (self.job, self.checkpoint or 0)


class ToyTree(TreeLayout[ToyName]):
    named_by = "the directory ckpt-<n> of a toy"
    manifest = "toy manifest"
    can_be_copied = "none can"
    purposes = ("toy data",)

    def parse(self, listed: Listed) -> ToyName | None:
        if listed.is_directory:
            return _named(Role.DIRECTORY, _DIRECTORY.fullmatch(listed.name))
        return _named(Role.MANIFEST, _MANIFEST.fullmatch(listed.name)) or _named(
            Role.CANDIDATE, _DATA.fullmatch(listed.name)
        )

    def checkpoint_named(self, name: bytes) -> ToyName | None:
        return _named(Role.MANIFEST, _MANIFEST.fullmatch(name + b"/MANIFEST"))

    def references_of(self, name: ToyName, manifest: Manifest) -> Collection[Reference] | Kept:
        if isinstance(manifest, ToyManifest):
            return manifest.references
        return Kept(name.name, "no toy is judged")

    def sweep_unreferenced(
        self, listed: Listed, name: ToyName, completions: Completions, silent_since_ns: int, builder: PlanBuilder
    ) -> None:
        if builder.is_old(listed) and completions.after(listed):
            builder.add(listed, Reason.UNREFERENCED, self.about(name))

    def is_superfluous(self, listed: Listed, name: ToyName, completions: Completions, builder: PlanBuilder) -> bool:
        return builder.is_old(listed) and completions.after(listed, above=name.checkpoint or 0)

    def restorable(self, name: ToyName, manifest: Manifest | None) -> Retained:
        return Retained(name.checkpoint_name, "checkpoint")

    def about(self, name: ToyName) -> str:
        return f"toy {name.job.decode()}"

    def census(self, files: Iterable[tuple[Listed, ToyName]]) -> Iterator[Counted]:
        data: defaultdict[bytes, list[Listed]] = defaultdict(list)
        for listed, name in files:
            if name.checkpoint is not None:
                found = Found.of(name.checkpoint_name, "checkpoint", [listed], is_complete=True)
                yield Counted(name.job, name.checkpoint, found)
            else:
                data[name.job].append(listed)
        for job, shared in data.items():
            yield Counted(job, -1, Found.of(job + b"/data", "shared", shared, is_complete=True))

    def usage_of(self, name: ToyName) -> tuple[bytes, str]:
        return name.job, "toy data" if name.checkpoint is None else OTHER


class ToyTables(LocationLayout):
    title = "toy table"
    named_by = "log/<n> of a toy table"
    marks = frozenset({"table", "log"})
    lasting_marks = frozenset({"log"})
    purposes = ("toy partitions",)
    entry = b"TABLE"
    set_aside = b"aside"

    def evidence(self, listed: Listed) -> Evidence | None:
        directory, _, last = listed.name.rpartition(b"/")
        if last == b"TABLE":
            return Evidence(directory, "table")
        match = _LOG.fullmatch(listed.name)
        return Evidence(match["location"] or b"", "log") if match else None

    def sweep(self, location: bytes, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        listing = list(listing)
        newest = max(int(match["number"]) for each in listing if (match := _LOG.fullmatch(each.name)))
        for listed in listing:
            match = _PARTITION.fullmatch(_below(location, listed.name))
            if match is not None and int(match["version"]) < newest and builder.is_old(listed):
                builder.add(listed, Reason.EXPIRED_VERSION, "toy partition")
        yield from ()

    def census(self, location: bytes, listing: Iterable[Listed]) -> Iterator[Counted]:
        for listed in listing:
            if match := _LOG.fullmatch(listed.name):
                yield Counted(location, int(match["number"]), Found.of(listed.name, "batch", [listed], is_complete=True))

    def batch_of(self, name: bytes) -> Batch | None:
        match = _LOG.fullmatch(name)
        return Batch(match["location"] or b"", int(match["number"])) if match else None

    def batches_to_drop(self, listing: Iterable[Listed], number: int, *, all_before: bool) -> tuple[bytes, ...]:
        if b"log/%d" % number not in {listed.name for listed in listing}:
            raise PlanError(f"there is no log/{number}")
        return (b"log/%d" % number,)

    def drop(self, location: bytes, listing: Iterable[Listed], last: int, builder: PlanBuilder) -> Asking[None]:
        for listed in listing:
            if (match := _LOG.fullmatch(listed.name)) and int(match["number"]) <= last:
                builder.add(listed, Reason.DROPPED, "toy log", Phase.MANIFEST)
        yield from ()

    def later(self, location: bytes, listing: Iterable[Listed], batch: int) -> list[list[Listed]]:
        return [
            [each for each in listing if (match := pattern.fullmatch(_below(location, each.name))) and int(match[2]) > batch]
            for pattern in (_PARTITION, _LOG)
        ]

    def copied(self, location: bytes, listing: Iterable[Listed], batch: int) -> Asking[Copied]:
        yield from ()
        gone = {each.name for step in self.later(location, listing, batch) for each in step}
        return Copied([each for each in listing if each.name not in gone and not each.name.endswith(self.entry)], [])

    def moved(self, content: bytes, source: bytes, target: bytes) -> bytes:
        return content

    def new_entry(self, content: bytes, new_id: str) -> bytes:
        return new_id.encode()

    def purpose_of(self, name: bytes) -> str:
        return "toy partitions" if _PARTITION.fullmatch(name) else OTHER

    def state_of(self, name: bytes) -> StatePartition | FinishedBatch | None:
        if match := _LOG.fullmatch(name):
            return FinishedBatch(int(match["number"]))
        match = _PARTITION.fullmatch(name)
        return StatePartition(0, int(match["partition"])) if match else None

    def state_to_read(self, location: bytes, files: Sequence[Listed], version: int) -> Asking[list[bytes]]:
        yield from ()
        return [file.name for file in files if file.name.endswith(b"/%d" % version)]

    def restores(
        self,
        location: bytes,
        listing: Iterable[Listed],
        batch: int | None,
        spoilt: Collection[bytes],
        engine: EngineVersion | None = None,
    ) -> Asking[list[Restore]]:
        there = {_below(location, listed.name) for listed in listing} - {_below(location, name) for name in spoilt}
        partitions = sorted({name.partition(b"/")[0] for name in there if _PARTITION.fullmatch(name)})
        numbers = sorted(int(match["number"]) for name in there if (match := _LOG.fullmatch(name)))
        found = []
        for number in numbers if batch is None else [batch]:
            reads = [b"TABLE", *(b"%s/%d" % (partition, number) for partition in partitions)]
            faults = tuple(Fault(name, "it is not there", is_missing=True) for name in reads if name not in there)
            found.append(Restore(b"%s/log/%d" % (location, number), "batch", faults, reads=(tuple(reads),)))
        yield from ()
        return found


class ToyScratch(GroupLayout):
    def group_of(self, listed: Listed) -> bytes | None:
        directory = listed.name.rpartition(b"/")[0]
        return directory if directory.endswith(b"/scratch") and not listed.is_directory else None

    def sweep(self, listing: Iterable[Listed], builder: PlanBuilder) -> Asking[None]:
        for listed in sorted(listing, key=lambda each: each.mtime_ns)[:-1]:
            builder.add(listed, Reason.TEMPORARY, "toy scratch")
        yield from ()


def _named(role: Role, match: re.Match[bytes] | None) -> ToyName | None:
    if match is None:
        return None
    number = match.groupdict().get("number")
    return ToyName(match[0], role, match["job"], None if number is None else int(number))


def _below(location: bytes, name: bytes) -> bytes:
    return name[len(location) + 1 :] if location else name


def _read_ahead(name: bytes) -> ReadAhead | None:
    if name == b"TABLE":
        return ListDirectories((b"log",), evidence=b"log")
    return FetchReferences(_names) if name == b"MANIFEST" else None


def _names(file: BinaryIO, size_bytes: int) -> list[bytes]:
    read = read_toy_manifest(file, size_bytes)
    return sorted(b"../" + each.path for each in read.references) if isinstance(read, ToyManifest) else []


TOY = Format(
    name="toy",
    name_kinds={NameKind.WRITE_ONCE: ("**/ckpt-<n>/MANIFEST",), NameKind.TEMPORARY: ("**/*.part",)},
    temporary_names=(re.compile(rb"(.+)\.part"),),
    logs=(re.compile(rb"(.+)/log"),),
    read_ahead=_read_ahead,
    locations=ToyTables(),
    groups=ToyScratch(),
    tree=ToyTree(),
    metadata=MetadataReader(FIRST_LINE, read_toy_manifest),
)

WITH_TOY = Formats(*FORMATS.formats, TOY)
"""The registry, with one line more."""


TOYS_GO = {"toy/data/orphan", "toy/ckpt-1", "tables/t/part-0/1", "toy/scratch/old"}
"""What of ``toys`` no checkpoint needs."""


def toys() -> Root:
    """Return the root of a toy job with two checkpoints, and of a toy table, each with garbage that is days old."""
    root = Root()
    for name in ("a", "b", "c", "orphan"):
        root.write(f"toy/data/{name}", age_ns=5 * DAY)
    root.write("toy/data/young")
    root.write("toy/ckpt-2/MANIFEST", manifest("a", "b"), age_ns=3 * DAY)
    root.write("toy/ckpt-3/MANIFEST", manifest("b", "c"), age_ns=2 * DAY)
    root.write("toy/scratch/old", age_ns=3 * DAY)
    root.write("toy/scratch/new", age_ns=2 * DAY)
    for directory in ("toy/ckpt-1", "toy/ckpt-2", "toy/ckpt-3"):
        root.mkdir(directory, age_ns=4 * DAY)
    root.write("tables/t/TABLE")
    for version in (1, 2):
        root.write(f"tables/t/log/{version}", age_ns=2 * DAY)
        root.write(f"tables/t/part-0/{version}", age_ns=3 * DAY)
    return root
