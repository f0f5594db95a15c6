"""Remains of zones that are no longer configured: of a store whose table is gone, or of a former base.

They are kept, out of sight: their absence from the configuration may be a mistake, and unsent files exist nowhere else.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass

from holdfast.index import EntryState, Index
from holdfast.store import Tree, is_unsent
from holdfast.zones import ZoneMap


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
    dirty = {entry.path for _, entry in index.entries.scan({EntryState.DIRTY})}
    files = {name: [path for path, _ in tree.walk(name)] for name in sorted(found)}
    unsent = {name: sum(path in dirty or _is_marked(tree, path) for path in paths) for name, paths in files.items()}
    return {
        os.fsdecode(name): Remains(len(paths), unsent[name], deletions[name])
        for name, paths in files.items()
        if paths or deletions[name]
    }


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
