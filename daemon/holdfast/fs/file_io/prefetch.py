"""Asking ahead for what is needed next. It is only a hint: who really needs what fails here tries again, and reports.

When a name that lists others is opened, all of those are fetched at once: Spark asks for one SST at a time, and together
they take as long as the largest. When a query of Spark's begins, which it does by opening its checkpoint's ``metadata``, its
logs are listed at once: it lists one after the other, within the same second.
"""

from __future__ import annotations

import os

import trio

from holdfast.checkpoints import is_manifest, references
from holdfast.errors import HoldfastError
from holdfast.fs.inodes.core import Core
from holdfast.fs.inodes.nodes import Node
from holdfast.zones import ZonePath

_BEGINNING = b"metadata"
_OFFSETS = b"offsets"
_LOGS = (_OFFSETS, b"commits", b"sources/0", b"state")


class Prefetcher:
    """Fetches what opened manifests refer to, and lists the logs of queries that begin. ``run`` serves them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def opened(self, node: Node, fd: int) -> None:
        """A whole file was opened that was not open before; see what it leads to."""
        if self._nursery is None or node.parent is None:
            return
        place = self._core.directories.place(node.parent)
        if not place.zone.is_store:
            return
        if is_manifest(node.name):
            self._nursery.start_soon(self._fetch_references, place, os.dup(fd))
        elif node.name == _BEGINNING:
            self._nursery.start_soon(self._list_logs, place)

    async def _list_logs(self, place: ZonePath) -> None:
        core = self._core
        try:
            has_logs = core.listing(place).has_directory(_OFFSETS) or core.store.tree.inode(place.child_path(_OFFSETS))
        except (HoldfastError, OSError):
            return
        if has_logs:
            async with trio.open_nursery() as nursery:
                for log in _LOGS:
                    nursery.start_soon(self._list, core.zones.place_of(place.child_path(log)))

    async def _list(self, place: ZonePath | None) -> bool:
        """Bring the belief about a directory up to date; say whether it is."""
        if place is None:
            return False
        try:
            seconds = self._core.config.remote.metadata_ttl_seconds
            await self._core.listing(place).ask(trio.current_time() - seconds)
        except HoldfastError:
            return False
        return True

    async def _fetch_references(self, place: ZonePath, fd: int) -> None:
        names = await trio.to_thread.run_sync(references, fd)
        missing: dict[bytes, list[bytes]] = {}
        for name in names:
            directory, _, last = name.rpartition(b"/")
            if not self._core.store.tree.inode(place.child_path(name)):
                missing.setdefault(directory, []).append(last)
        for directory, files in missing.items():
            await self._fetch(self._core.zones.place_of(place.child_path(directory)), files)

    async def _fetch(self, place: ZonePath | None, names: list[bytes]) -> None:
        if place is None or not await self._list(place):
            return
        core = self._core
        for name in names:
            known = core.listing(place).object(name)
            path = place.child_path(name)
            if known is not None and not core.store.tree.inode(path):
                core.fetcher.fetch(core.object_at(place, name), known)
