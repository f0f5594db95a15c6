"""Replay of requests that an earlier daemon may have carried out before it ended without a reply.

The kernel marks such a request as resent. Its effect must still happen exactly once. The waiting process holds the kernel's
lock on the directory, and the kernel knew whether the name existed when it sent the request. So if a resent creation finds
the name taken, the first attempt created it; if a resent removal finds nothing, the first attempt removed it. Where the
state does not show this, the first attempt leaves a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Attempt(NamedTuple):
    """A request by its number, which stays the same when it is resent; 0 if it has none and is never resent."""

    number: int
    resent: bool

    def create(self, step: Callable[[], None]) -> None:
        """Run a step, ignoring EEXIST if the request was resent."""
        try:
            step()
        except FileExistsError:
            if not self.resent:
                raise


FIRST = Attempt(0, False)
