"""Open files: one backing descriptor for each open node, shared by all its handles.

A handle is known to the kernel by its node's id, so that a daemon that did not open it understands it all the same.
``OpenFile`` alone changes its state: others read it, and call a method that is named after what has happened
(``tests/unit/test_open_file_state.py`` holds this).
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
    """An open node. ``handles`` counts the kernel's, and those of whoever uses the descriptor inside the daemon."""

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
        """Bytes changed since they were last sent."""
        self.exclusive = False
        """Created with O_EXCL: the first PUT must create."""
        self.lost = False
        """Another writer was first at its only name, which is written once: all who want its bytes kept are told."""
        self.corrupt = False
        self.unreachable = False
        """An earlier daemon had it, and this one can't: ``fd`` only stands for it."""
        self.arrival: PartialFetch | None = None
        """The fetch that still brings the bytes."""
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
        self.privileged = False
        """A write must take set-id bits away (POSIX write(2); the kernel leaves it to us)."""
        self.mode_changed(stat.st_mode)

    # --- handles -----------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Somebody uses the descriptor."""
        self.handles += 1

    def uncount(self) -> None:
        """Somebody uses it no more."""
        self.handles -= 1

    def begin_leaving(self) -> None:
        """The kernel has dropped a handle; what it left is seen to in the background, and it counts until then."""
        self.leaving += 1

    def end_leaving(self) -> None:
        """That is done."""
        self.leaving -= 1

    @property
    def has_one_user(self) -> bool:
        """Whether only one handle is in use."""
        return self.handles - self.leaving == 1

    def hand_out(self, backing_id: int | None) -> None:
        """The kernel gets its first handle, which decides how the data of all are served."""
        self.has_kind = True
        self.backing_id = backing_id

    def count_for_next_daemon(self, slot: int) -> None:
        """The kernel's handles are counted at ``slot`` from now on; 0: no longer."""
        self.slot = slot

    def note_writing_handle(self) -> None:
        """The kernel gets a handle that may write."""
        self.writes = True

    def opened_by(self, process: int) -> None:
        """``process`` gets a handle that may write. It counts as the only one until another does."""
        self.writer = process if process == self.writer or not self.writes else 0

    def closed_by_writer(self) -> None:
        """The only process that writes has closed a descriptor: which others it has is not known."""
        self.writer = 0

    def resume(
        self, *, handles: int, slot: int, exclusive: bool, writes: bool, backing_id: int | None, served: bool
    ) -> None:
        """An earlier daemon had it open: go on with what that one has written down."""
        self.handles = handles
        self.has_kind = True
        self.slot = slot
        self.exclusive = exclusive
        self.writes = writes
        self.backing_id = backing_id
        self.served = served

    def put_out_of_reach(self, *, lost: bool) -> None:
        """An earlier daemon had it open, and its bytes can't be found; ``lost`` as the attribute."""
        self.unreachable = True
        self.lost = lost

    # --- bytes to be sent --------------------------------------------------------------------------------------------

    @property
    def may_change(self) -> bool:
        """Whether bytes were written that nothing has accounted for, or may be at any time without the daemon's knowing."""
        return self.unsent or self.stamp is not None

    def created(self, *, exclusive: bool, is_sent: bool) -> None:
        """It was made just now: its first bytes, be they none, are to be sent if its name ``is_sent``."""
        self.unsent = self.unsent or is_sent
        self.exclusive = exclusive

    def changed(self) -> None:
        """Its bytes are not those that were sent last, or sending them has failed."""
        self.unsent = True

    def begin_sending(self, stamp: tuple[int, int] | None) -> None:
        """The bytes as they are now are about to be sent. ``stamp`` is theirs, where they may change past the daemon."""
        self.unsent = False
        if self.stamp is not None:
            self.stamp = stamp
            self.was_sent = True

    def expect_writes(self, stamp: tuple[int, int]) -> None:
        """From now on the bytes, which have this stamp, may change at any time without the daemon's knowing."""
        self.stamp = stamp

    def lose(self) -> None:
        """Another writer was first at its only name."""
        self.lost = True

    # --- the bytes themselves ----------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the bytes will not come: the fetch that brought them has ended with an error."""
        return self.arrival is not None and self.arrival.failed

    def arrives_by(self, arrival: PartialFetch) -> None:
        """Its bytes are still to come, into the file that ``fd`` is open on."""
        arrival.hold()
        self.arrival = arrival

    def arrives_anew_by(self, arrival: PartialFetch) -> None:
        """Read from another fetch from now on."""
        os.dup2(arrival.fd, self.fd, inheritable=False)
        before = self.arrival
        self.arrives_by(arrival)
        if before is not None:
            before.let_go()

    def arrived(self) -> None:
        """All of its bytes are here."""
        if self.arrival is not None:
            self.arrival.let_go()
            self.arrival = None

    def served_bytes(self) -> None:
        """Bytes were read while it arrived."""
        self.served = True

    def became_corrupt(self) -> None:
        """Its bytes differ from their digest: nobody may read them any more."""
        self.corrupt = True

    def check_reachable(self) -> None:
        """Raise ``CorruptEntryError`` where ``fd`` only stands for the file."""
        if self.unreachable:
            raise CorruptEntryError("the file is out of reach since the daemon was started anew; open it again")

    def mode_changed(self, mode: int) -> None:
        """Its mode is ``mode`` now."""
        self.privileged = bool(mode & _PRIVILEGED_BITS) and stat_module.S_ISREG(mode)

    def drop_privileges(self) -> None:
        """Take the set-id bits away, because the bytes change."""
        os.fchmod(self.fd, without_privileges(os.fstat(self.fd).st_mode))
        self.privileged = False

    def make_writable(self) -> None:
        """Let the descriptor, which is open for reading, be written to as well. Raises ``OSError``."""
        fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)
        self.writable = True

    def close(self) -> None:
        """Close the backing descriptor and let go of the fetch."""
        os.close(self.fd)
        self.arrived()
