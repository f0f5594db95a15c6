"""A store for tests in which time is a fixture: it answers from memory, as slowly as told, and fails as told."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import cast

import trio

from holdfast.errors import HoldfastError, ObjectMissingError, RemoteRefusedError
from holdfast.remote import Capabilities, DirectoryListing, ObjectInfo, RemoteStore
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess

_CAPABILITIES = Capabilities(conditional_create=True, atomic=True, metadata=True, versions=True)


class ScriptedAccess(RemoteAccess):
    """Answers LIST, HEAD and DELETE without threads, so that ``autojump_clock`` can be used.

    A LIST answers with what the store held when it began, after ``seconds``; then the next of ``failures`` is raised, if
    there is one. What is ``immortal`` can't be deleted. ``asked`` tells what was asked, and when.
    """

    def __init__(self, events: EventLog, deadline_seconds: float = 120.0) -> None:
        super().__init__(
            "checkpoints",
            cast(RemoteStore, SimpleNamespace(capabilities=_CAPABILITIES, requests_in_a_call=2)),
            deadline_seconds=deadline_seconds,
            parallel=1,
            events=events,
            counters=Counters(),
            clock=trio.current_time,
        )
        self.objects: dict[str, ObjectInfo] = {}
        self.directories: set[str] = set()
        self.marker = False
        self.seconds = 1.0
        self.failures: deque[HoldfastError] = deque()
        self.immortal: set[str] = set()
        self.asked: list[tuple[float, str, object]] = []

    def put(self, name: str, etag: str = "1", size_bytes: int = 1, stored_by: str | None = None) -> ObjectInfo:
        """Store an object, as a node does or, with ``stored_by`` None, another tool."""
        metadata = {} if stored_by is None else {"holdfast-node": stored_by}
        self.objects[name] = ObjectInfo(name, size_bytes, etag, 10**18, metadata)
        return self.objects[name]

    async def list_directory(self, prefix: str, *, retry: bool = True) -> DirectoryListing:
        """Answer as the script says. What was asked for by ``head`` is listed as a directory of its own."""
        assert not retry, "the cached listing itself tries again"
        exists = bool(self.objects or self.directories or self.marker)
        answer = DirectoryListing(dict(self.objects), frozenset(self.directories), exists)
        if ("HEAD", prefix) in [(kind, what) for _, kind, what in self.asked]:
            answer = DirectoryListing({}, frozenset(), prefix.rpartition("/")[2] in self.directories)
        await self._answer("LIST", prefix)
        return answer

    async def holds_directory(self, prefix: str, *, retry: bool = True) -> bool:
        """Answer as ``list_directory`` does."""
        return (await self.list_directory(prefix, retry=retry)).exists

    async def head(self, key: str, *, retry: bool = True) -> ObjectInfo:
        """Answer as the script says, by the last component of the key."""
        info = self.objects.get(key.rpartition("/")[2])
        await self._answer("HEAD", key)
        if info is None:
            raise ObjectMissingError(key)
        return info

    async def delete(self, keys: list[str], *, retry: bool = True) -> None:
        """Delete as the script says."""
        assert not retry, "after a new look only"
        await self._answer("DELETE", list(keys))
        for key in keys:
            if key not in self.immortal:
                self.objects.pop(key, None)
        if self.immortal.intersection(keys):
            raise RemoteRefusedError("refused")

    def times(self, kind: str) -> list[float]:
        """Return when questions of ``kind`` were asked."""
        return [time for time, asked, _ in self.asked if asked == kind]

    async def _answer(self, kind: str, what: object) -> None:
        self.asked.append((trio.current_time(), kind, what))
        await trio.sleep(self.seconds)
        if self.failures:
            raise self.failures.popleft()
