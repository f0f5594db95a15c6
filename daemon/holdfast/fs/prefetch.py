"""Fetching ahead: when a name that lists others is opened, all of those are fetched at once.

Spark asks for one SST at a time; together they take as long as the largest. It is only a hint: what fails here is tried
again, and reported, by the open that really needs it.
"""

from __future__ import annotations

import os

import trio

from holdfast.checkpoints import is_manifest, references
from holdfast.errors import HoldfastError
from holdfast.fs.core import Core
from holdfast.fs.nodes import Node
from holdfast.zones import Place


class Prefetcher:
    """Fetches what opened manifests refer to. ``run`` serves them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def opened(self, node: Node, fd: int) -> None:
        """A whole file was opened that was not open before; see whether it lists others."""
        if self._nursery is None or node.parent is None:
            return
        place = self._core.directories.place(node.parent)
        if place.zone.is_store and is_manifest(node.name):
            self._nursery.start_soon(self._fetch_references, place, os.dup(fd))

    async def _fetch_references(self, place: Place, fd: int) -> None:
        names = await trio.to_thread.run_sync(references, fd)
        missing: dict[bytes, list[bytes]] = {}
        for name in names:
            directory, _, last = name.rpartition(b"/")
            if not self._core.store.tree.inode(place.child_path(name)):
                missing.setdefault(directory, []).append(last)
        for directory, files in missing.items():
            await self._fetch(self._core.zones.place_of(place.child_path(directory)), files)

    async def _fetch(self, place: Place | None, names: list[bytes]) -> None:
        if place is None:
            return
        core = self._core
        try:
            await core.listing(place).ask(trio.current_time() - core.config.remote.metadata_ttl_seconds)
        except HoldfastError:
            return
        for name in names:
            known = core.listing(place).object(name)
            path = place.child_path(name)
            if known is not None and not core.store.tree.inode(path):
                core.fetcher.fetch(core.object_at(place, name), known)
