"""Which thread is about to create what: its lookups need not ask the store, because the creation that follows will.

Before an engine creates a file it looks whether it is there, often twice. Asking the store each time would double the
requests. Answering from a belief could tell a reader that a file of another node does not exist, which it may take for lost
state. So a belief is good enough only for the thread that is plainly creating:

- the thread that has a temporary file open in the directory, for the name that the file is going to have;
- the thread whose last conditional creation in this directory succeeded, for further write-once names there (the next
  creation is conditional too, so a second writer is found out by the PUT);
- the thread that has won a name in one log of a checkpoint, in its other logs that were listed lately: it is the driver,
  which begins by listing them, and one that has lost its checkpoint wins no further name;
- the thread that has just created an immutable name in this directory, for further immutable ones (it invents them);
- the thread that has just made the directory, which the store did not have;
- the thread that was told a moment ago that the name is not there (mkdirs(2 × stat) asks three times in a row).

A thread that has made the directory, or created names of the kind, may also be waiting for a name that another node
creates. It shows by asking for the same name again after a while: the store is asked then.
What temporary names and logs look like is told by the checkpoint formats.
Threads in process namespaces that the daemon doesn't see all have the number 0. They are never known.
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
_MAKER_SECONDS = 5.0
_LATELY_SECONDS = 60.0
_TOLD_SECONDS = 0.1
_ASKING_SECONDS = 1.0
"""From its first look at a name until it is created: a listing, the bytes, the PUT."""


class _Recent(Generic[_K]):
    """Which thread did something to a key, and when; the oldest are forgotten."""

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

    def was(self, key: _K, thread: int, seconds: float) -> bool:
        who, when = self._what.get(key, (0, 0.0))
        return thread > 0 and who == thread and self._clock() - when < seconds


class CreateHints:
    """Recent doings by thread. ``clock`` is monotonic, in seconds. Directories are given by their paths in the tree."""

    def __init__(self, clock: Callable[[], float], formats: Formats = FORMATS) -> None:
        self._formats = formats
        self._temporaries: _Recent[tuple[bytes, bytes]] = _Recent(clock)
        self._authors: _Recent[tuple[bytes, NameKind]] = _Recent(clock)
        self._drivers: _Recent[bytes] = _Recent(clock)
        self._makers: _Recent[bytes] = _Recent(clock)
        self._told: _Recent[tuple[bytes, bytes]] = _Recent(clock)
        self._asked: _Recent[tuple[bytes, bytes]] = _Recent(clock)

    def temporary_made(self, directory: bytes, name: bytes, thread: int) -> None:
        """``thread`` created the temporary file ``name``."""
        target = self._formats.temporary_target(name)
        if target is not None:
            self._temporaries.note((directory, target), thread)

    def temporary_gone(self, directory: bytes, name: bytes) -> None:
        """The temporary file ``name`` was renamed or removed."""
        target = self._formats.temporary_target(name)
        if target is not None:
            self._temporaries.forget((directory, target))

    def created(self, directory: bytes, kind: NameKind, thread: int) -> None:
        """``thread`` created a name of ``kind`` in the store's directory."""
        self._authors.note((directory, kind), thread)
        checkpoint = self._formats.checkpoint_of_log(directory)
        if checkpoint is not None and kind.policy.created_once:
            self._drivers.note(checkpoint, thread)

    def directory_made(self, directory: bytes, thread: int) -> None:
        """``thread`` made the directory, which the store did not have."""
        self._makers.note(directory, thread)

    def directory_gone(self, directory: bytes) -> None:
        """The directory was removed: the threads that made it, or created names in it, are not about to create more."""
        self._makers.forget(directory)
        for kind in NameKind:
            self._authors.forget((directory, kind))

    def told_missing(self, directory: bytes, name: bytes, thread: int) -> None:
        """``thread`` was told that the store, asked just then, does not have ``name``."""
        self._told.note((directory, name), thread)

    def is_creating(self, directory: bytes, name: bytes, kind: NameKind, thread: int, belief_seconds: float) -> bool:
        """Say whether ``thread`` looks at ``name`` because it is about to create it.

        ``belief_seconds``: how long ago the store was asked for all names in the directory; infinite when it never was.
        """
        return (
            self._temporaries.was((directory, name), thread, _TEMPORARY_SECONDS)
            or self._told.was((directory, name), thread, _TOLD_SECONDS)
            or (self._goes_on(directory, kind, thread, belief_seconds) and self._does_not_wait(directory, name, thread))
        )

    def _goes_on(self, directory: bytes, kind: NameKind, thread: int, belief_seconds: float) -> bool:
        if self._makers.was(directory, thread, _MAKER_SECONDS):
            return True
        if self._authors.was((directory, kind), thread, kind.policy.creator_seconds):
            return belief_seconds < math.inf
        checkpoint = self._formats.checkpoint_of_log(directory)
        if checkpoint is None or not kind.policy.created_once or belief_seconds > _LATELY_SECONDS:
            return False
        return self._drivers.was(checkpoint, thread, kind.policy.creator_seconds)

    def _does_not_wait(self, directory: bytes, name: bytes, thread: int) -> bool:
        if self._asked.was((directory, name), thread, math.inf):
            return self._asked.was((directory, name), thread, _ASKING_SECONDS)
        self._asked.note((directory, name), thread)
        return True
