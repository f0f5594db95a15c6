"""The policies that follow from names: the zone of a path, and the kind of a name. Pure: nothing here touches a disk."""

from holdfast.zones.name_kinds import KindPolicy, NameKind
from holdfast.zones.names import NameTable, ZoneName, sidecar_of, sidecar_owner
from holdfast.zones.workdir import SKELETON, VOLATILE, WorkdirName
from holdfast.zones.zone import LONGEST_KEY_BYTES, Fallbacks, Zone, ZoneKind, ZoneMap, ZonePath, is_at_or_below
