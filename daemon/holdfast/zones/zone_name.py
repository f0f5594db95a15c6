"""A name in a directory, with all that follows from it: zone, path, object key, kind and policy."""

from __future__ import annotations

from holdfast.zones.name_kinds import KindPolicy, NameKind
from holdfast.zones.name_patterns import NameTable
from holdfast.zones.zone import LONGEST_KEY_BYTES, Zone, ZonePath


class ZoneName:
    """The entry ``name`` of the directory at ``place``. Path and kind are found out once, when they are first asked for."""

    __slots__ = ("_kind", "_names", "_path", "name", "place", "zone")

    def __init__(self, place: ZonePath, name: bytes, names: NameTable) -> None:
        self.place = place
        self.zone: Zone = place.zone
        self.name = name
        self._names = names
        self._path: bytes | None = None
        self._kind: NameKind | None = None

    @property
    def path(self) -> bytes:
        """The path in the tree."""
        if self._path is None:
            self._path = self.place.child_path(self.name)
        return self._path

    @property
    def key(self) -> bytes:
        """The path below the zone: the key of the object, if it has one."""
        return self.zone.key_of(self.path)

    @property
    def kind(self) -> NameKind:
        """The kind of the name. A key that is too long for any store is replaceable: its kind is not remembered."""
        if self._kind is None:
            key = self.place.key_of(self.name)
            self._kind = self._names.kind_of(key) if len(key) <= LONGEST_KEY_BYTES else NameKind.REPLACEABLE
        return self._kind

    @property
    def policy(self) -> KindPolicy:
        """The policy of the name's kind."""
        return self.kind.policy

    @property
    def sends(self) -> bool:
        """True if a file at this name is, or will become, an object."""
        return self.zone.sends and not self.kind.policy.stays_here

    @property
    def created_once(self) -> bool:
        """True if a file at this name becomes an object that may be created only once."""
        return self.zone.sends and self.kind.policy.created_once
