"""Reads Flink's ``_metadata``: what a checkpoint or savepoint consists of.

Versions 2 to 6 are read to their last byte. Version 1 (Flink 1.2 and older) is refused as every Flink since does; so is any
newer one. Inline state is skipped, never held: memory does not grow with it. Sources: F ``Checkpoints``,
``MetadataV2Serializer`` to ``MetadataV6Serializer`` (Flink 2.3.0).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.checkpoints.formats.flink.handles import Handles
from holdfast.checkpoints.formats.flink.java_input import JavaInput, skip_object
from holdfast.checkpoints.manifests import BrokenError, Manifest, Readable, Trouble, Unreadable
from holdfast.checkpoints.references import Reference, References

MAGIC = b"\x49\x60\x67\x2d"
_MASTER_STATE_MAGIC = -0x3694E96A  # 0xc96b1696
_READABLE = range(2, 7)
_OPERATOR_NAMES_FROM = 5
_PROPERTIES_FROM = 4
_TYPED_CHANNELS_FROM = 6
_LARGEST_BYTES = 2**30
"""The size limit of a file. Only state of at most 20 kB a handle is inline, so no real metadata is larger."""
_LARGEST_PROPERTIES_BYTES = 2**16
"""The size limit of the properties at the end, which have a kilobyte in all versions of Flink."""
_SHORTEST_OPERATOR_BYTES = 8 + 8 + 4 + 4 + 1 + 4
_SHORTEST_SUBTASK_BYTES = 4
_FINISHED = -1
"""The value in place of an operator's number of subtasks when all of the operator has finished."""


@dataclass(frozen=True, slots=True)
class FlinkMetadata(Manifest):
    """The content of a checkpoint's or savepoint's metadata, without inline state."""

    version: int
    checkpoint: int
    references: frozenset[Reference]


def read_flink_metadata(stream: Readable, size_bytes: int) -> FlinkMetadata | Unreadable:
    """Read ``size_bytes`` of ``stream``. Raises only the stream's ``OSError``."""
    try:
        return _read(JavaInput(stream, size_bytes))
    except BrokenError as broken:
        return broken.result


def _read(data: JavaInput) -> FlinkMetadata:
    if data.left_bytes > _LARGEST_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"{data.left_bytes} bytes")
    magic = data.take(len(MAGIC))
    if magic != MAGIC:
        raise BrokenError(Trouble.FOREIGN, f"it begins with {magic.hex()}, not with {MAGIC.hex()}")
    version = data.int32()
    if version not in _READABLE:
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{version}; versions {_READABLE[0]} to {_READABLE[-1]} can be read")
    checkpoint = data.int64()
    if checkpoint < 0:
        raise BrokenError(Trouble.MALFORMED, f"checkpoint {checkpoint}")
    for _ in data.items(4 + 4):
        _skip_master_state(data)
    references = References()
    body = _Body(data, Handles(data, references), version)
    for _ in data.items(_SHORTEST_OPERATOR_BYTES):
        body.operator()
    if version >= _PROPERTIES_FROM:
        if data.left_bytes > _LARGEST_PROPERTIES_BYTES:
            raise BrokenError(
                Trouble.TRAILING, f"{data.left_bytes} bytes after the operators, at byte {data.position_bytes}"
            )
        skip_object(data)
    if data.left_bytes:
        raise BrokenError(Trouble.TRAILING, f"{data.left_bytes} bytes after the end, at byte {data.position_bytes}")
    return FlinkMetadata(version, checkpoint, frozenset(references))


def _skip_master_state(data: JavaInput) -> None:
    at = data.position_bytes
    if data.int32() != _MASTER_STATE_MAGIC:
        raise BrokenError(Trouble.MALFORMED, f"no master state at byte {at}")
    data.skip(data.count(1))


class _Body:
    """Reads the operators, in the encoding of one version."""

    def __init__(self, data: JavaInput, handles: Handles, version: int) -> None:
        self._data = data
        self._handles = handles
        self._version = version

    def operator(self) -> None:
        data = self._data
        if self._version >= _OPERATOR_NAMES_FROM:
            data.skip_text()
            data.skip_text()
        data.skip(8 + 8 + 4 + 4)  # id, parallelism, maximum parallelism
        if self._version == 2:
            data.skip(4)  # length of the chain, unused
            for _ in data.items(_SHORTEST_SUBTASK_BYTES):
                data.skip(4)
                self._subtask_of_version_2()
            return
        self._handles.stream()  # the coordinator's
        for _ in data.items(_SHORTEST_SUBTASK_BYTES, _FINISHED):
            if data.int32() >= 0:  # a negative one has finished
                self._subtask()

    def _subtask_of_version_2(self) -> None:
        self._data.skip(8)  # duration
        if self._data.int32() > 0:
            raise BrokenError(Trouble.UNKNOWN_TAG, f"state of Flink 1.1, before byte {self._data.position_bytes}")
        self._states()

    def _subtask(self) -> None:
        self._states()
        channel: Callable[[], None] = self._handles.channel
        if self._version >= _TYPED_CHANNELS_FROM:
            channel = self._handles.typed_channel
        for _ in range(2):  # input channels, result partitions
            for _ in self._data.items(1):
                channel()

    def _states(self) -> None:
        for _ in range(2):  # managed, raw
            if self._data.int32() != 0:
                self._handles.operator()
        for _ in range(2):  # managed, raw
            self._handles.keyed()
