"""From names to policies: which zone a path lies in, and of which kind a name is. Pure: nothing here touches a disk."""

from holdfast.zones.kinds import KindPolicy, NameKind
from holdfast.zones.names import NameTable, sidecar_of, sidecar_owner
from holdfast.zones.workdir import SKELETON, VOLATILE, WorkdirName
from holdfast.zones.zone import Fallbacks, Zone, ZoneKind, ZoneMap, ZonePath

__all__ = [
    "SKELETON",
    "VOLATILE",
    "Fallbacks",
    "KindPolicy",
    "NameKind",
    "NameTable",
    "WorkdirName",
    "Zone",
    "ZoneKind",
    "ZoneMap",
    "ZonePath",
    "sidecar_of",
    "sidecar_owner",
]
