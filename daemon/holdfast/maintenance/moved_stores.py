"""Copies from a store whose name stands for another place since the last run: the new store may lack what was copied.

An immutable or write-once copy is never asked about again, so it would be served for ever as an object that the new store
has with other bytes, or not at all. So the copies go; each name is fetched again where it is wanted. What was never sent
stays: it is sent to the store that has the name now.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress

import trio

from holdfast.config import ZoneSection
from holdfast.errors import FileBusyError, IndexUnwritableError
from holdfast.fs.foundation import Foundation
from holdfast.index import EntryState
from holdfast.remote import location_of
from holdfast.remote.redaction import public_url

_log = logging.getLogger("holdfast.maintenance")


async def drop_copies_of_moved_stores(base: Foundation, environment: Mapping[str, str]) -> None:
    """Compare the places of all stores with those of the last run, and note them. Call it before the first request."""
    index = base.parts.index
    for name, section in base.parts.config.mounted_stores.items():
        place, last = _place_of(section, environment), index.place_of_store(name)
        if last not in (None, place, section.url):  # the latter is what earlier versions noted
            dropped = await _drop_copies(base, os.fsencode(name))
            _log.warning("stores.%s.url is another place than in the last run: %d copies were dropped", name, dropped)
        if last != place:
            with suppress(IndexUnwritableError):  # the next run compares with the older place
                index.note_place_of_store(name, place)


async def _drop_copies(base: Foundation, zone: bytes) -> int:
    parts, dropped = base.parts, 0
    files = await trio.to_thread.run_sync(lambda: list(parts.store.tree.walk(zone)))
    for path, stat in files:
        entry = parts.index.entries.get(stat.st_ino)
        if entry is not None and entry.state is EntryState.CLEAN and entry.name_at(path) is not None:
            dropped += await _drop(base, path, stat.st_ino)
    return dropped


async def _drop(base: Foundation, path: bytes, inode: int) -> bool:
    try:
        await base.hot.settle(inode)
        return base.copies.drop(path, inode)
    except FileBusyError as problem:
        # Its next open finds that it is not the store's object, because the index does not know it any more.
        _log.warning("%r can't be removed: %s", path, problem)
        base.parts.index.entries.discard(inode)
        return True


def _place_of(section: ZoneSection, environment: Mapping[str, str]) -> str:
    location = location_of(section.url, section.options, environment)
    return public_url(section.url) if location is None else "\n".join((*location.server, "/".join(location.path)))
