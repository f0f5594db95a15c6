"""Removing working directories that nobody has held for the retention time of their role."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from holdfast.index import WorkdirRecord
from holdfast.telemetry import EventLog
from holdfast.telemetry.slices import SLICE_SECONDS, Slices
from holdfast.workdirs.holding import RETRY_SECONDS, TRANSIENT, Holding
from holdfast.workdirs.records import Records
from holdfast.workdirs.tree import WorkdirTree

_LEASE_CHECK_SECONDS = 60.0
"""The time between looks at a lease file that keeps a directory: its last close is not seen under another name."""
_log = logging.getLogger("holdfast.workdirs")


@dataclass(frozen=True, slots=True)
class Retention:
    """Removes directories that are due. ``retain_seconds`` says by role how long a directory is kept."""

    records: Records
    tree: WorkdirTree
    holding: Holding
    events: EventLog
    retain_seconds: Callable[[str], float]
    _removed: deque[tuple[bytes, int]] = field(default_factory=deque, init=False)
    """Paths of removed directories that the kernel may still know, and the uids of their owners."""
    _not_removed: set[bytes] = field(default_factory=set, init=False)
    """Paths of directories that are due, whose removal fails."""

    def record_of_existing(self, path: bytes) -> WorkdirRecord | None:
        """Return the record of the directory at ``path``; None if it is gone: removing a directory releases it."""
        record = self.records.get(path)
        if record is not None and not self.tree.exists(path):
            self._discard(path, record)
            return None
        return record

    async def expire_due(self) -> float:
        """Remove everything that is due; return the time of the next removal."""
        now, due = time.time(), math.inf
        left, slices = [], Slices()
        for path, _ in self.records.listed():
            left.append(path)
            await slices.pause()
        while left:
            due = min(due, self._expire_some(left, now))
            await trio.lowlevel.checkpoint()
        await self.holding.unwatch_others()
        try:
            has_told = await self.tree.invalidate_kernel()
            while self._removed:
                removed, uid = self._removed.popleft()
                self.events.emit("workdir-removed", path=os.fsdecode(removed), uid=uid)
                await slices.pause()
            has_told = await self.tree.empty_trash() and has_told
        except OSError as problem:
            _log.warning("can't delete yet what working directories have left: %s", problem)
            return now + RETRY_SECONDS
        return due if has_told else min(due, now + RETRY_SECONDS)

    def _expire_some(self, left: list[bytes], now: float) -> float:
        """Take paths from the end of ``left``, for a moment; remove what is due, return when the next one is.

        A user can have thousands of directories, which are all due at once.
        """
        until, due = time.monotonic() + SLICE_SECONDS, math.inf
        with self.tree.one_step():
            while left and time.monotonic() < until:
                path = left.pop()
                record = self.records.get(path)
                if record is not None:
                    due = min(due, self._expire(path, record, now, left))
        return due

    def _expire(self, path: bytes, record: WorkdirRecord, now: float, left: list[bytes]) -> float:
        """Remove a directory after its retention time; return when it must be checked again.

        One in which very many names were deleted comes back to ``left`` for its next part.
        """
        try:
            if not self.tree.exists(path):
                self._discard(path, record)
                return math.inf
            if (record.pid or record.volume) and not record.released_seconds:
                return math.inf
            if self.holding.holder(path, record) is not None:
                return now + _LEASE_CHECK_SECONDS
            if not record.released_seconds:  # its lease file was closed under another name
                self.holding.released(path, record)
                return math.inf
            expires = record.released_seconds + self.retain_seconds(record.role)
            if expires > now:
                return expires
            if self.tree.hides_many(path):
                self.tree.show_some_again(path)
                left.append(path)
                return math.inf
            self._remove(path, record)
        except Exception as problem:  # noqa: BLE001 whatever a user has made of his directory, it must not end the daemon
            self._tell_once(path, problem)
            return now + RETRY_SECONDS
        return math.inf

    def _remove(self, path: bytes, record: WorkdirRecord) -> None:
        owner = self.tree.owner(path)
        self.tree.remove(path)
        self._removed.append((path, owner))
        self._discard(path, record)

    def _discard(self, path: bytes, record: WorkdirRecord) -> None:
        """Forget a directory that is gone."""
        self.holding.forget(path, record)
        self.records.discard(path)
        self._not_removed.discard(path)

    def _tell_once(self, path: bytes, problem: Exception) -> None:
        """Tell of a directory that is due and can't be removed. It is tried again, silently."""
        if path not in self._not_removed:
            self._not_removed.add(path)
            is_fault = not isinstance(problem, TRANSIENT)
            _log.warning("can't remove %s yet: %s", os.fsdecode(path), problem, exc_info=problem if is_fault else None)
            self.events.emit("not-deleted", path=os.fsdecode(path), problem=str(problem) or repr(problem))
