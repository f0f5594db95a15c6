"""Hints that a thread is about to create a name, so that its lookups need not ask the store.

Engines look whether a file exists before they create it, often twice. Asking the store each time would double the requests.
But a negative answer from the cache could tell a reader that a file of another node does not exist, and the reader may take
that for lost state. So a cached negative answer is given only to a thread that is plainly creating, and whose creation the
store checks:

- the thread that has a temporary file open in the directory, for the target name of that file;
- the thread whose last conditional creation in this directory succeeded, for further write-once names there (the next
  creation is conditional too, so the PUT detects a second writer);
- the thread that won a name in one log of a checkpoint, for its other logs that were listed lately: it is the driver, which
  begins by listing them, and a driver that has lost its checkpoint wins no further name;
- the thread that got the same negative answer a moment ago (mkdirs(2 × stat) asks three times in a row).

Two more kinds of threads are often about to create a name and get no hint, because a reader would look the same: a thread
that has just made the directory (it may read state that moved to another node and back), and a thread that has just created
a file with an invented name in it (a pool of threads sends and fetches such files in turns).

open(2) with O_CREAT makes the kernel look the name up before it creates it. If that lookup has just asked the store, an
exclusive creation need not ask again (``was_just_asked``).

A thread that created write-once names may also wait for a name that another node creates. It then asks for the same name
again after a while; the store is asked in that case.
The checkpoint formats define temporary names and logs.
Threads in process namespaces that the daemon doesn't see all have the number 0. They never get a hint.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.zones import NameKind

_K = TypeVar("_K")
_MOST = 4096
_TEMPORARY_SECONDS = 600.0
_RECENT_LISTING_SECONDS = 60.0
_MISSING_SECONDS = 0.1
_ASKING_SECONDS = 1.0
"""The longest time from the first lookup of a name to its creation: a listing, the bytes, the PUT."""


class _Recent(Generic[_K]):
    """The last thread that did something to each key, and when. An LRU cache."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._what: OrderedDict[_K, tuple[int, float]] = OrderedDict()

    def note(self, key: _K, thread: int) -> None:
        self._what[key] = thread, self._clock()
        self._what.move_to_end(key)
        if len(self._what) > _MOST:
            self._what.popitem(last=False)

    def forget(self, key: _K) -> None:
        self._what.pop(key, None)

    def clear(self) -> None:
        self._what.clear()

    def is_recent(self, key: _K, thread: int, seconds: float) -> bool:
        who, when = self._what.get(key, (0, 0.0))
        return thread > 0 and who == thread and self._clock() - when < seconds


class CreateHints:
    """Recent creations by thread. ``clock`` is monotonic, in seconds. Directories are given by their paths in the tree."""

    def __init__(self, clock: Callable[[], float], formats: Formats = FORMATS) -> None:
        self._formats = formats
        self._temporaries: _Recent[tuple[bytes, bytes]] = _Recent(clock)
        self._authors: _Recent[tuple[bytes, NameKind]] = _Recent(clock)
        self._drivers: _Recent[bytes] = _Recent(clock)
        self._missing: _Recent[tuple[bytes, bytes]] = _Recent(clock)
        self._asked: _Recent[tuple[bytes, bytes]] = _Recent(clock)
        self._just_asked: _Recent[tuple[bytes, bytes]] = _Recent(clock)

    def temporary_made(self, directory: bytes, name: bytes, thread: int) -> None:
        """Note that ``thread`` created the temporary file ``name``."""
        target = self._formats.temporary_target(name)
        if target is not None:
            self._temporaries.note((directory, target), thread)

    def temporary_gone(self, directory: bytes, name: bytes) -> None:
        """Note that the temporary file ``name`` was renamed or removed."""
        target = self._formats.temporary_target(name)
        if target is not None:
            self._temporaries.forget((directory, target))

    def created(self, directory: bytes, kind: NameKind, thread: int) -> None:
        """Note that ``thread`` created a name of ``kind`` in a directory of the store."""
        self._authors.note((directory, kind), thread)
        if kind.policy.created_once and (checkpoint := self._formats.checkpoint_of_log(directory)) is not None:
            self._drivers.note(checkpoint, thread)

    def directory_gone(self, directory: bytes) -> None:
        """Drop the hints of the threads that created names in the directory, which was removed."""
        for kind in NameKind:
            self._authors.forget((directory, kind))

    def objects_appeared(self) -> None:
        """Drop all hints: the store got objects that no thread here has created, so creators must prove themselves again."""
        for recent in (self._temporaries, self._authors, self._drivers, self._missing, self._asked, self._just_asked):
            recent.clear()

    def answered_missing(self, directory: bytes, name: bytes, thread: int, *, was_asked: bool) -> None:
        """Note that ``thread`` got the answer that ``name`` does not exist; the store ``was_asked`` in this lookup."""
        self._missing.note((directory, name), thread)
        if was_asked:
            self._just_asked.note((directory, name), thread)

    def was_just_asked(self, directory: bytes, name: bytes, thread: int) -> bool:
        """Say whether the last lookup of ``name``, by ``thread`` a moment ago, has asked the store, which does not have it.

        A later lookup that did not ask the store takes that back: it is the one that belongs to a creation after it.
        """
        return self._just_asked.is_recent((directory, name), thread, _MISSING_SECONDS)

    def is_creating(self, directory: bytes, name: bytes, kind: NameKind, thread: int, listing_age_seconds: float) -> bool:
        """Say whether ``thread`` looks up ``name`` because it is about to create it.

        ``listing_age_seconds`` is the age of the directory's listing; infinite if it was never listed.
        """
        return self._has_announced(directory, name, thread) or (
            self._is_creator(directory, kind, thread, listing_age_seconds) and self._is_not_polling(directory, name, thread)
        )

    def answered_creator(self, directory: bytes, name: bytes, thread: int) -> None:
        """Note that ``thread``, which ``is_creating``, was told that ``name`` does not exist, and no store was asked."""
        self._just_asked.forget((directory, name))
        is_first = not self._asked.is_recent((directory, name), thread, math.inf)
        if is_first and not self._has_announced(directory, name, thread):
            self._asked.note((directory, name), thread)

    def _has_announced(self, directory: bytes, name: bytes, thread: int) -> bool:
        return self._temporaries.is_recent((directory, name), thread, _TEMPORARY_SECONDS) or self._missing.is_recent(
            (directory, name), thread, _MISSING_SECONDS
        )

    def _is_creator(self, directory: bytes, kind: NameKind, thread: int, listing_age_seconds: float) -> bool:
        if self._authors.is_recent((directory, kind), thread, kind.policy.creator_seconds):
            return listing_age_seconds < math.inf
        checkpoint = self._formats.checkpoint_of_log(directory)
        if checkpoint is None or not kind.policy.created_once or listing_age_seconds > _RECENT_LISTING_SECONDS:
            return False
        return self._drivers.is_recent(checkpoint, thread, kind.policy.creator_seconds)

    def _is_not_polling(self, directory: bytes, name: bytes, thread: int) -> bool:
        is_first = not self._asked.is_recent((directory, name), thread, math.inf)
        return is_first or self._asked.is_recent((directory, name), thread, _ASKING_SECONDS)
