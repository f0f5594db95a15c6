"""The state handles in Flink's metadata: which bytes each tag stands for, and what files it names.

Three families, told apart by where they stand: stream handles (where bytes are), keyed handles and operator handles (how
they are to be read). Keyed handles nest in those of the changelog backend, stream handles in one old form; no Flink nests
deeper than ``_DEEPEST``. Sources: F ``MetadataV2V3SerializerBase`` of Flink 2.3 (its tags are the union of all versions),
``ChannelStateHandleSerializerV1`` and ``V2``.
"""

from __future__ import annotations

import enum

from holdfast.checkpoints.formats.flink.changelog_file import CHANGELOG_FILE
from holdfast.checkpoints.formats.flink.java_input import JavaInput
from holdfast.checkpoints.manifests import BrokenError, Trouble
from holdfast.checkpoints.references import ReferenceKind, References

_DEEPEST = 8
"""The limit of nesting. Flink needs three: a changelog's handle holds an incremental one, which holds stream handles."""
_SHORTEST_HANDLE_BYTES = 1
_SHORTEST_NAMED_HANDLE_BYTES = 3
_UNREAD = b"OPTIONS-"
"""RocksDB's record of its settings: Flink fetches it with the rest, so it has to be there, but opens the database with its
own settings. Cut short or empty it is no obstacle, in a file of its own and in a merged one
(``tests/histories/flink_restarts.py``)."""


class Tag(enum.IntEnum):
    """The first byte of a handle, which tells its type."""

    NULL = 0
    INLINE = 1
    FILE = 2
    KEY_GROUPS = 3
    OPERATOR = 4
    INCREMENTAL = 5
    RELATIVE_FILE = 6
    SAVEPOINT_KEY_GROUPS = 7
    CHANGELOG = 8
    CHANGELOG_INLINE = 9
    CHANGELOG_FILES = 10
    INCREMENTAL_2 = 11
    KEY_GROUPS_2 = 12
    CHANGELOG_FILES_2 = 13
    CHANGELOG_2 = 14
    SEGMENT = 15
    EMPTY_SEGMENT = 16
    MERGED_OPERATOR = 17


class ChannelTag(enum.IntEnum):
    """The first byte of a channel's handle, which tells its type, from version 6 on."""

    INPUT = 1
    RESULT = 2
    MERGED_INPUT = 3
    MERGED_RESULT = 4


class Handles:
    """Reads handles from ``data`` and collects what they name. Every method raises ``BrokenError``."""

    def __init__(self, data: JavaInput, references: References) -> None:
        self._data = data
        self._references = references

    def stream(self, depth: int = 0, *, is_read: bool = True, is_changelog: bool = False) -> None:
        """Read where some bytes are. Unless ``is_read``, nobody minds how many there are.

        A changelog's file begins with a byte that its size does not count, and may be compressed.
        """
        data = self._data
        tag = self._tag("stream", depth)
        if tag == Tag.INLINE:  # its name looks like a path, but no such file exists
            data.skip_text()
            data.skip(data.count(1))
        elif tag == Tag.FILE:
            size_bytes = data.int64() + is_changelog
            length = CHANGELOG_FILE if is_changelog else None
            self._references.add(ReferenceKind.FILE, data.text(), size_bytes if is_read else 0, length)
        elif tag == Tag.RELATIVE_FILE:
            path, size_bytes = data.text(), data.int64()
            self._references.add(ReferenceKind.RELATIVE, path, size_bytes if is_read else 0)
        elif tag == Tag.SEGMENT:
            end_bytes = data.int64() + data.int64()  # start, size
            data.skip(4)  # scope
            self._references.add(ReferenceKind.SEGMENT, data.text(), end_bytes if is_read else 0)
            data.skip_text()
        elif tag == Tag.KEY_GROUPS:
            self._key_groups(depth)
        elif tag not in (Tag.NULL, Tag.EMPTY_SEGMENT):
            raise self._unknown("stream", tag)

    def keyed(self, depth: int = 0) -> None:
        """Read a keyed state."""
        data = self._data
        tag = self._tag("keyed", depth)
        if tag in (Tag.KEY_GROUPS, Tag.KEY_GROUPS_2, Tag.SAVEPOINT_KEY_GROUPS):
            self._key_groups(depth)
            if tag == Tag.KEY_GROUPS_2:
                data.skip_text()
        elif tag in (Tag.INCREMENTAL, Tag.INCREMENTAL_2):
            self._incremental(tag, depth)
        elif tag in (Tag.CHANGELOG, Tag.CHANGELOG_2):
            self._changelog(tag, depth)
        elif tag == Tag.CHANGELOG_INLINE:
            self._changelog_inline()
        elif tag in (Tag.CHANGELOG_FILES, Tag.CHANGELOG_FILES_2):
            self._changelog_files(tag, depth)
        elif tag != Tag.NULL:
            raise self._unknown("keyed", tag)

    def operator(self) -> None:
        """Read an operator's state: partitions by name, and where their bytes are."""
        data = self._data
        tag = self._tag("operator", 0)
        if tag == Tag.NULL:
            return
        if tag not in (Tag.OPERATOR, Tag.MERGED_OPERATOR):
            raise self._unknown("operator", tag)
        for _ in data.items(2 + 1 + 4):
            data.skip_text()
            data.skip(1)  # distribution mode
            data.skip_longs()
        if tag == Tag.MERGED_OPERATOR:
            for _ in range(2):  # task-owned, shared
                self._references.add(ReferenceKind.DIRECTORY, data.text())
            data.skip(1)  # whether it is empty
        self.stream()

    def channel(self) -> None:
        """Read an in-flight channel's state as versions 3 to 5 have it."""
        self._data.skip(4 + 4 + 4)  # subtask, channel
        self._data.skip_longs()
        self._data.skip(8)
        self.stream()

    def typed_channel(self) -> None:
        """Read an in-flight channel's state as version 6 has it."""
        tag = self._data.byte()
        if tag in (ChannelTag.INPUT, ChannelTag.RESULT):
            self.channel()
        elif tag in (ChannelTag.MERGED_INPUT, ChannelTag.MERGED_RESULT):
            self._data.skip(4 + 8)  # subtask, size
            self.stream()
            self._data.skip(self._data.count(1))
        else:
            raise self._unknown("channel", tag)

    def _key_groups(self, depth: int) -> None:
        self._data.skip(4)  # first group
        self._data.skip_longs()
        self.stream(depth + 1)

    def _incremental(self, tag: int, depth: int) -> None:
        data = self._data
        data.skip(8)  # checkpoint id
        data.skip_text()  # backend
        data.skip(4 + 4)  # key groups
        if tag == Tag.INCREMENTAL_2:
            data.skip(8)  # checkpointed size
        self.stream(depth + 1)
        for _ in range(2):  # shared, private
            for _ in data.items(_SHORTEST_NAMED_HANDLE_BYTES):
                name = data.text()
                self.stream(depth + 1, is_read=not name.startswith(_UNREAD))
        if tag == Tag.INCREMENTAL_2:
            data.skip_text()  # handle id

    def _changelog(self, tag: int, depth: int) -> None:
        data = self._data
        data.skip(4 + 4 + 8)  # key groups, checkpointed size
        for _ in range(2):  # materialized, not materialized
            for _ in data.items(_SHORTEST_HANDLE_BYTES):
                self.keyed(depth + 1)
        data.skip(8)  # materialization id
        if tag == Tag.CHANGELOG_2:
            data.skip(8)  # checkpoint id
        data.skip_text()  # handle id

    def _changelog_inline(self) -> None:
        data = self._data
        data.skip(4 + 4 + 8 + 8)  # key groups, from, to
        for _ in data.items(4 + 4):
            data.skip(4)  # key group
            data.skip(data.count(1))
        data.skip_text()  # handle id

    def _changelog_files(self, tag: int, depth: int) -> None:
        data = self._data
        data.skip(4 + 4)  # key groups
        for _ in data.items(8 + _SHORTEST_HANDLE_BYTES):
            data.skip(8)  # offset
            self.stream(depth + 1, is_changelog=True)
        data.skip(8 + 8)  # sizes
        data.skip_text()  # handle id
        if tag == Tag.CHANGELOG_FILES_2:
            data.skip_text()  # storage

    def _tag(self, family: str, depth: int) -> int:
        if depth > _DEEPEST:
            raise BrokenError(Trouble.TOO_DEEP, f"a {family} handle at byte {self._data.position_bytes}")
        return self._data.byte()

    def _unknown(self, family: str, tag: int) -> BrokenError:
        at = self._data.position_bytes - 1
        return BrokenError(Trouble.UNKNOWN_TAG, f"{tag} for a {family} handle, at byte {at}")
