"""Looking at files and directories, what is there, in which state, and why, and at events, through the control socket."""

from __future__ import annotations

import os
import stat as stat_module
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.control.callers import UserNames
from holdfast.control.messages import EntryInfo, EntryPage, EventInfo, Explanation
from holdfast.control.operations import PAGE, Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import LARGEST_PAGE, number, page_size, reply, required_path
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.listing import Listings
from holdfast.fs.namespace.lookup import Found
from holdfast.index import Entry, EntryState
from holdfast.system.text import shown
from holdfast.telemetry import Event, EventLog, Observed, SlowOperations
from holdfast.telemetry.slices import Slices
from holdfast.transfer.computing import Work, computed, for_each_piece, in_order
from holdfast.zones import NameKind, ZoneName

_STATES = {
    EntryState.CLEAN: "cached",
    EntryState.DIRTY: "unsent",
    EntryState.UPLOADING: "uploading",
    EntryState.LOCAL: "local",
    EntryState.OPEN: "open",
}
_TYPES = {
    stat_module.S_IFREG: "file",
    stat_module.S_IFDIR: "directory",
    stat_module.S_IFLNK: "symlink",
    stat_module.S_IFIFO: "fifo",
    stat_module.S_IFSOCK: "socket",
}
_MOST_SLOW = 5
_NS = 1e9
_LEAST_SHARE = 0.02  # waits shorter than this part of the whole are not worth a word
_WAITS = {
    "fetch": "waiting for its bytes from the store",
    "hash": "hashing the file",
    "lock": "waiting for another operation on the same file",
    "turn": "waiting for earlier requests of the same user (limits.requests_per_user)",
}


@dataclass(frozen=True, slots=True)
class Inspector:
    """Answers queries, and changes nothing."""

    base: Foundation
    listings: Listings
    paths: Paths
    slow: SlowOperations

    async def page(self, path: str, after: str, limit: int) -> EntryPage:
        """Return up to ``limit`` entries of the directory ``path``, sorted by name, starting after ``after``."""
        async with self.paths.find(path) as directory:
            if not directory.node.is_directory:
                return EntryPage(entries=[await self.entry(path)], next=None)
            return await self._page(self.paths.relative(path), directory.node, os.fsencode(after), limit)

    async def _page(self, path: bytes, directory: Node, after: bytes, limit: int) -> EntryPage:
        names = await self.listings.names(directory)
        wanted = await computed(_after(names, after), len(names))
        entries: list[EntryInfo] = []
        slices, looked_at, last = Slices(), 0, b""
        for name in wanted:
            if looked_at >= limit and _is_text(last):  # a page must end with a name that the next request can pass
                return EntryPage(entries=entries, next=shown(last))
            looked_at, last = looked_at + 1, name
            found = self.listings.entry(directory, name)
            if found is not None:
                entries.append(self._describe(path, name, directory, found))
                self.base.nodes.release(found.node)
            await slices.pause()
        return EntryPage(entries=entries, next=None)

    async def entry(self, path: str) -> EntryInfo:
        """Return what is known about ``path``."""
        async with self.paths.find(path) as found:
            directory, _, name = self.paths.relative(path).rpartition(b"/")
            return self._describe(directory, name, found.node.parent or found.node, found)

    async def why(self, path: str) -> Explanation:
        """Explain in sentences what ``path`` is, where its bytes are, what an open would do, and what was slow there."""
        info = await self.entry(path)
        slow = slow_reasons(self.slow, self.paths.relative(path), time.time())
        in_store = info.zone in self.base.parts.remotes
        return Explanation(path=info.path, reasons=[*_reasons(info, in_store=in_store), *slow])

    def _describe(self, directory_path: bytes, name: bytes, directory: Node, found: Found) -> EntryInfo:
        place = self.base.directories.place(found.node if found.node.is_directory else directory)
        path = directory_path + b"/" + name if directory_path else name
        is_file = stat_module.S_ISREG(found.stat.st_mode)
        resolved = self.base.policy.at(place, name)
        entry = self.base.parts.index.entries.get(found.node.backing) if found.node.backing and is_file else None
        cached = entry.name_at(path) if entry is not None else None
        known = self.base.view.listing(place).object(name) if is_file and place.zone.is_store else None
        in_store = place.zone.remote is not None and is_file
        return EntryInfo(
            path=self.paths.absolute(path),
            type=_TYPES.get(stat_module.S_IFMT(found.stat.st_mode), "device"),
            zone=place.zone.kind.value if not place.zone.is_store else str(place.zone.remote),
            state=self._state(resolved, found.node, entry, is_file),
            size_bytes=found.stat.st_size,
            modified=found.stat.st_mtime_ns / 1e9,
            kind=resolved.kind.value if in_store and place.zone.sends else None,
            object=f"{self.base.view.remote_of(place.zone).access.store.url.rstrip('/')}/{shown(place.zone.key_of(path))}"
            if cached or known
            else None,
            etag=cached.etag if cached else known.etag if known else None,
            digest=f"xxh3-128:{entry.digest.hex()}" if entry is not None and entry.digest else None,
            used=entry.used_ns / 1e9 if entry is not None and entry.used_ns else None,
            pinned=self.base.parts.index.pins.cover(path),
            open=found.node.opened is not None,
        )

    def _state(self, name: ZoneName, node: Node, entry: Entry | None, is_file: bool) -> str:
        if not is_file:
            return "local" if node.backing else "remote"
        if node.backing == 0:
            return "fetching" if self.base.fetcher.fetch_of(name.path) else "remote"
        if entry is not None:
            return _STATES[entry.state]
        return "unknown" if name.sends else "local"


def _after(names: Iterable[bytes], after: bytes) -> Work[Iterator[bytes]]:
    """Return an iterator over the names that come after one, sorted."""
    wanted: list[bytes] = []
    yield from for_each_piece(names, lambda some: wanted.extend(name for name in some if name > after))
    return (yield from in_order(wanted))


def _is_text(name: bytes) -> bool:
    return shown(name).encode() == name


_WHERE = {
    "cached": "The store has it, and this node has a copy: reads are served from the disk.",
    "unsent": "Its bytes are only on this node: it is being written, or was when the daemon or the power failed, or sending "
    "it failed, which is tried again. A close after writing sends it.",
    "uploading": "It is being sent to the store now.",
    "local": "It is only on this node and is never sent.",
    "open": "It is open for writing, and has not been seen to change since it was sent, or hashed if it never is.",
    "remote": "Only the store has it: the next open fetches it.",
    "fetching": "It is being fetched from the store now.",
    "unknown": "The index does not know it: the next open compares it with the store.",
}


_WHERE_DIRECTORIES = {
    "local": "This node has it. Stores keep objects, not directories: other nodes see it once there is an object below it.",
    "remote": "The store has objects below it.",
}
"""The same for a directory in a zone with a store."""


def _reasons(info: EntryInfo, *, in_store: bool) -> Iterator[str]:
    yield f"It is a {info.type} in the zone {info.zone}."
    yield (_WHERE_DIRECTORIES if in_store and info.type == "directory" else _WHERE)[info.state]
    if info.kind is not None:
        yield NameKind(info.kind).policy.explanation
    if info.digest is not None:
        yield f"Its digest is {info.digest}; a copy that differs is never served."
    if info.open:
        yield "It is open, so it can't be evicted."
    if info.pinned:
        yield "It is pinned, so it won't be evicted."


def slow_reasons(slow: SlowOperations, path: bytes, now: float) -> Iterator[str]:
    """Yield a sentence for each of the last slow operations on ``path``, a path in the tree. ``now``: since the epoch."""
    for each in slow.about(path, _MOST_SLOW):
        yield _sentence(each, path, now)


def _sentence(each: Observed, path: bytes, now: float) -> str:
    seconds = each.duration_ns / _NS
    where = "" if each.path == path else f" of {shown(each.path)}"
    ago = max(0.0, now - each.time_ns / _NS)
    caused = f" by process {each.pid}" if each.pid else ""
    waits = [
        f"{took:.2f} s {_WAITS[what]}"
        for what, took in sorted(each.notes.waits.items(), key=lambda item: -item[1])
        if took >= _LEAST_SHARE * seconds
    ]
    notes = each.notes
    if notes.store_requests:
        word = "a request" if notes.store_requests == 1 else f"{notes.store_requests} requests"
        waits.append(f"{notes.store_seconds:.2f} s for {word} to stores")
    because = "; ".join(waits) or "none of it waiting for a store, a hash, a lock or a turn: look at the disk and the load"
    return f"Slow: {_age(ago)} ago, {each.operation}{where}{caused} took {seconds:.2f} s: {because}."


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class BrowsingRoutes(RouteGroup):
    """The routes by path."""

    def __init__(self, inspector: Inspector, events: EventLog) -> None:
        self._inspector = inspector
        self._events = events
        self._users = UserNames()
        path = {"path": "string"}
        self.operations = {
            "/v1/entries": Operation(self._entries, EntryPage, {**path, **PAGE}, ("path",)),
            "/v1/entry": Operation(self._entry, EntryInfo, path, ("path",)),
            "/v1/why": Operation(self._why, Explanation, path, ("path",)),
            "/v1/events": Operation(self._list_events, list[EventInfo], {"since": "number", "limit": "number"}),
        }

    async def _entries(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        return reply(await self._inspector.page(required_path(request), after, page_size(request, 200)))

    async def _entry(self, request: Request) -> Response:
        return reply(await self._inspector.entry(required_path(request)))

    async def _why(self, request: Request) -> Response:
        return reply(await self._inspector.why(required_path(request)))

    async def _list_events(self, request: Request) -> Response:
        since = number(request.query_params.get("since", "0"), "since")
        if "text/event-stream" in request.headers.get("accept", ""):
            return StreamingResponse(self._event_stream(since), media_type="text/event-stream")
        return reply(await self._with_users(self._events.since(since, page_size(request, LARGEST_PAGE))))

    async def _event_stream(self, since: int) -> AsyncIterator[bytes]:
        while True:
            for event in await self._with_users(self._events.since(since, LARGEST_PAGE)):
                since = event.number
                yield b"id: %d\ndata: %s\n\n" % (event.number, msgspec.json.encode(event))
            await self._events.wait_beyond(since)

    async def _with_users(self, events: list[Event]) -> list[EventInfo]:
        """Return the events with the names of the users that they are about."""
        uids = {event.number: uid for event in events if isinstance(uid := event.fields.get("uid"), int)}
        names = await self._users.of(uids.values())
        return [
            EventInfo(
                number=event.number,
                time=event.time,
                kind=event.kind,
                fields=event.fields,
                user=names.get(uids.get(event.number, -1), ""),
            )
            for event in events
        ]
