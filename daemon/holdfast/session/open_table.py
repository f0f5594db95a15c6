"""Open files, as the kernel counts them: a table of fixed slots in a mapped file.

A slot is four words of 64 bits. Each change is one aligned store of one word, so a daemon that is killed between any two
of them leaves a consistent table:

- the node's id; 0 while the slot is free;
- how many handles the kernel has, and the number of the request that changed this last, so that the next daemon knows
  whether that request, if it is resent, is already counted;
- the backing id, two flags, and a mark of the version that was read;
- the user whose limit of open files it counts against, how many of the handles are of running programs, and a flag.

The place of the first slot has the format, and the number of the request that was counted last. Of all that are counted,
this one alone may be unanswered when the daemon is killed.

A new slot gets its node's id, and last its first handle. A slot that has a node and no handles belongs to a file whose last
handle was released, but whose release is not complete. A store takes about 0.1 µs, a record in LMDB 4.

In the previous format, slots had no user. Such a table is replaced, in one rename, when it is opened.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import TakeoverError

_MAGIC = int.from_bytes(b"HFOPENS2", "little")
_MAGIC_WITHOUT_USERS = int.from_bytes(b"HFOPENS1", "little")
_WORD_BYTES = 8
_WORDS = 4
_WORDS_WITHOUT_USERS = 3
_SLOT_BYTES = _WORDS * _WORD_BYTES
_COUNTED_LAST = 1
"""The word with the number of the request that was counted last; 0 in a table of an earlier version."""
_FIRST_SLOTS = 1024
_NUMBER_BITS = 40
NUMBER_MASK = (1 << _NUMBER_BITS) - 1
"""The bits of a request's number that are kept: enough for months of requests."""


_ID_MASK = (1 << 32) - 1
_WRITES = 1 << 32
_EXCLUSIVE = 1 << 33
_VERSION_SHIFT = 34
_PROGRAMS_SHIFT = 32
_STRANGERS = 1 << 63
_VERSION_BITS = 30


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """One slot. ``backing_id`` is 0 if the daemon serves the data.

    The rest is what the next daemon can't see in the file. ``writes``: a handle that may write was handed out.
    ``exclusive``: the file was created with O_EXCL. ``version``: the mark (``version_mark``) of the version that was read
    while it was arriving, else 0. ``uid``: the user it counts for (``OpenFile.charged_uid``), 0 if none.
    ``programs``: how many of the handles are of running programs. ``has_strangers``: as ``OpenFile.has_strangers``.
    ``may_be_unanswered``: the request that changed the slot last is not known to be answered.
    """

    slot: int
    node_id: int
    handles: int
    backing_id: int
    writes: bool
    exclusive: bool
    version: int = 0
    uid: int = 0
    programs: int = 0
    may_be_unanswered: bool = False
    has_strangers: bool = False


def version_mark(etag: str) -> int:
    """Return a number that identifies a version in a slot; never 0."""
    return zlib.crc32(etag.encode()) & (1 << _VERSION_BITS) - 1 or 1


def _foreign(path: Path) -> TakeoverError:
    return TakeoverError(f"{path} is no table of open files of this version")


def _add_users(path: Path) -> None:
    """Replace a table of the previous format, if there is one, by one with the same slots, which count for nobody."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    slot_bytes = _WORDS_WITHOUT_USERS * _WORD_BYTES
    if not data.startswith(_MAGIC_WITHOUT_USERS.to_bytes(_WORD_BYTES, "little")) or len(data) % slot_bytes:
        return
    slots = [data[at : at + slot_bytes] + bytes(_WORD_BYTES) for at in range(slot_bytes, len(data), slot_bytes)]
    replacement = path.with_suffix(".new")
    replacement.touch(0o600)
    replacement.write_bytes(_MAGIC.to_bytes(_SLOT_BYTES, "little") + b"".join(slots))
    replacement.rename(path)


class OpenTable:
    """The table in the file ``path``, which is created if missing. Raises ``TakeoverError`` if it is not such a table."""

    def __init__(self, path: Path) -> None:
        _add_users(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._fd).st_size
        if size % _SLOT_BYTES:
            os.close(self._fd)
            raise _foreign(path)
        self._map(size or (_FIRST_SLOTS + 1) * _SLOT_BYTES)
        if not size:
            self._words[0] = _MAGIC
        elif self._words[0] != _MAGIC:
            self.close()
            raise _foreign(path)
        self._free = [slot for slot in range(self._slots, 0, -1) if not self._words[slot * _WORDS]]

    def add(self, node_id: int, backing_id: int, *, writes: bool, exclusive: bool, uid: int) -> int:
        """Return a slot for a node, without handles yet. Raises ``OSError`` if there is no memory for another one."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        at = slot * _WORDS
        self._words[at + 1] = 0
        self._words[at + 2] = backing_id | (_WRITES if writes else 0) | (_EXCLUSIVE if exclusive else 0)
        self._words[at + 3] = uid
        self._words[at] = node_id
        return slot

    def count(self, slot: int, change: int, number: int) -> None:
        """Change the number of handles by ``change``, because of the request ``number``."""
        at = slot * _WORDS + 1
        self._words[_COUNTED_LAST] = number & NUMBER_MASK
        self._words[at] = (self._words[at] >> _NUMBER_BITS) + change << _NUMBER_BITS | number & NUMBER_MASK

    def count_programs(self, slot: int, change: int) -> None:
        """Change the number of those handles that are of running programs."""
        at = slot * _WORDS + 3
        self._words[at] = self._words[at] + (change << _PROGRAMS_SHIFT)

    def clear(self, slot: int) -> int:
        """Set the number of handles to 0; return what it was."""
        at = slot * _WORDS + 1
        handles = self._words[at] >> _NUMBER_BITS
        self._words[at] &= NUMBER_MASK
        return handles

    def note_writes(self, slot: int) -> None:
        """Record that a handle that may write is about to be handed out."""
        self._words[slot * _WORDS + 2] |= _WRITES

    def note_strangers(self, slot: int) -> None:
        """Record that several users have handles in passthrough."""
        self._words[slot * _WORDS + 3] |= _STRANGERS

    def note_version(self, slot: int, mark: int) -> None:
        """Record that bytes of the version with this mark are about to be returned."""
        self._words[slot * _WORDS + 2] |= mark << _VERSION_SHIFT

    def free(self, slot: int) -> None:
        """Free a slot. The number of its last request stays until the slot is used again."""
        self._words[slot * _WORDS] = 0
        self._free.append(slot)

    def records(self) -> Iterator[OpenRecord]:
        """Yield all slots that are in use."""
        words, last = self._words, self._words[_COUNTED_LAST]
        for slot in range(1, self._slots + 1):
            node_id, counted, told, user = words[slot * _WORDS : slot * _WORDS + _WORDS]
            if node_id:
                writes, exclusive = bool(told & _WRITES), bool(told & _EXCLUSIVE)
                handles, backing_id = counted >> _NUMBER_BITS, told & _ID_MASK
                unanswered = last in (0, counted & NUMBER_MASK)
                yield OpenRecord(
                    slot,
                    node_id,
                    handles,
                    backing_id,
                    writes,
                    exclusive,
                    told >> _VERSION_SHIFT,
                    user & _ID_MASK,
                    (user & ~_STRANGERS) >> _PROGRAMS_SHIFT,
                    unanswered,
                    bool(user & _STRANGERS),
                )

    def numbers(self) -> set[int]:
        """Return the numbers of the requests that last changed each slot, including free ones."""
        return {self._words[slot * _WORDS + 1] & NUMBER_MASK for slot in range(1, self._slots + 1)} - {0}

    def close(self) -> None:
        """Close the file; it stays as it is."""
        self._words.release()
        self._mapped.close()
        os.close(self._fd)

    def _map(self, size_bytes: int) -> None:
        """Map the file with this size; after an error everything is as before."""
        os.posix_fallocate(self._fd, 0, size_bytes)  # a store into a hole of a full tmpfs would kill the process
        self._mapped = mmap.mmap(self._fd, size_bytes)
        self._words = memoryview(self._mapped).cast("@Q")
        self._slots = size_bytes // _SLOT_BYTES - 1

    def _grow(self) -> None:
        before, words, mapped = self._slots, self._words, self._mapped
        self._map((2 * before + 2) * _SLOT_BYTES)
        words.release()
        mapped.close()
        self._free.extend(range(self._slots, before, -1))
