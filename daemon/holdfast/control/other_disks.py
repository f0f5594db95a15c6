"""The state of the other disks, as status and metrics tell it."""

from __future__ import annotations

from holdfast.control.messages import OtherDiskStatus
from holdfast.store import StoreDirectory, disk_space


def other_disks(store: StoreDirectory) -> list[OtherDiskStatus]:
    """Return the disks that are in use, that have failed, and that are missing since the daemon started."""
    found = [OtherDiskStatus(lost.path, lost.problem) for lost in store.others.missing]
    for disk in store.others.disks:
        path, count = str(disk.path), len(store.tree.paths_on(disk.number))
        if disk.has_failed:
            found.append(OtherDiskStatus(path, disk.problem or "it has failed", workdirs=count))
            continue
        try:
            space = disk_space(disk.workdirs_fd)
        except OSError as problem:
            found.append(OtherDiskStatus(path, str(problem.strerror), workdirs=count))
        else:
            found.append(OtherDiskStatus(path, "", space.size_bytes, space.free_bytes, count))
    return sorted(found, key=lambda each: each.path)
