"""Protection of the names of the mount's zones."""

from __future__ import annotations

from holdfast.errors import ZoneRootBusyError
from holdfast.zones import ZoneKind, ZonePath


def check_not_root(place: ZonePath) -> None:
    """Raise ``ZoneRootBusyError`` if ``place`` is the root of the mount, whose entries are the zones."""
    if place.zone.kind is ZoneKind.ROOT:
        raise ZoneRootBusyError("the zones of the mount can't be renamed")
