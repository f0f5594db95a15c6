"""Zones: subtrees of the mount, each a small table of policies. They are the whole meaning of the namespace.

A directory's zone follows from its parent's zone and its own name, so no whole path is ever looked up.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.config import Durability
from holdfast.zones.workdir import WorkdirName

LONGEST_KEY_BYTES = 1024
"""The longest key of S3, Google and Azure. Users make longer paths, which must not cost others anything."""


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

    ``remote`` names the store that a miss falls back to (None: a miss is ENOENT). A ``STORE`` zone shows the store itself:
    listings merge, unlink deletes the object. In ``LOCAL_STATE`` and ``BLOB_STORAGE`` a name that is not local is looked up
    in the store, by exact name; listings do not show it, and an unlink leaves the object alone. ``durability`` is None if
    nothing is ever sent.
    """

    kind: ZoneKind
    prefix: bytes
    remote: str | None = None
    durability: Durability | None = None
    digests: bool = False
    is_store: bool = field(init=False, repr=False, compare=False)
    """True if the zone shows a store itself."""
    sends: bool = field(init=False, repr=False, compare=False)
    """True if files are sent to the store."""
    sends_later: bool = field(init=False, repr=False, compare=False)
    """True if files are sent after their close: the writeback queue takes them."""
    digests_later: bool = field(init=False, repr=False, compare=False)
    """True if files are hashed after their last close: the zone keeps digests, and sends nothing, which would hash them."""
    key_start: int = field(init=False, repr=False, compare=False)
    """The position in a path of the zone at which the object key begins."""

    def __post_init__(self) -> None:
        # not properties, because every request asks several times
        object.__setattr__(self, "is_store", self.kind is ZoneKind.STORE)
        object.__setattr__(self, "key_start", len(self.prefix) + 1 if self.prefix else 0)
        object.__setattr__(self, "sends", self.durability in (Durability.COMMIT, Durability.ASYNC))
        object.__setattr__(self, "sends_later", self.durability is Durability.ASYNC)
        object.__setattr__(self, "digests_later", self.digests and not self.sends)

    def key_of(self, path: bytes) -> bytes:
        """Return ``path`` (of the tree, in this zone) relative to the zone: the object key, as bytes."""
        return path[self.key_start :]


@dataclass(frozen=True, slots=True)
class ZonePath:
    """A directory's zone and its path in the tree."""

    zone: Zone
    path: bytes
    start: bytes = field(init=False, repr=False, compare=False)
    """The beginning of the paths of its entries."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", self.path + b"/" if self.path else b"")

    def child_path(self, name: bytes) -> bytes:
        """Return the path of the entry ``name``."""
        return self.start + name


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """The stores that the working directories of a role fall back to. None: no fallback, and nothing is sent."""

    local_state: str | None
    blob_storage: str | None


class ZoneMap:
    """All zones of a mount.

    ``stores`` maps each store's name, which is also its zone's, to its durability. ``bases`` are the directories that hold
    working directories; no store has the name of one. ``fallbacks`` returns those of a role, which must be in ``stores``.
    """

    def __init__(
        self, stores: Mapping[str, Durability], bases: Iterable[bytes], fallbacks: Callable[[str], Fallbacks]
    ) -> None:
        self._stores = dict(stores)
        self._fallbacks = fallbacks
        self.root = ZonePath(Zone(ZoneKind.ROOT, b""), b"")
        self._top = {
            os.fsencode(name): Zone(ZoneKind.STORE, os.fsencode(name), name, durability, digests=True)
            for name, durability in stores.items()
        }
        self._top.update({base: Zone(ZoneKind.BASE, base) for base in bases})

    @property
    def top_names(self) -> list[bytes]:
        """The names in the root of the mount."""
        return list(self._top)

    def child(self, parent: ZonePath, name: bytes) -> ZonePath | None:
        """Return the place of the directory ``name`` in ``parent``; None if there can be no such directory."""
        path = parent.child_path(name)
        zone: Zone | None = parent.zone
        match parent.zone.kind:
            case ZoneKind.ROOT:
                zone = self._top.get(name)
            case ZoneKind.BASE:
                zone = Zone(ZoneKind.PRIVATE, path)
            case ZoneKind.PRIVATE if parent.path == parent.zone.prefix and (
                workdir := WorkdirName.parse(_last(parent.path))
            ):
                zone = self._inside_workdir(workdir.role, path, name) or zone
        return ZonePath(zone, path) if zone is not None else None

    def place_of(self, path: bytes) -> ZonePath | None:
        """Return the place of the directory at the tree path ``path``; None if there can be none."""
        return self.descendant(self.root, path.split(b"/") if path else ())

    def descendant(self, place: ZonePath, names: Sequence[bytes]) -> ZonePath | None:
        """Return the place of the directory to which ``names`` lead from ``place``; None if there can be none."""
        for index, name in enumerate(names):
            if place.path != place.zone.prefix:  # from here on, everything is in the same zone
                return ZonePath(place.zone, b"/".join([place.path, *names[index:]]))
            child = self.child(place, name)
            if child is None:
                return None
            place = child
        return place

    def is_fixed(self, place: ZonePath) -> bool:
        """Say whether a directory is the root of a zone or a working directory, which can't be renamed."""
        if place.path != place.zone.prefix:
            return False
        return place.zone.kind is not ZoneKind.PRIVATE or WorkdirName.parse(_last(place.path)) is not None

    def _inside_workdir(self, role: str, path: bytes, name: bytes) -> Zone | None:
        fallbacks = self._fallbacks(role)
        if name == b"localState":
            return Zone(ZoneKind.LOCAL_STATE, path, fallbacks.local_state, None, digests=True)
        if name == b"blobStorage":
            durability = self._stores[fallbacks.blob_storage] if fallbacks.blob_storage is not None else None
            return Zone(ZoneKind.BLOB_STORAGE, path, fallbacks.blob_storage, durability, digests=True)
        return None


def is_at_or_below(path: bytes, directory: bytes) -> bool:
    """Say whether ``path`` is ``directory`` or lies below it, at any depth; both relative to the mount, b"" its root."""
    return not directory or path == directory or path.startswith(directory + b"/")


def _last(path: bytes) -> bytes:
    return path.rsplit(b"/", 1)[-1]
