"""A name in a directory, with all that follows from it: zone, path, object key, kind and policy."""

from __future__ import annotations

from holdfast.zones.name_kinds import NameKind
from holdfast.zones.name_patterns import NameTable
from holdfast.zones.zone import LONGEST_KEY_BYTES, ZonePath


class ZoneName:
    """The entry ``name`` of the directory at ``place``; ``path`` is its path in the tree.

    A file at a name that ``sends`` is, or will become, an object; one that is ``created_once`` may be created only once.
    Names without a store, and those that are too long for any, are all of one kind, which is not looked for.
    """

    __slots__ = ("created_once", "kind", "name", "path", "place", "policy", "sends", "zone")

    def __init__(self, place: ZonePath, name: bytes, names: NameTable) -> None:
        zone = place.zone
        path = place.start + name
        kind = NameKind.REPLACEABLE
        if zone.remote is not None and len(key := path[zone.key_start :]) <= LONGEST_KEY_BYTES:
            kind = names.kind_of(key)
        policy = kind.policy
        self.place = place
        self.zone = zone
        self.name = name
        self.path = path
        self.kind = kind
        self.policy = policy
        self.sends = zone.sends and not policy.stays_here
        self.created_once = zone.sends and policy.created_once

    @property
    def key(self) -> bytes:
        """The path below the zone: the key of the object, if there is one."""
        return self.zone.key_of(self.path)
