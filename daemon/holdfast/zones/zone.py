"""Zones: subtrees of the mount, each a small table of policies, the whole of the namespace's meaning.

A directory's zone follows from its parent's zone and its own name, so nothing is looked up by whole paths.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.config import Durability
from holdfast.errors import ConfigurationError
from holdfast.zones.workdir import WorkdirName


class ZoneKind(enum.Enum):
    """The rows of the table in ``docs/semantics.md``."""

    ROOT = "root"
    BASE = "base"
    PRIVATE = "private"
    LOCAL_STATE = "localState"
    BLOB_STORAGE = "blobStorage"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone. ``prefix`` is the path of its root in the tree.

    ``remote`` names the store that a miss falls back to (None: a miss is ENOENT). In a ``STORE`` zone the mount shows the
    store itself: listings merge, unlink deletes the object. In ``LOCAL_STATE`` and ``BLOB_STORAGE`` the store only shines
    through: by exact name, and never changed by an unlink. ``durability`` is None where nothing is ever sent.
    """

    kind: ZoneKind
    prefix: bytes
    remote: str | None = None
    durability: Durability | None = None
    digests: bool = False

    @property
    def is_store(self) -> bool:
        """Whether the zone shows a store itself."""
        return self.kind is ZoneKind.STORE

    @property
    def sends(self) -> bool:
        """Whether files are sent to the store."""
        return self.durability in (Durability.COMMIT, Durability.ASYNC)

    def key_of(self, path: bytes) -> bytes:
        """Return ``path`` (of the tree, in this zone) relative to the zone: the object key, as bytes."""
        return path[len(self.prefix) + 1 :] if self.prefix else path


@dataclass(frozen=True, slots=True)
class ZonePath:
    """A directory's zone and its path in the tree."""

    zone: Zone
    path: bytes

    def child_path(self, name: bytes) -> bytes:
        """Return the path of the entry ``name``."""
        return self.path + b"/" + name if self.path else name

    def key_of(self, name: bytes) -> bytes:
        """Return the path of the entry ``name`` relative to the zone."""
        return self.zone.key_of(self.child_path(name))


class ZoneMap:
    """All zones of a mount. ``bases`` are the names of the directories that hold working directories.

    Raises ``ConfigurationError`` for a base that can't be a directory of its own in the root.
    """

    def __init__(self, bases: Iterable[bytes], checkpoints: Durability, blobs: Durability) -> None:
        self._blobs = blobs
        self.root = ZonePath(Zone(ZoneKind.ROOT, b""), b"")
        self._top = {
            b"checkpoints": Zone(ZoneKind.STORE, b"checkpoints", "checkpoints", checkpoints, digests=True),
            b"blobs": Zone(ZoneKind.STORE, b"blobs", "blobs", blobs, digests=True),
        }
        for base in bases:
            if base in (b"", b".", b"..", b"checkpoints", b"blobs") or b"/" in base or b"\0" in base:
                raise ConfigurationError(
                    f"workdirs.base {os.fsdecode(base)!r}: one name in the root of the mount, not that of a store's zone"
                )
            self._top[base] = Zone(ZoneKind.BASE, base)

    @property
    def top_names(self) -> list[bytes]:
        """The names in the root of the mount."""
        return list(self._top)

    def child(self, parent: ZonePath, name: bytes) -> ZonePath | None:
        """Return the place of the directory ``name`` in ``parent``; None where no such directory may be."""
        path = parent.child_path(name)
        zone: Zone | None = parent.zone
        match parent.zone.kind:
            case ZoneKind.ROOT:
                zone = self._top.get(name)
            case ZoneKind.BASE:
                zone = Zone(ZoneKind.PRIVATE, path)
            case ZoneKind.PRIVATE if parent.path == parent.zone.prefix and WorkdirName.parse(_last(parent.path)):
                zone = self._inside_workdir(path, name) or zone
        return ZonePath(zone, path) if zone is not None else None

    def place_of(self, path: bytes) -> ZonePath | None:
        """Return the place of the directory at the tree path ``path``; None where none may be."""
        place = self.root
        for name in path.split(b"/") if path else ():
            child = self.child(place, name)
            if child is None:
                return None
            place = child
        return place

    def is_fixed(self, place: ZonePath) -> bool:
        """Say whether a directory gives a zone its root, or is a working directory: it can't be renamed."""
        if place.path != place.zone.prefix:
            return False
        return place.zone.kind is not ZoneKind.PRIVATE or WorkdirName.parse(_last(place.path)) is not None

    def _inside_workdir(self, path: bytes, name: bytes) -> Zone | None:
        if name == b"localState":
            return Zone(ZoneKind.LOCAL_STATE, path, "checkpoints", None, digests=True)
        if name == b"blobStorage":
            return Zone(ZoneKind.BLOB_STORAGE, path, "blobs", self._blobs, digests=True)
        return None


def _last(path: bytes) -> bytes:
    return path.rsplit(b"/", 1)[-1]
