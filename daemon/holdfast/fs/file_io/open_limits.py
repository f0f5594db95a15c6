"""The limit of files that each user may have open: each takes a descriptor of the daemon, whose number is limited.

A file is counted for the user whose open made the descriptor, until it is closed; further handles cost nothing. Root is not
counted, and has the descriptors that the total of all others leaves. Files taken over from an earlier daemon count on, even
beyond a limit that is lower now.
"""

from __future__ import annotations

import resource
from collections import Counter

from holdfast.errors import LimitReachedError
from holdfast.fs.inodes.open_file import OpenFile
from holdfast.telemetry import RareEvents

_MOST_BY_DEFAULT = 65_536
_RESERVED_PART = 4
"""One descriptor in this many is left to root and to the daemon itself: directories, index, sockets, fetches."""


class OpenLimits:
    """Counts open files by user. ``per_user`` is the limit; 0 stands for half of what all users may have together."""

    def __init__(self, per_user: int, rare_events: RareEvents) -> None:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._total = descriptors - descriptors // _RESERVED_PART
        self.set_per_user(per_user)
        self._events = rare_events
        self._open: Counter[int] = Counter()

    def set_per_user(self, per_user: int) -> None:
        """Set another limit. A user who is above it may only close files."""
        self._per_user = per_user or min(_MOST_BY_DEFAULT, self._total // 2)

    def check(self, uid: int) -> None:
        """Raise ``LimitReachedError`` (ENFILE) if the user, who is not root, may not open another file."""
        if self._open[uid] >= self._per_user:
            self._events.emit("limit-reached", uid=uid, what="open files", limit=self._per_user)
            raise LimitReachedError(f"user {uid} has {self._open[uid]} files open; limits.open_files_per_user sets how many")
        if self._open.total() >= self._total:  # of others, too: it would be wrong to name the one who asks
            self._events.emit("limit-reached", what="open files of all users", limit=self._total)
            raise LimitReachedError(f"all users together have {self._total} files open; LimitNOFILE= sets how many")

    def charge(self, opened: OpenFile, uid: int) -> None:
        """Count a file that was just opened for a user who is not root. Raises as ``check``."""
        self.check(uid)
        self.resume(opened, uid)

    def resume(self, opened: OpenFile, uid: int) -> None:
        """Count a file that an earlier daemon counted for a user who is not root, whatever the limit."""
        self._open[uid] += 1
        opened.charged_to(uid)

    def refund(self, opened: OpenFile) -> None:
        """Uncount a file that is closed."""
        uid = opened.charged_uid
        if self._open[uid] == 1:
            del self._open[uid]
        else:
            self._open[uid] -= 1
