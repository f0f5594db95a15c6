"""From names to policies: which zone a path lies in, and of which kind a name is. Pure: nothing here touches a disk."""

from holdfast.zones.names import NameKind, NameTable, sidecar_of, sidecar_owner
from holdfast.zones.workdir import SKELETON, VOLATILE, WorkdirName
from holdfast.zones.zone import Place, Zone, ZoneKind, ZoneMap

__all__ = [
    "SKELETON",
    "VOLATILE",
    "NameKind",
    "NameTable",
    "Place",
    "WorkdirName",
    "Zone",
    "ZoneKind",
    "ZoneMap",
    "sidecar_of",
    "sidecar_owner",
]
