"""The state of the other disks, as status and metrics tell it."""

from __future__ import annotations

from holdfast.capacity import Rooms
from holdfast.control.messages import OtherDiskStatus
from holdfast.store import OtherDisk, StoreDirectory


def other_disks(store: StoreDirectory, rooms: Rooms) -> list[OtherDiskStatus]:
    """Return the disks that are in use, that have failed, and that are missing since the daemon started."""
    found = [OtherDiskStatus(lost.path, lost.problem) for lost in store.others.missing]
    found += (_status(disk, len(store.tree.workdirs_on(disk.number)), rooms) for disk in store.others.disks)
    return sorted(found, key=lambda each: each.path)


def _status(disk: OtherDisk, workdirs: int, rooms: Rooms) -> OtherDiskStatus:
    path, room = str(disk.path), rooms.on(disk.number)
    usage = room.usage()
    if disk.has_failed:  # perhaps found out just now
        return OtherDiskStatus(path, disk.problem or "it has failed", workdirs=workdirs)
    space, reserve = usage.disk, room.limits.reserve(usage.disk)
    return OtherDiskStatus(
        path,
        "",
        space.size_bytes,
        space.free_bytes,
        workdirs,
        reserve.size_bytes,
        space.files,
        space.free_files,
        reserve.files,
        usage.cached_bytes,
    )
