"""The records of the index and their format on disk (msgpack arrays; new fields only at the end, with a default)."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Collection
from typing import Annotated

import msgspec


class EntryState(enum.IntEnum):
    """The state of a file in the tree. The values are stored on disk: never renumber them."""

    CLEAN = 1
    """The file is complete, and the store has the same bytes under each of its object names."""
    DIRTY = 2
    """The file is being written, or was written and is not in the store yet."""
    UPLOADING = 3
    """The file is being sent to the store; after a crash it counts as dirty."""
    LOCAL = 4
    """The file is never sent, and its digest is known."""
    OPEN = 5
    """The file was CLEAN or LOCAL, or was just sent, and may change unseen as long as it is open for writing.

    The next look at it, at the latest by the next daemon, tells whether it has changed. If not, its digest holds.
    """


INTACT = frozenset({EntryState.CLEAN, EntryState.LOCAL})
"""The states of files whose bytes are those of the digest."""
UNSENT = frozenset({EntryState.DIRTY, EntryState.UPLOADING})
"""The states of files whose bytes no store has, as far as is known. Their entries have no digest."""

TRANSITIONS: dict[EntryState | None, frozenset[EntryState]] = {
    None: frozenset(EntryState) - {EntryState.UPLOADING},
    EntryState.CLEAN: frozenset({EntryState.CLEAN, EntryState.DIRTY, EntryState.OPEN}),
    EntryState.DIRTY: frozenset({EntryState.DIRTY, EntryState.UPLOADING, EntryState.LOCAL, EntryState.CLEAN}),
    EntryState.UPLOADING: frozenset({EntryState.CLEAN, EntryState.DIRTY, EntryState.OPEN}),
    EntryState.LOCAL: frozenset({EntryState.LOCAL, EntryState.DIRTY, EntryState.OPEN}),
    EntryState.OPEN: frozenset({EntryState.OPEN, EntryState.DIRTY, EntryState.CLEAN, EntryState.LOCAL}),
}
"""The allowed transitions. DIRTY to CLEAN happens only if a rebuild finds the same bytes in the store."""


class CachedName(msgspec.Struct, array_like=True, frozen=True):
    """One object that a file is a copy of.

    ``path`` is the file's path in the tree, ``etag`` the store's identifier of the version, ``modified_ns`` its
    last-modified time in the store (0: the file's mtime is not set to it yet).
    """

    path: bytes
    etag: str
    modified_ns: int = 0


class Entry(msgspec.Struct, array_like=True):
    """The index's record of one file in the tree, stored under its inode number; hard links share it.

    It is valid only as long as size and ctime match those of the file; otherwise the bytes must be hashed again.
    ``digest`` is 16 bytes, or empty while unknown. ``verified_run`` is the daemon run that last hashed the file,
    ``used_ns`` the time of the last open, ``path`` the location of the file when its bytes last changed. ``on_probation``:
    fetched, and not opened again since (``capacity.policy``). ``mtime_is_set``: ``mtime_ns`` was set by a user, and stays.
    """

    state: EntryState
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]
    mtime_ns: int
    ctime_ns: int
    digest: bytes = b""
    names: list[CachedName] = msgspec.field(default_factory=list)
    verified_run: int = 0
    used_ns: int = 0
    path: bytes = b""
    on_probation: bool = False
    mtime_is_set: bool = False

    def describes(self, stat: os.stat_result) -> bool:
        """Say whether the entry matches the file as it is now: then its bytes are those that were hashed."""
        return (self.size_bytes, self.ctime_ns) == (stat.st_size, stat.st_ctime_ns)

    @property
    def is_unsent(self) -> bool:
        """True if no store has the bytes, as far as is known."""
        return self.state in UNSENT

    def become(self, state: EntryState) -> None:
        """Change the state; an unsent file has no digest. Raises ``ValueError`` if the table does not allow it."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"an entry can't go from {self.state.name} to {state.name}")
        self.state = state
        if state in UNSENT:
            self.digest = b""

    def name_at(self, path: bytes) -> CachedName | None:
        """Return the object name that the file has at ``path``."""
        for name in self.names:
            if name.path == path:
                return name
        return None

    def set_name(self, name: CachedName) -> None:
        """Add an object name, or replace the one at the same path."""
        if not self.names or (len(self.names) == 1 and self.names[0].path == name.path):  # nearly always
            self.names = [name]
        else:
            self.names = [other for other in self.names if other.path != name.path] + [name]

    def drop_name(self, path: bytes) -> None:
        """Forget the object name at ``path``, if there is one."""
        self.names = [name for name in self.names if name.path != path]


class EntrySize(msgspec.Struct, array_like=True, gc=False):
    """The first fields of an ``Entry``."""

    state: int
    size_bytes: int


HELD_BY_VOLUME = -1


class WorkdirRecord(msgspec.Struct, array_like=True):
    """A working directory: which process holds it (``pid`` 0: none), and since when, in seconds.

    Where a volume holds it, ``pid_started_ticks`` is ``HELD_BY_VOLUME``, and ``command`` has its id, a space, and its pod:
    the record has the same form as before there were such.
    """

    role: str
    resource_id: str
    created_seconds: float
    acquired_seconds: float
    released_seconds: float = 0.0
    pid: int = 0
    pid_started_ticks: int = 0
    command: str = ""
    acquisitions: int = 1

    @property
    def volume(self) -> str:
        """The id of the volume that holds it; "": none does."""
        return self.command.partition(" ")[0] if self.pid_started_ticks == HELD_BY_VOLUME else ""


encoded: Callable[[Entry | WorkdirRecord | CachedName], bytes] = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode_size = msgspec.msgpack.Decoder(EntrySize).decode
_decode_name = msgspec.msgpack.Decoder(CachedName).decode
_decode_workdir = msgspec.msgpack.Decoder(WorkdirRecord).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def decoded_entry(data: bytes | None) -> Entry | None:
    """Read what ``encoded`` wrote; a record that is missing or damaged is None."""
    try:
        return None if data is None else _decode_entry(data)
    except _UNREADABLE:
        return None


def decoded_size(data: bytes) -> EntrySize | None:
    """Read state and size of what ``encoded`` wrote: three times as fast as ``decoded_entry``. None if it is damaged."""
    try:
        return _decode_size(data)
    except _UNREADABLE:
        return None


def may_have_state(data: bytes, states: Collection[EntryState]) -> bool:
    """Say, without decoding it, whether an entry has one of ``states``, if it is not damaged."""
    return len(data) > 1 and data[1] in states


def decoded_name(data: bytes) -> CachedName | None:
    """Read what ``encoded`` wrote; a record that is damaged is None."""
    try:
        return _decode_name(data)
    except _UNREADABLE:
        return None


def decoded_workdir(data: bytes | None) -> WorkdirRecord | None:
    """Read what ``encoded`` wrote; a record that is missing or damaged is None."""
    try:
        return None if data is None else _decode_workdir(data)
    except _UNREADABLE:
        return None
