"""Actions on files through the control socket: verify, prefetch, evict, flush, drain, pin."""

from __future__ import annotations

import stat as stat_module
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Generic, TypeVar

import trio
from starlette.requests import Request
from starlette.responses import Response

from holdfast.control.http_connection import CALLER
from holdfast.control.messages import DrainRequest, FlushRequest, PathRequest, PinInfo, PinRequest, Progress
from holdfast.control.operations import Operation, RouteGroup
from holdfast.control.paths import Paths
from holdfast.control.replies import body, reply, stream
from holdfast.errors import (
    ConfigurationError,
    FileBusyError,
    HoldfastError,
    LimitReachedError,
    NoSuchEntryError,
    NotPinnedError,
    WithheldError,
)
from holdfast.fs.filesystem import FileSystem
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.fs.namespace.lookup import Found
from holdfast.index import EntryState
from holdfast.system.file_id import FileId
from holdfast.system.text import shown
from holdfast.telemetry.slices import Slices
from holdfast.transfer import IN_BACKGROUND
from holdfast.transfer.computing import computed, in_order
from holdfast.zones import is_at_or_below

_PARALLEL_FETCHES = 8
_ENTRIES_AT_ONCE = 2000
_DIFFERS = "its bytes differ from its digest: it is in quarantine, and the next open fetches it again if the store has it"
_T = TypeVar("_T")
_AHEAD = 10_000


class ActionRoutes(RouteGroup):
    """The routes by path. An action over a tree yields its progress, and continues after a file that fails."""

    def __init__(self, base: Foundation, files: FileSystem, paths: Paths) -> None:
        self.base = base
        self.files = files
        self.paths = paths
        self.operations = {
            "/v1/verify": Operation(self._verify, Progress, body=PathRequest, streams=True),
            "/v1/prefetch": Operation(self._prefetch, Progress, body=PathRequest, streams=True),
            "/v1/evict": Operation(self._evict, Progress, body=PathRequest, streams=True),
            "/v1/flush": Operation(self._flush, Progress, body=FlushRequest, streams=True),
            "/v1/drain": Operation(self._drain, Progress, body=DrainRequest, streams=True),
            "/v1/pins": Operation(self._pins, list[PinInfo]),
            "/v1/pin": Operation(self._pin, dict[str, str], body=PinRequest),
            "/v1/unpin": Operation(self._unpin, dict[str, str], body=PathRequest),
        }

    async def _verify(self, request: Request) -> Response:
        return await stream(self.verify((await body(request, PathRequest)).path))

    async def _prefetch(self, request: Request) -> Response:
        return await stream(self.prefetch(await _required_path(request)))

    async def _evict(self, request: Request) -> Response:
        return await stream(self.evict(await _required_path(request)))

    async def _flush(self, request: Request) -> Response:
        wanted = await body(request, FlushRequest)
        return await stream(self.flush(wanted.path, wanted.timeout_seconds))

    async def _drain(self, request: Request) -> Response:
        wanted = await body(request, DrainRequest)
        if not request.scope[CALLER].is_root:
            raise WithheldError("only root may drain a node")
        return await stream(self.end_drain() if wanted.undo else self.drain(wanted.timeout_seconds))

    async def verify(self, path: str | None) -> AsyncIterator[Progress]:
        """Hash every local file with a known digest at or below ``path`` (None: everywhere); drop files that differ."""
        wanted = await self._existing(path)
        async with aclosing(self.files.verifier.known_files(wanted)) as files:
            ahead = ReadAhead(files)
            done = bytes_done = 0
            while some := await ahead.take(1):
                inode, file = some[0]
                problem = None
                try:
                    if not await self.files.verifier.check_at(file, inode):
                        problem = _DIFFERS
                except (OSError, HoldfastError) as error:
                    problem = str(error)
                done += 1
                bytes_done += self._size(inode)
                name = self.paths.absolute(file)
                yield Progress(done=done, total=ahead.found, bytes_done=bytes_done, path=name, problem=problem)
        yield Progress(done=done, total=done, bytes_done=bytes_done, finished=True)

    async def prefetch(self, path: str) -> AsyncIterator[Progress]:
        """Fetch every object at or below ``path`` that is not local."""
        async with self.paths.find(path) as top, aclosing(self._remote_files(top)) as files:
            ahead = ReadAhead(files)
            done = bytes_done = 0
            try:
                while group := await ahead.take(_PARALLEL_FETCHES):
                    names = [shown(file.node.name) for file in group]
                    problems = await self._fetch_all(group)
                    for file, name, problem in zip(group, names, problems, strict=True):
                        done += 1
                        bytes_done += 0 if problem else file.stat.st_size
                        yield Progress(done=done, total=ahead.found, bytes_done=bytes_done, path=name, problem=problem)
            finally:
                for file in ahead.waiting:
                    self.base.nodes.let_go(file.node)
        yield Progress(done=done, total=done, bytes_done=bytes_done, finished=True)

    async def evict(self, path: str) -> AsyncIterator[Progress]:
        """Drop local copies at or below ``path`` that the store has too. Raises ``FileBusyError`` for a file in use.

        At the end the kernel knows nothing more of the copy of a single file; those of many it forgets soon.
        """
        wanted = self.paths.relative(path)
        await self.files.releasing.settle()
        async with self.paths.find(path) as found:
            is_file_here = not found.node.is_directory and found.node.backing != 0
            names = [] if found.node.is_directory else list(found.node.names())
        async with aclosing(self._clean(wanted)) as copies:
            ahead = ReadAhead(copies)
            done = bytes_done = 0
            while some := await ahead.take(1):
                inode, file = some[0]
                size_bytes = self._size(inode)
                if self.base.rooms.evict_file(inode):
                    done += 1
                    bytes_done += size_bytes
                    yield Progress(done=done, total=ahead.found, bytes_done=bytes_done, path=self.paths.absolute(file))
                await trio.lowlevel.checkpoint()
        if is_file_here and not done:
            raise FileBusyError(
                f"{path} can't be evicted now: it is open, pinned, or not in the store ('holdfast why' tells)"
            )
        await self.base.invalidation.invalidate_now([(parent.id, name) for parent, name in names])
        yield Progress(done=done, total=ahead.found, bytes_done=bytes_done, finished=True)

    async def flush(self, path: str | None, timeout_seconds: float) -> AsyncIterator[Progress]:
        """Send what is unsent at or below ``path`` (None: everywhere), and carry out deletions held back there."""
        wanted = await self._existing(path)
        deadline = trio.current_time() + timeout_seconds
        async for step in self._send(wanted, deadline, waits_for_writers=False):
            yield step

    async def drain(self, timeout_seconds: float) -> AsyncIterator[Progress]:
        """Take nothing new for the stores from now on, and send everything. Raises ``OSError``."""
        self.base.drain.begin()
        self.base.parts.events.emit("draining")
        deadline = trio.current_time() + timeout_seconds
        problems = 0
        async for step in self._send(b"", deadline, waits_for_writers=True):
            problems += step.problem is not None
            yield step
        if not problems:
            self.base.parts.events.emit("drained")

    async def end_drain(self) -> AsyncIterator[Progress]:
        """Take everything again. Raises ``OSError``."""
        self.base.drain.end()
        self.base.parts.events.emit("drain-undone")
        yield Progress(done=0, total=0, bytes_done=0, finished=True)

    async def _existing(self, path: str | None) -> bytes:
        """Return the path in the tree; None is all of it. A misspelt one is an error, not a success without files."""
        if path is None:
            return b""
        async with self.paths.find(path):
            pass
        return self.paths.relative(path)

    async def _send(self, wanted: bytes, deadline: float, *, waits_for_writers: bool) -> AsyncIterator[Progress]:
        await self.files.releasing.settle()
        unsent = self.files.unsent
        done = bytes_done = 0
        tried: set[bytes] = set()
        while files := [path for path in await trio.to_thread.run_sync(unsent.below, wanted) if path not in tried]:
            if tried and not waits_for_writers:
                break  # written since
            for file in files:
                size_bytes = self._size(self.base.parts.store.tree.inode(file))
                problem = await unsent.send(file, deadline, waits_for_writers=waits_for_writers)
                tried.add(file)
                done += problem is None
                bytes_done += 0 if problem else size_bytes
                name = self.paths.absolute(file)
                yield Progress(done=done, total=len(tried | {*files}), bytes_done=bytes_done, path=name, problem=problem)
        for file, why in await unsent.send_deletions(wanted, deadline):
            yield Progress(done=done, total=len(tried), bytes_done=bytes_done, path=self.paths.absolute(file), problem=why)
        yield Progress(done=done, total=len(tried), bytes_done=bytes_done, finished=True)

    async def _pins(self, request: Request) -> Response:
        del request
        return reply([PinInfo(path=self.paths.absolute(path)) for path in self.base.parts.index.pins.all()])

    async def _pin(self, request: Request) -> Response:
        """Keep local files at or below a path, present and future, from being evicted."""
        wanted, uid, pins = await body(request, PinRequest), request.scope[CALLER].uid, self.base.parts.index.pins
        path = _given(wanted.path)
        pinned = self.paths.relative(path)
        if not wanted.future:
            try:
                await self._existing(path)
            except NoSuchEntryError:
                raise NoSuchEntryError(
                    f"there is no {path}; to pin it before it exists: --future ('future' in a request)"
                ) from None
        if uid and not pins.has_room_for(pinned):
            self.base.rare_events.emit("limit-reached", uid=uid, what="pins")
            raise LimitReachedError(
                "there are so many pins that only root may add one: pin a directory in place of its files"
            )
        await trio.to_thread.run_sync(pins.add, pinned)
        return reply({})

    async def _unpin(self, request: Request) -> Response:
        path = await _required_path(request)
        if not await trio.to_thread.run_sync(self.base.parts.index.pins.remove, self.paths.relative(path)):
            raise NotPinnedError(f"{path} is not pinned; 'holdfast pins' lists what is")
        return reply({})

    async def _remote_files(self, top: Found) -> AsyncGenerator[Found, None]:
        """Yield the files at or below ``top`` that are to be fetched. The caller lets their nodes go.

        It does not recurse, because users make trees deeper than Python's stack.
        """
        nodes, slices = self.base.nodes, Slices()
        way: list[tuple[Found, Iterator[bytes]]] = []
        """The directories down to where the search is, with the names in each that are left."""
        found: Found | None = top
        try:
            while True:
                if found is not None:
                    nodes.hold(found.node)
                    if found.node.is_directory:
                        way.append((found, iter(())))
                        way[-1] = found, await self._names_in(found.node)
                    elif self._is_remote_file(found):
                        yield found
                    else:
                        nodes.let_go(found.node)
                await slices.pause()
                name = None
                while way and (name := next(way[-1][1], None)) is None:
                    nodes.let_go(way.pop()[0].node)
                if name is None:
                    return
                found = self.files.listings.entry(way[-1][0].node, name)
        finally:
            for directory, _ in way:
                nodes.let_go(directory.node)

    async def _names_in(self, directory: Node) -> Iterator[bytes]:
        names = await self.files.listings.names(directory)
        return await computed(in_order(names), len(names))

    def _is_remote_file(self, found: Found) -> bool:
        node = found.node
        return stat_module.S_ISREG(found.stat.st_mode) and node.backing == 0 and self._is_fetched(node)

    def _is_fetched(self, node: Node) -> bool:
        """Say whether the kind of the node's name is one that is fetched ahead."""
        return any(self.base.policy.name(*name).policy.fetched_ahead for name in node.names())

    async def _fetch_all(self, group: list[Found]) -> list[str | None]:
        """Fetch in parallel, and let the nodes go; return the error of each file, or None."""
        problems: list[str | None] = [None] * len(group)

        async def fetch(index: int) -> None:
            IN_BACKGROUND.set(True)
            try:
                await self.files.local_files.make_local(group[index].node)
            except HoldfastError as problem:
                problems[index] = str(problem)

        try:
            async with trio.open_nursery() as nursery:
                for index in range(len(group)):
                    nursery.start_soon(fetch, index)
        finally:
            for file in group:
                self.base.nodes.let_go(file.node)
        return problems

    async def _clean(self, wanted: bytes) -> AsyncGenerator[tuple[FileId, bytes], None]:
        """Yield inode and path of the copies at or below ``wanted`` that the store has too."""
        scan = self.base.parts.index.entries.scan({EntryState.CLEAN})
        while some := await trio.to_thread.run_sync(lambda: list(islice(scan, _ENTRIES_AT_ONCE))):
            for inode, entry in some:
                for name in entry.names[:1]:
                    if is_at_or_below(name.path, wanted):
                        yield inode, name.path

    def _size(self, inode: FileId) -> int:
        entry = self.base.parts.index.entries.get(inode)
        return entry.size_bytes if entry is not None else 0


class ReadAhead(Generic[_T]):
    """Takes from ``items``, which are found while the work on them goes on, some thousands ahead of it.

    ``found`` counts what was found so far; ``waiting`` was found and not taken yet.
    """

    def __init__(self, items: AsyncIterator[_T]) -> None:
        self._items = items
        self._is_at_end = False
        self.found = 0
        self.waiting: deque[_T] = deque()

    async def take(self, most: int) -> list[_T]:
        """Return the next ``most`` items, fewer at the end, and none after it."""
        while len(self.waiting) < _AHEAD and not self._is_at_end:
            try:
                self.waiting.append(await anext(self._items))
            except StopAsyncIteration:
                self._is_at_end = True
            else:
                self.found += 1
        return [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]


async def _required_path(request: Request) -> str:
    return _given((await body(request, PathRequest)).path)


def _given(path: str | None) -> str:
    if path is None:
        raise ConfigurationError("the request's body: Object missing required field `path`")
    return path
