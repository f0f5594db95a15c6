"""The features that an old kernel lacks, in words for whoever mounts on it."""

from __future__ import annotations

import re

from holdfast.control.messages import Status

OLDEST_KERNEL = (5, 4)
"""The first Linux with all that is needed: rename flags and pidfds."""
TAKEOVER_KERNEL = (6, 9)
"""The first Linux on which a mount outlives its daemon, and the kernel reads and writes files by itself."""


def version_of(release: str) -> tuple[int, ...]:
    """Return major and minor of a release such as ``6.1.0-13-amd64``."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def lacks(release: str) -> str:
    """Return what the kernel of this release lacks of what newer ones have; empty if nothing."""
    if version_of(release) >= TAKEOVER_KERNEL:
        return ""
    return (
        "before Linux 6.9 no mount outlives its daemon, with or without --supervise: after a crash open files fail with "
        "ENOTCONN and mappings with SIGBUS; and the daemon reads and writes all data (no passthrough)"
    )


def supervised_in_vain(status: Status) -> str:
    """Return why a supervised mount ends with its daemon all the same; empty if it does not."""
    if status.takeover == "takeover":
        return ""
    return (
        f"{status.takeover}: the supervisor starts the daemon again and mounts afresh, but files that are open then fail "
        "with ENOTCONN, and mappings with SIGBUS"
    )
