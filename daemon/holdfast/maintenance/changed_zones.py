"""Zones that the configuration has changed since the last run: those that it has no more, and stores at another place.

What remains of a zone that is no longer configured, of a store whose table is gone or of a former base, is kept, out of
sight: its absence from the configuration may be a mistake, and unsent files exist nowhere else.

Copies from a store whose name stands for another place now go, because the new store may lack what was copied. An immutable
or write-once copy is never asked about again, so it would be served for ever as an object that the new store has with other
bytes, or not at all. Each name is fetched again where it is wanted. What was never sent stays: it is sent to the store that
has the name now.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import trio

from holdfast.config import ZoneSection
from holdfast.errors import FileBusyError, IndexUnwritableError
from holdfast.fs.foundation import Foundation
from holdfast.index import EntryState, Index
from holdfast.remote import location_of
from holdfast.remote.redaction import public_url
from holdfast.store import Tree, is_unsent
from holdfast.system.file_id import FileId
from holdfast.zones import ZoneMap

_log = logging.getLogger("holdfast.maintenance")


@dataclass(frozen=True, slots=True)
class Remains:
    """The remains of one zone: files in the tree, those that were never sent, and deletions not yet made in the store."""

    files: int
    unsent: int
    deletions: int


def remains(tree: Tree, index: Index, zones: ZoneMap) -> dict[str, Remains]:
    """Return the remains by the zone's name. Blocks on the disk, so call it in a thread."""
    known = set(zones.top_names)
    found = {path for path, _ in tree.children(b"") if path not in known}
    deletions = Counter(_top(version.path) for version in index.marks.deletions())
    found |= deletions.keys() - known
    if not found:
        return {}
    dirty = {entry.path for _, entry in index.entries.scan({EntryState.DIRTY, EntryState.OPEN})}
    files = {name: [path for path, _ in tree.walk(name, unreadable=_tell_left_out)] for name in sorted(found)}
    unsent = {name: sum(path in dirty or _is_marked(tree, path) for path in paths) for name, paths in files.items()}
    return {
        os.fsdecode(name): Remains(len(paths), unsent[name], deletions[name])
        for name, paths in files.items()
        if paths or deletions[name]
    }


def _tell_left_out(path: bytes, problem: OSError) -> None:
    _log.warning("%s is left out: %s", os.fsdecode(path), problem)


def _is_marked(tree: Tree, path: bytes) -> bool:
    """Say whether the file is marked unsent, which is known even before a lost index is rebuilt."""
    try:
        fd = tree.open_file(path)
    except OSError:  # a symbolic link or a socket, which are not sent; or it is gone
        return False
    try:
        return is_unsent(fd)
    finally:
        os.close(fd)


def _top(path: bytes) -> bytes:
    return path.partition(b"/")[0]


async def drop_copies_of_moved_stores(base: Foundation, environment: Mapping[str, str]) -> None:
    """Compare the places of all stores with those of the last run, and note them. Call it before the first request."""
    index = base.parts.index
    for name, section in base.parts.config.mounted_stores.items():
        place, last = _place_of(section, environment), index.place_of_store(name)
        has_all = True
        if last not in (None, place, section.url):  # the latter is what earlier versions noted
            dropped, has_all = await _drop_copies(base, os.fsencode(name))
            _log.warning("stores.%s.url is another place than in the last run: %d copies were dropped", name, dropped)
        if last != place and has_all:
            with suppress(IndexUnwritableError):  # the next run compares with the older place
                index.note_place_of_store(name, place)


async def _drop_copies(base: Foundation, zone: bytes) -> tuple[int, bool]:
    """Drop all copies; return how many, and whether the disk could read all directories."""
    parts, dropped, left_out = base.parts, 0, list[tuple[bytes, OSError]]()
    walk = parts.store.tree.walk(zone, unreadable=lambda *each: left_out.append(each))
    files = await trio.to_thread.run_sync(lambda: list(walk))
    for path, problem in left_out:
        _tell_left_out(path, problem)
    for path, stat in files:
        entry = parts.index.entries.get(stat.st_ino)
        if entry is not None and entry.state is EntryState.CLEAN and entry.name_at(path) is not None:
            dropped += await _drop(base, path, stat.st_ino)
    return dropped, not left_out


async def _drop(base: Foundation, path: bytes, inode: FileId) -> bool:
    try:
        await base.hot.settle(inode)
        return base.copies.drop(path, inode)
    except (FileBusyError, OSError) as problem:
        # Its next open finds that it is not the store's object, because the index does not know it any more.
        _log.warning("%r can't be removed: %s", path, problem)
        base.parts.index.entries.discard(inode)
        return True


def _place_of(section: ZoneSection, environment: Mapping[str, str]) -> str:
    location = location_of(section.url, section.options, environment)
    return public_url(section.url) if location is None else "\n".join((*location.server, "/".join(location.path)))
