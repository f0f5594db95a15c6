"""The features that an old kernel lacks, in words for whoever mounts on it."""

from __future__ import annotations

import re

from holdfast.control.messages import Status

OLDEST_KERNEL = (5, 4)
"""The first Linux with all that is needed: rename flags and pidfds."""
TAKEOVER_KERNEL = (6, 9)
"""The first Linux on which a mount outlives its daemon, and the kernel reads and writes files by itself."""

_MOST_NAMED = 10


def version_of(release: str) -> tuple[int, ...]:
    """Return major and minor of a release such as ``6.1.0-13-amd64``."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


def lacks(release: str) -> str:
    """Return what the kernel of this release lacks of what newer ones have; empty if nothing."""
    if version_of(release) >= TAKEOVER_KERNEL:
        return ""
    return (
        "before Linux 6.9 no mount outlives its daemon, with or without --supervise: after a crash open files fail with "
        "ENOTCONN and mappings with SIGBUS, so executors and drivers must be started again; and the daemon reads and writes "
        "all data (no passthrough)"
    )


def supervised_in_vain(status: Status) -> str:
    """Return why a supervised mount ends with its daemon all the same; empty if it does not."""
    if status.takeover == "takeover":
        return ""
    return (
        f"{status.takeover}: the supervisor starts the daemon again and mounts afresh, but files that are open then fail "
        "with ENOTCONN, and mappings with SIGBUS: what uses the mount must be started again"
    )


def end_of(takeover: str) -> str:
    """Return what the end of the daemon means for the mount."""
    if takeover == "takeover":
        return "the mount outlives the daemon"
    return f"the mount ends with the daemon, and what is open in it fails from then on ({takeover})"


def left_behind(users: list[str]) -> str:
    """Say of processes that they use a mount whose daemon has died."""
    named = ", ".join(users[:_MOST_NAMED]) + (f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else "")
    return f"still in use by {named}: the daemon of that mount has died, and what they have open there stays dead"
