"""Open files: one backing descriptor for each open node, shared by all its handles.

A handle is known to the kernel by its node's id, so that a daemon that did not open it understands it all the same.
"""

from __future__ import annotations

import os
import stat as stat_module

from holdfast.errors import CorruptEntryError
from holdfast.fs.inodes.nodes import Node
from holdfast.transfer import PartialFetch

_PRIVILEGED_BITS = stat_module.S_ISUID | stat_module.S_ISGID


def without_privileges(mode: int) -> int:
    """Return the permissions in ``mode`` without the set-id bits that a change of the bytes takes away (write(2))."""
    mode = stat_module.S_IMODE(mode)
    return mode & ~(stat_module.S_ISUID | (stat_module.S_ISGID if mode & stat_module.S_IXGRP else 0))


class OpenFile:
    """An open node. ``handles`` counts the kernel's; ``unsent`` says whether bytes changed since they were last sent."""

    __slots__ = (
        "arrival",
        "backing_id",
        "corrupt",
        "exclusive",
        "fd",
        "handles",
        "has_kind",
        "leaving",
        "lost",
        "node",
        "privileged",
        "served",
        "slot",
        "stamp",
        "unreachable",
        "unsent",
        "was_sent",
        "writable",
        "writer",
        "writes",
    )

    def __init__(self, node: Node, fd: int, stat: os.stat_result, writable: bool) -> None:
        self.node = node
        self.fd = fd
        self.handles = 0
        self.leaving = 0
        """Handles that the kernel has dropped, and that are still counted until what they left has been seen to."""
        self.writable = writable
        self.unsent = False
        self.exclusive = False
        """Created with O_EXCL: the first PUT must create."""
        self.lost = False
        """Another writer was first at its only name, which is written once: all who want its bytes kept are told."""
        self.corrupt = False
        self.unreachable = False
        """An earlier daemon had it, and this one can't: ``fd`` only stands for it."""
        self.arrival: PartialFetch | None = None
        self.served = False
        """Bytes were read while it arrived: the rest must be of the same version."""
        self.has_kind = False
        """The kernel has a handle: all others must be served as that one is."""
        self.backing_id: int | None = None
        """By which the kernel reads and writes past the daemon; None: the daemon serves the data."""
        self.stamp: tuple[int, int] | None = None
        """Size and mtime when the bytes were last known, while they may change past the daemon."""
        self.was_sent = False
        """Bytes were sent while they might change past the daemon."""
        self.slot = 0
        """Where the kernel's handles are counted for the next daemon; 0 while the kernel never had any."""
        self.writes = False
        """The kernel has had a handle that may write."""
        self.writer = 0
        """The process that has all descriptors that may write, or their copies, and has closed none; 0: not known."""
        self.note_mode(stat.st_mode)

    def note_mode(self, mode: int) -> None:
        """Remember whether a write must take set-id bits away (POSIX write(2); the kernel leaves it to us)."""
        self.privileged = bool(mode & _PRIVILEGED_BITS) and stat_module.S_ISREG(mode)

    def drop_privileges(self) -> None:
        """Take the set-id bits away, because the bytes change."""
        os.fchmod(self.fd, without_privileges(os.fstat(self.fd).st_mode))
        self.privileged = False

    @property
    def failed(self) -> bool:
        """Whether the bytes will not come: the fetch that brought them has ended with an error."""
        return self.arrival is not None and self.arrival.failed

    @property
    def has_one_user(self) -> bool:
        """Whether only one handle is in use."""
        return self.handles - self.leaving == 1

    @property
    def may_change(self) -> bool:
        """Whether bytes were written that nothing has accounted for, or may be at any time without the daemon's knowing."""
        return self.unsent or self.stamp is not None

    def check_reachable(self) -> None:
        """Raise ``CorruptEntryError`` where ``fd`` only stands for the file."""
        if self.unreachable:
            raise CorruptEntryError("the file is out of reach since the daemon was started anew; open it again")

    def change_arrival(self, arrival: PartialFetch) -> None:
        """Read from another fetch from now on."""
        os.dup2(arrival.fd, self.fd, inheritable=False)
        arrival.hold()
        if self.arrival is not None:
            self.arrival.let_go()
        self.arrival = arrival

    def close(self) -> None:
        """Close the backing descriptor and let go of the arrival."""
        os.close(self.fd)
        if self.arrival is not None:
            self.arrival.let_go()
            self.arrival = None
