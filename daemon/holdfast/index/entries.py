"""Entries by inode number. All calls are short and unsynced, so they may run on the event loop (measured: 1 to 4 µs).

An entry is first written by whoever has hashed the bytes: by an upload (``fs.writeback.publisher``), a fetch
(``transfer.cached_copies``), or a check (``fs.integrity.verifier``). All other changes of its state, with which it keeps in
step with its file, are made here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from struct import Struct
from typing import cast

from holdfast.errors import IndexUnwritableError
from holdfast.index.database import Database
from holdfast.index.pages import MappedPages
from holdfast.index.records import INTACT, UNSENT, Entry, EntryState, decoded_entry, decoded_size, encoded, may_have_state
from holdfast.system.file_id import FileId, FileStat, disk_of, first_id_on

_key = Struct(">Q").pack
_file = cast("Callable[[bytes], FileId]", int.from_bytes)  # in the order of bytes of _key, which is its default
_KEY_BYTES = 8
_PAGE = 10_000
_MOST_ABSENT = 4096
_UNSETTLED = UNSENT | {EntryState.OPEN}
"""The states of files that somebody was working on when the last run ended."""


class Changes:
    """The changes in the clean bytes behind each name: noted as they happen, and taken by the part that follows them.

    Once there are ``most`` notes, nothing more is noted, and ``take`` says so.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._notes: deque[tuple[bytes, int]] = deque()
        self._is_lost = False

    def note(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry was, and what it is."""
        before = {} if old is None else _clean_bytes(old)
        after = {} if new is None else _clean_bytes(new)
        if before == after:
            return
        if len(self._notes) >= self._most:
            self._is_lost = True
            return
        for path in before.keys() | after.keys():
            self._notes.append((path, after.get(path, 0) - before.get(path, 0)))

    def __bool__(self) -> bool:
        return self._is_lost or bool(self._notes)

    def take(self) -> dict[bytes, int] | None:
        """Return the changes since the last call in bytes, by name; None if there were too many to note."""
        if self._is_lost:
            self._notes.clear()
            self._is_lost = False
            return None
        found: dict[bytes, int] = {}
        while self._notes:
            path, delta_bytes = self._notes.popleft()
            found[path] = found.get(path, 0) + delta_bytes
        return found


class Entries:
    """The ``entries`` database. A change is one transaction, committed when the call returns.

    ``were_open`` are the inodes that an earlier run left open for writing: their bytes may still match their digests.
    """

    def __init__(self, database: Database, mapped_pages: MappedPages) -> None:
        self._database = database
        self._mapped_pages = mapped_pages
        self._absent: set[FileId] = set()
        """Files without an entry: a request about a file that is never sent asks several times, and so does the next."""
        self._thread = threading.get_ident()
        self._uses: dict[FileId, int] = {}
        self._followers: list[Changes] = []
        self._cached_bytes: dict[int, int] = {}
        """The bytes in the cache, by the number of the disk."""
        self.were_open: list[FileId] = []
        self._take_stock()

    def get(self, inode: FileId) -> Entry | None:
        """Return the entry of ``inode``; a record that can't be read counts as none."""
        if inode in self._absent:
            return None
        data = self._database.get(_key(inode))
        if data is not None:
            return decoded_entry(data)
        if threading.get_ident() == self._thread:  # in another one, ``put`` may have come in between
            self._note_absent(inode)
        return None

    def _note_absent(self, inode: FileId) -> None:
        if len(self._absent) >= _MOST_ABSENT:
            self._absent.clear()
        self._absent.add(inode)

    def put(self, inode: FileId, entry: Entry) -> None:
        """Write the entry of ``inode``."""
        self._absent.discard(inode)
        with self._database.writing() as transaction:
            old = decoded_entry(transaction.get(_key(inode)))
            transaction.put(_key(inode), encoded(entry))
        self._changed(inode, old, entry)

    def put_if_room(self, inode: FileId, entry: Entry) -> None:
        """Write the entry of ``inode``, unless the disk takes no writes. Only for entries that can be determined again."""
        with suppress(IndexUnwritableError):
            self.put(inode, entry)

    def discard(self, inode: FileId) -> None:
        """Forget ``inode``, if it is known."""
        self._uses.pop(inode, None)
        with self._database.writing() as transaction:
            old = decoded_entry(transaction.get(_key(inode)))
            transaction.delete(_key(inode))
        self._changed(inode, old, None)

    def _changed(self, inode: FileId, old: Entry | None, new: Entry | None) -> None:
        """Account for the change of an entry that has just been committed."""
        self._mapped_pages.changed()
        before_bytes = 0 if old is None or old.state is EntryState.LOCAL else old.size_bytes
        after_bytes = 0 if new is None or new.state is EntryState.LOCAL else new.size_bytes
        if before_bytes != after_bytes:
            self._count(inode, after_bytes - before_bytes)
        if EntryState.CLEAN in (old and old.state, new and new.state):
            for follower in self._followers:
                follower.note(old, new)

    def discard_other_disks(self, kept: Collection[int]) -> list[bytes]:
        """Forget all files on other disks than the first and those with the numbers in ``kept``.

        Returns the paths of those that were to be sent.
        """
        elsewhere = [_file(key) for key, _ in self._records(_key(first_id_on(1)))]
        unsent = []
        for file in (file for file in elsewhere if disk_of(file) not in kept):
            entry = self.get(file)
            if entry is not None and entry.state in UNSENT:
                unsent.append(entry.path)
            self.discard(file)
        return unsent

    def on_disk(self, disk: int) -> list[FileId]:
        """Return all files that are known on the disk with this number. A million take 0.7 s: call it in a thread."""
        files = (_file(key) for key, _ in self._records(_key(first_id_on(disk))))
        return list(takewhile(lambda file: disk_of(file) == disk, files))

    def begin(self, inode: FileId) -> None:
        """Forget the entry of an older file whose inode number a new file has now."""
        if self.get(inode) is not None:
            self.discard(inode)

    # --- changes of files ----------------------------------------------------------------------------------------------

    def refresh(self, before: FileStat, after: FileStat) -> Entry | None:
        """Copy a new ctime to the entry after a change that left the bytes alone (link, rename, mode); return the entry.

        The entry stays as it is if it did not describe the file ``before``: the bytes were changed by someone else.
        """
        entry = self.get(after.st_ino)
        if entry is not None and entry.describes(before):
            self._describe(entry, after)
        return entry

    def compared(self, stat: FileStat) -> None:
        """Copy the times of a file to its entry: its bytes are those of the digest."""
        entry = self.get(stat.st_ino)
        if entry is not None:
            self._describe(entry, stat)

    def _describe(self, entry: Entry, stat: FileStat) -> None:
        """Copy both times: where the clock of files is coarse, one may change without the other."""
        if (entry.mtime_ns, entry.ctime_ns) != (stat.st_mtime_ns, stat.st_ctime_ns):
            entry.mtime_ns, entry.ctime_ns = stat.st_mtime_ns, stat.st_ctime_ns
            self.put(stat.st_ino, entry)

    def mark_dirty(self, stat: FileStat, path: bytes | None) -> Entry:
        """Mark the file at ``path`` dirty because its bytes change or have changed; return its entry."""
        entry = self.get(stat.st_ino)
        if entry is None:
            entry = Entry(EntryState.DIRTY, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
        elif entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
        entry.mtime_is_set = entry.mtime_is_set and entry.mtime_ns == stat.st_mtime_ns
        entry.path = path or entry.path
        self.put(stat.st_ino, entry)
        return entry

    def open_for_writing(self, inode: FileId) -> None:
        """Note that a file may change unseen from now on."""
        entry = self.get(inode)
        if entry is not None and entry.state in INTACT and entry.digest:
            entry.become(EntryState.OPEN)
            self.put(inode, entry)

    def close_unchanged(self, inode: FileId) -> None:
        """Note that a file has not changed since ``open_for_writing``, and can't from now on: its digest counts again."""
        entry = self.get(inode)
        if entry is not None and entry.state is EntryState.OPEN:
            entry.become(EntryState.CLEAN if entry.names else EntryState.LOCAL)
            self.put_if_room(inode, entry)

    def begin_upload(self, stat: FileStat, path: bytes | None) -> Entry:
        """Note that the unsent file at ``path`` is being sent; return its entry."""
        entry = self.get(stat.st_ino) or self.mark_dirty(stat, path)
        if entry.state is not EntryState.UPLOADING:
            entry.become(EntryState.DIRTY)
            entry.become(EntryState.UPLOADING)
        self.put(stat.st_ino, entry)
        return entry

    def upload_failed(self, inode: FileId) -> None:
        """Note that a file could not be sent."""
        entry = self.get(inode)
        if entry is not None:
            entry.become(EntryState.DIRTY)
            self.put(inode, entry)

    # --- all entries ---------------------------------------------------------------------------------------------------

    def follow(self, most: int) -> Changes:
        """Return the changes from now to the end of the run, as they happen; up to ``most`` notes wait to be taken."""
        changes = Changes(most)
        self._followers.append(changes)
        return changes

    def used(self, inode: FileId, time_ns: int) -> None:
        """Note that ``inode`` was opened at ``time_ns``; the next ``flush_uses`` writes it."""
        self._uses[inode] = time_ns

    def flush_uses(self) -> None:
        """Write the noted uses in one transaction. If the disk takes no writes, they stay in memory."""
        if not self._uses:
            return
        try:
            with self._database.writing() as transaction:
                for inode, time_ns in self._uses.items():
                    entry = decoded_entry(transaction.get(_key(inode)))
                    if entry is not None:
                        entry.used_ns = time_ns
                        entry.on_probation = False
                        transaction.put(_key(inode), encoded(entry))
        except IndexUnwritableError:
            return
        self._uses = {}

    def scan(self, states: Collection[EntryState] = frozenset(EntryState)) -> Iterator[tuple[FileId, Entry]]:
        """Yield every inode with its entry, if that has one of ``states``, in the order of inode numbers.

        What changes meanwhile is yielded as it was or as it is; damaged records are left out. A million entries take
        0.7 s, a few of a million 0.2 s: call it in a thread.
        """
        for key, data in self._records():
            if may_have_state(data, states):
                entry = decoded_entry(data)
                if entry is not None:
                    yield _file(key), entry

    def _records(self, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from ``first`` on, with values."""
        return self._records_of(self._database.pages(first, _PAGE))

    def _records_of(self, pages: Iterable[list[tuple[bytes, bytes]]]) -> Iterator[tuple[bytes, bytes]]:
        for page in pages:
            yield from (record for record in page if len(record[0]) == _KEY_BYTES)
            self._mapped_pages.release_many()

    def _take_stock(self) -> None:
        """Count the bytes, and make uploads that an earlier run did not finish dirty again.

        Versions before 0.2 wrote OPEN as DIRTY with a digest.
        """
        unsettled, local = [], int(EntryState.LOCAL)
        for key, data in self._records_of(self._database.whole(_PAGE)):
            found = decoded_size(data)
            if found is not None:
                if found.state != local:
                    self._count(_file(key), found.size_bytes)
                if found.state in _UNSETTLED:
                    unsettled.append(_file(key))
        for inode in unsettled:
            entry = self.get(inode)
            if entry is None:
                continue
            if entry.state is EntryState.UPLOADING:
                entry.become(EntryState.DIRTY)
                self.put(inode, entry)
            elif entry.state is EntryState.OPEN or entry.digest:
                entry.state = EntryState.OPEN
                self.put(inode, entry)
                self.were_open.append(inode)

    @property
    def cached_bytes(self) -> int:
        """The total size of all files that are, or will be, copies of objects."""
        return sum(self._cached_bytes.values())

    def cached_bytes_on(self, disk: int) -> int:
        """Return the total size of those on the disk with this number; 0 is the first."""
        return self._cached_bytes.get(disk, 0)

    def _count(self, inode: FileId, more_bytes: int) -> None:
        disk = disk_of(inode)
        self._cached_bytes[disk] = self._cached_bytes.get(disk, 0) + more_bytes

    def count(self) -> int:
        """Return how many entries there are."""
        return self._database.count()


def _clean_bytes(entry: Entry) -> dict[bytes, int]:
    if entry.state is not EntryState.CLEAN:
        return {}
    return {name.path: entry.size_bytes for name in entry.names}
