"""Prefetch: files that an opened manifest names, and directories that will be listed (the formats define both), pinned
files whose copies had to go, and from the disk the ends of files that an engine reads first (``file_ends``).

Engines ask for them one by one; prefetched together, they take as long as the slowest. Failures are not reported: the
request that really needs the file or directory tries again and gets the error.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import trio

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import FetchReferences, ListDirectories
from holdfast.errors import HoldfastError
from holdfast.fs.file_io.file_ends import names_behind, paths_below, read_ends, read_ends_of_state
from holdfast.fs.foundation import Foundation
from holdfast.fs.inodes.node import Node
from holdfast.transfer import IN_BACKGROUND, PartialFetch
from holdfast.zones import ZoneName, ZonePath

_NAMES_AT_ONCE = 100
"""The number of names looked at in one step of the loop: about a millisecond. A manifest may have a hundred thousand."""
_BEGINNING_SECONDS = 30.0
"""The time in which a process that has opened a query's ``metadata`` lists its directories, some of them several times."""
_MOST_BEGINNINGS = 256
_MOST_COMPONENTS = 3
"""The limit of components of a path that is listed ahead, from the query's directory on: ``state/0/_metadata``."""
_IN_TURN = min(16, os.cpu_count() or 1)
"""The number of directories that are listed ahead of one that is listed in its turn: as many tasks may be next."""
_MOST_DISK_READERS = 2
"""The limit of threads that read ahead from the disk: users' requests wait for it too."""
_MOST_FETCHES = 64
"""The limit of fetches under way for one manifest, each with an open file: some more than are transferred at once."""


@dataclass(slots=True)
class _Beginning:
    """The beginning of a query until ``until``, in trio's time: its directories are listed ahead, and renewed once."""

    ahead: ListDirectories
    until: float
    is_renewed: bool = False


class Prefetcher:
    """Fetches and lists ahead, while ``run`` runs."""

    def __init__(self, base: Foundation, formats: Formats = FORMATS) -> None:
        self._view, self._policy, self._directories = base.view, base.policy, base.directories
        self._zones, self._tree = base.parts.zones, base.parts.store.tree
        self._fetcher, self._ttl = base.fetcher, base.ttl
        self._formats = formats
        self._nursery: trio.Nursery | None = None
        self._disk_readers = trio.CapacityLimiter(_MOST_DISK_READERS)
        self._beginnings: OrderedDict[bytes, _Beginning] = OrderedDict()
        """The queries that may have begun just now, by the paths of their directories."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def opened(self, node: Node, fd: int) -> None:
        """Prefetch what a file leads to: it is whole, was just opened, and was not open before."""
        if self._nursery is None or node.parent is None:
            return
        place = self._directories.place(node.parent)
        if not place.zone.is_store:
            return
        match self._formats.read_ahead(node.name):
            case FetchReferences() as ahead:
                self._nursery.start_soon(self._fetch_references, place, ahead, os.dup(fd))
            case ListDirectories() as ahead:
                self._begin(place, ahead)

    def listed(self, place: ZonePath) -> None:
        """Renew the listings of a query that begins, as somebody is about to list its directory at ``place``.

        Of a directory that is listed in its turn, such as a partition's, the next ones are listed.

        A second may pass between the first and the last look of a query that begins: by then the first answers are too old.
        On a busy machine it may be minutes; so they are all renewed only once.
        """
        above = self._beginning_of(place.path)
        directory = self._zones.place_of(above) if above else None
        if self._nursery is None or directory is None:
            return
        beginning = self._beginnings[above]
        ahead = beginning.ahead
        name = place.path[len(above) + 1 :]
        turn = ahead.in_turn.fullmatch(name) if ahead.in_turn is not None else None
        if trio.current_time() > beginning.until:
            del self._beginnings[above]
        elif name in ahead.names and not beginning.is_renewed and self._is_ageing(place):
            beginning.is_renewed = True
            self._nursery.start_soon(self._list_directories, directory, ahead)
        elif turn is not None:
            self._nursery.start_soon(self._list_next, directory, turn[1], int(name[turn.end(1) :]))

    def _is_ageing(self, place: ZonePath) -> bool:
        return self._view.listing(place).listed_at < self._half_as_old(place)

    def _half_as_old(self, place: ZonePath) -> float:
        """Return the trio time since which a listing is half as old as it may be, at most."""
        return trio.current_time() - self._ttl.of_listing(place) / 2

    def _beginning_of(self, path: bytes) -> bytes:
        """Return the directory above ``path`` of a query that may have begun just now; empty: there is none."""
        above = path if self._beginnings else b""
        for _ in range(_MOST_COMPONENTS):
            above = above.rpartition(b"/")[0]
            if above in self._beginnings:
                return above
        return b""

    def _begin(self, place: ZonePath, ahead: ListDirectories) -> None:
        assert self._nursery is not None
        before = self._beginnings.get(place.path)
        if before is None or before.until < trio.current_time():
            self._nursery.start_soon(self._in_thread, partial(read_ends_of_state, self._tree, place, ahead, self._formats))
        self._beginnings[place.path] = _Beginning(ahead, trio.current_time() + _BEGINNING_SECONDS)
        self._beginnings.move_to_end(place.path)
        if len(self._beginnings) > _MOST_BEGINNINGS:
            self._beginnings.popitem(last=False)
        self._nursery.start_soon(self._list_directories, place, ahead)

    def fetch_again(self, paths: Iterable[bytes]) -> None:
        """Fetch objects whose copies, at these paths of the tree, have gone, and are wanted here."""
        for path in paths:
            name = self._policy.of_path(path)
            if self._nursery is not None and name is not None:
                self._nursery.start_soon(self._fetch_in_background, name)

    async def _fetch_in_background(self, name: ZoneName) -> None:
        IN_BACKGROUND.set(True)
        await self._fetch(name.place, [name])

    async def _list_directories(self, place: ZonePath, ahead: ListDirectories) -> None:
        IN_BACKGROUND.set(True)
        shown_by = ahead.evidence
        try:
            is_there = self._view.listing(place).has_directory(shown_by) or self._tree.inode(place.child_path(shown_by))
        except (HoldfastError, OSError):
            return
        if is_there:
            async with trio.open_nursery() as nursery:
                for name in ahead.names:
                    below = self._zones.place_of(place.child_path(name))
                    if below is not None:
                        nursery.start_soon(self._list, below, self._half_as_old(below))

    async def _list_next(self, place: ZonePath, prefix: bytes, number: int) -> None:
        """List the directories after ``number`` that this node has: whoever has been here lists them next."""
        IN_BACKGROUND.set(True)
        paths = [place.child_path(b"%s%d" % (prefix, number + step)) for step in range(1, _IN_TURN + 1)]
        try:
            here = [path for path in paths if self._tree.inode(path)]
        except OSError:
            return
        async with trio.open_nursery() as nursery:
            for path in here:
                if (below := self._zones.place_of(path)) is not None:
                    nursery.start_soon(self._list, below, self._half_as_old(below))

    async def _list(self, place: ZonePath, not_before: float) -> bool:
        """Refresh a directory's cached listing from before ``not_before``, in trio's time; return whether that succeeded."""
        try:
            await self._view.listing(place).ask(not_before)
        except HoldfastError:
            return False
        return True

    async def _in_thread(self, read: Callable[[], None]) -> None:
        await trio.to_thread.run_sync(read, limiter=self._disk_readers)

    async def _fetch_references(self, place: ZonePath, ahead: FetchReferences, fd: int) -> None:
        IN_BACKGROUND.set(True)
        names = await trio.to_thread.run_sync(names_behind, ahead, fd)
        here: list[bytes] = []
        missing: dict[bytes, list[bytes]] = {}
        for number, path in enumerate(paths_below(place, place.path, names)):
            if number % _NAMES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if self._is_here(path):
                here.append(path)
            else:
                directory, _, last = path.rpartition(b"/")
                missing.setdefault(directory, []).append(last)
        if ahead.end_bytes is not None and self._nursery is not None:
            self._nursery.start_soon(self._in_thread, partial(read_ends, self._tree, here, ahead.end_bytes))
        for directory, files in missing.items():
            below = self._zones.place_of(directory)
            if below is not None:
                resolved = (self._policy.at(below, name) for name in files)
                await self._fetch(below, [name for name in resolved if name.policy.fetched_ahead])

    def _is_here(self, path: bytes) -> bool:
        """Say whether there is nothing to fetch under a name that a manifest has: a file, or no name that one could have."""
        try:
            return self._tree.inode(path) != 0
        except (OSError, ValueError):
            return True

    async def _fetch(self, place: ZonePath, names: list[ZoneName]) -> None:
        if not names or not await self._list(place, self._ttl.oldest_listing(place)):
            return
        under_way: deque[PartialFetch] = deque()
        for name in names:
            known = self._view.listing(place).object(name.name)
            if known is not None and not self._tree.inode(name.path):
                under_way.append(self._fetcher.fetch(self._view.object_of(name), known))
            if len(under_way) >= _MOST_FETCHES:
                with suppress(HoldfastError):
                    await under_way.popleft().wait_whole()
