"""Reads the small files that a restarted query reads beside its state, to tell whether they are whole.

``metadata`` is JSON with the query's id. A source's log has a line ``vN`` and then a line of JSON for each thing that the
source has seen. ``_metadata/metadata`` and ``_metadata/v2/N`` say which stores an operator has; ``schema`` is Java's UTF.
``N.crc`` is Spark's checksum of a state file, with its size. Sources: S ``StreamMetadata``, ``HDFSMetadataLog``,
``CompactibleFileStreamLog``, ``OperatorStateMetadata``, ``SchemaHelper``, ``ChecksumCheckpointFileManager`` (Spark 4.3).
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from holdfast.checkpoints.manifests import BrokenError, Manifest, Reader, Trouble, Unreadable, decoder

_LARGEST_BYTES = 4 * 2**20
_TAIL_BYTES = 64 * 1024
"""The part of a source's log that is read. Entries for compacted batches may be large; the last line tells whether one was
cut short."""
_VERSION = re.compile(rb"v[0-9]{1,4}\s*")
_SCHEMA_VERSION = re.compile(rb"\0\x02v([0-9])")
_CHUNKED_SCHEMA = b"2"


@dataclass(frozen=True, slots=True)
class WholeFile(Manifest):
    """A file that was read to its end, or whose end is as it has to be."""


@dataclass(frozen=True, slots=True)
class OperatorStores(Manifest):
    """The stores of an operator, by name, each with the number of its partitions; and the schema files that it names."""

    stores: tuple[tuple[bytes, int], ...]
    schema_files: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SparkChecksum(Manifest):
    """The size of a state file, as Spark's checksum file has it."""

    size_bytes: int


class _QueryMetadata(msgspec.Struct, frozen=True):
    id: str


class _StoreInfo(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name="storeName")
    partitions: int = msgspec.field(name="numPartitions")
    schema_files: list[str] = msgspec.field(name="stateSchemaFilePaths", default_factory=list)


class _Operator(msgspec.Struct, frozen=True):
    stores: list[_StoreInfo] = msgspec.field(name="stateStoreInfo")


class _Checksum(msgspec.Struct, frozen=True):
    size_bytes: int = msgspec.field(name="mainFileSize")


_decode_query = decoder(_QueryMetadata, "a query's metadata")
_decode_operator = decoder(_Operator, "an operator's metadata")
_decode_checksum = decoder(_Checksum, "a checksum")
_decode_anything = decoder(object, "an entry of a source's log")
_NO_FILE = WholeFile()


def _query_metadata(text: bytes) -> Manifest:
    _decode_query(text)
    return _NO_FILE


def _operator(text: bytes) -> Manifest:
    stores = _decode_operator(_after_version(text)).stores
    return OperatorStores(
        tuple((store.name.encode(), store.partitions) for store in stores),
        tuple(path.encode() for store in stores for path in store.schema_files),
    )


def with_schema_files(text: bytes, moved: Callable[[str], str]) -> bytes:
    """Return an operator's metadata with ``moved`` of each path of a schema. Raises ``BrokenError`` when it is none."""
    _operator(text)  # all that is read below is there
    try:
        found = msgspec.json.decode(_after_version(text), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:  # in what is not read
        raise BrokenError(Trouble.MALFORMED, f"an operator's metadata: {problem}") from None
    for store in found["stateStoreInfo"]:
        store["stateSchemaFilePaths"] = [moved(path) for path in store.get("stateSchemaFilePaths", ())]
    return text.partition(b"\n")[0] + b"\n" + msgspec.json.encode(found)


def _checksum(text: bytes) -> Manifest:
    return SparkChecksum(_decode_checksum(text).size_bytes)


def _schema(text: bytes) -> Manifest:
    """Read a schema: versions 1 and 2 are two schemas in JSON, 2 in chunks; what comes after these is not followed."""
    match = _SCHEMA_VERSION.match(text)
    if match is None:
        raise BrokenError(Trouble.FOREIGN, f"a schema that begins with {text[:8]!r}")
    if match[1] == _CHUNKED_SCHEMA:
        rest = io.BytesIO(text[match.end() :])
        for _ in ("key", "value"):
            for _ in range(_number(rest, 4)):
                length = _number(rest, 2)
                if len(rest.read(length)) < length:
                    raise BrokenError(Trouble.TRUNCATED, f"a schema of {len(text)} bytes")
    return _NO_FILE


def _number(stream: BinaryIO, size_bytes: int) -> int:
    raw = stream.read(size_bytes)
    if len(raw) < size_bytes:
        raise BrokenError(Trouble.TRUNCATED, "a schema that ends within a number")
    return int.from_bytes(raw, "big")


def _after_version(text: bytes) -> bytes:
    head, _, rest = text.partition(b"\n")
    if not _VERSION.fullmatch(head):
        raise BrokenError(Trouble.FOREIGN, f"it begins with {head[:20]!r}")
    return rest


def _reading(parse: Callable[[bytes], Manifest]) -> Reader:
    def read(stream: BinaryIO, size_bytes: int) -> Manifest:
        try:
            if size_bytes > _LARGEST_BYTES:
                raise BrokenError(Trouble.TOO_LARGE, f"{size_bytes} bytes")
            text = stream.read(size_bytes)
            if len(text) < size_bytes or not text:
                raise BrokenError(Trouble.TRUNCATED, f"{len(text)} bytes")
            return parse(text)
        except BrokenError as broken:
            return broken.result

    return read


read_query_metadata = _reading(_query_metadata)
read_operator_metadata = _reading(_operator)
read_spark_checksum = _reading(_checksum)
read_state_schema = _reading(_schema)


def read_source_log(stream: BinaryIO, size_bytes: int) -> Manifest:
    """Look at the first and the last line of a source's log entry. Raises only the stream's ``OSError``."""
    try:
        if not size_bytes:
            raise BrokenError(Trouble.TRUNCATED, "an empty entry of a source's log")
        head = stream.read(min(size_bytes, _TAIL_BYTES))
        _after_version(head)
        stream.seek(max(0, size_bytes - _TAIL_BYTES))
        last = stream.read(_TAIL_BYTES).rstrip(b"\n").rpartition(b"\n")[2]
        if last.startswith(b"{"):  # what other sources write is theirs to judge
            _decode_anything(last)
        return _NO_FILE
    except BrokenError as broken:
        return Unreadable(broken.result.trouble, broken.result.detail)
