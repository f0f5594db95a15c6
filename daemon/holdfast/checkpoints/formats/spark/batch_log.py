"""Reads ``commits/N`` and ``offsets/N``: which attempts wrote the state of a batch, and under which settings it ran.

A line ``vN``, then JSON. A commit of version 2 or 3 carries ``stateUniqueIds``: for each operator, for each partition, the
unique ids of its stores. Sources: S ``CommitLog`` (versions 1 to 3), ``OffsetSeqLog`` (1 and 2), Spark 4.3.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import msgspec

from holdfast.checkpoints.manifests import BrokenError, Manifest, Readable, Trouble, Unreadable, decoder

_LARGEST_BYTES = 32 * 2**20
"""The size limit of a log entry. A commit has 40 bytes for each store, and at most as many stores as ``decoder``
takes values."""
_NEWEST_COMMIT = 3
_NEWEST_OFFSETS = 2
_MOST_SOURCES = 10_000
"""The limit of sources with a log. Nobody has so many in one query."""
_VERSION = re.compile(rb"v([0-9]{1,4})\s*")
_OBJECT_LINE = re.compile(rb"^\{.*$", re.MULTILINE)
_SETTING = "spark.sql.shuffle.partitions"
_LONGEST_NUMBER = 10


@dataclass(frozen=True, slots=True)
class SparkCommit(Manifest):
    """The content of a commit. ``unique_ids`` are by operator and partition, in no particular order of the stores.

    It is None in format 1, whose state files carry no ids.
    """

    version: int
    unique_ids: dict[tuple[int, int], tuple[bytes, ...]] | None


@dataclass(frozen=True, slots=True)
class SparkOffsets(Manifest):
    """The content of an offsets file: the settings that its batch ran with, and where sources were in their logs.

    ``log_offsets`` has, by the number of the source, the sources that keep a log. All other sources have offsets of their
    own kind.
    """

    version: int
    settings: dict[str, str]
    log_offsets: dict[int, int]


class _Commit(msgspec.Struct, frozen=True):
    unique_ids: dict[str, list[list[str]]] | None = msgspec.field(name="stateUniqueIds", default=None)


class _Offsets(msgspec.Struct, frozen=True):
    settings: dict[str, str] = msgspec.field(name="conf", default_factory=dict)


class _SourceOffset(msgspec.Struct, frozen=True):
    log_offset: object = msgspec.field(name="logOffset", default=None)


_decode_commit = decoder(_Commit, "a commit")
_decode_offsets = decoder(_Offsets, "offsets")
_decode_source = decoder(_SourceOffset, "the offset of a source")


def read_spark_commit(stream: Readable, size_bytes: int) -> SparkCommit | Unreadable:
    """Read a commit of ``size_bytes``. Raises only the stream's ``OSError``."""
    try:
        version, first, _ = _lines(stream, size_bytes, _NEWEST_COMMIT)
        if version > 1 and not first:  # Spark takes it for a commit without ids, whose state files are all garbage
            raise BrokenError(Trouble.TRUNCATED, "a commit that ends after its version")
        ids = _decode_commit(first or b"{}").unique_ids
        if ids is None:
            return SparkCommit(version, None)
        by_partition = {
            (operator, partition): tuple(each.encode() for each in stores)
            for operator, partitions in [(_operator(key), value) for key, value in ids.items()]
            for partition, stores in enumerate(partitions)
        }
        return SparkCommit(version, by_partition)
    except BrokenError as broken:
        return broken.result


def read_spark_offsets(stream: Readable, size_bytes: int) -> SparkOffsets | Unreadable:
    """Read an offsets file of ``size_bytes``. Raises only the stream's ``OSError``."""
    try:
        version, first, more = _lines(stream, size_bytes, _NEWEST_OFFSETS)
        if first is None:
            raise BrokenError(Trouble.TRUNCATED, "offsets that end after their version")
        settings = _decode_offsets(first or b"{}").settings
        return SparkOffsets(version, settings, _log_offsets(more))
    except BrokenError as broken:
        return broken.result


def _lines(stream: Readable, size_bytes: int, newest: int) -> tuple[int, bytes | None, bytes]:
    """Return the version, the line after it, which may be empty or missing (None), and what follows."""
    if size_bytes > _LARGEST_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"a log entry of {size_bytes} bytes")
    text = stream.read(size_bytes)
    if len(text) < size_bytes or not text:  # a power cut leaves empty ones: Spark does not sync them
        raise BrokenError(Trouble.TRUNCATED, f"a log entry of {len(text)} bytes")
    head, _, rest = text.partition(b"\n")
    match = _VERSION.fullmatch(head)
    if match is None:
        raise BrokenError(Trouble.FOREIGN, f"a log entry that begins with {head[:20]!r}")
    version = int(match[1])
    if not 1 <= version <= newest:
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{version} of a log entry; up to {newest} can be read")
    first, _, more = rest.partition(b"\n")
    return version, first if rest else None, more


def _log_offsets(lines: bytes) -> dict[int, int]:
    """Read a line for each source, one by one: whoever writes to the bucket may have put millions there."""
    found: dict[int, int] = {}
    source = end = 0
    for line in _OBJECT_LINE.finditer(lines):
        source += lines.count(b"\n", end, line.start())
        end = line.start()
        offset = _decode_source(line[0]).log_offset
        if isinstance(offset, int):
            found[source] = offset
        if len(found) > _MOST_SOURCES:
            raise BrokenError(Trouble.TOO_LARGE, f"offsets of more than {_MOST_SOURCES} sources")
    return found


def _operator(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise BrokenError(Trouble.MALFORMED, f"a commit with an operator {text[:20]!r}")
    return int(text)


def partitions_in_settings(offsets: SparkOffsets | None) -> int:
    """Return the number that a batch's settings name; 0 if they name none."""
    told = (offsets.settings if offsets else {}).get(_SETTING, "")
    return int(told) if told.isdecimal() and len(told) < _LONGEST_NUMBER else 0


def partitions_of_operator(by_metadata: int, by_settings: int, there: int, by_commit: int = 0) -> int:
    """Return how many partitions an operator's state has in a batch; 0 for what is not known.

    Spark takes the number from the settings in the batch's offsets, and an operator that can't be divided, such as a global
    limit, has one. The number in the operator's metadata is that of the query's first start: Spark 4.3's repartitioning of
    state changes the settings alone. Sources: S ``OffsetSeqMetadata``, ``OfflineStateRepartitionRunner`` (Spark 4.3).
    ``there`` is how many have files: it shows only that the operator is divided, for some may be old, and others lost.
    """
    if not by_metadata or not by_settings:
        return max(by_metadata, by_settings, there, by_commit)
    is_divided = max(by_metadata, there, by_commit) > 1
    return max(by_settings, by_commit) if is_divided else 1


def partitions_now(by_metadata: int, there: int, newest_offsets: bytes) -> int:
    """Return the number in the batch whose offsets have these bytes; of damaged ones, what the rest says."""
    read = read_spark_offsets(io.BytesIO(newest_offsets), len(newest_offsets))
    settings = partitions_in_settings(read if isinstance(read, SparkOffsets) else None)
    return partitions_of_operator(by_metadata, settings, there)
