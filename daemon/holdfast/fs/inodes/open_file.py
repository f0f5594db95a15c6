"""Open files: one backing descriptor per open node, shared by all handles.

The kernel knows a handle by its node's id, so that a daemon can serve handles that an earlier one opened. Only ``OpenFile``
changes its state. Other code reads it and calls methods named after events (``tests/unit/fs/test_open_file_state.py``
enforces this).
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
from dataclasses import InitVar, dataclass, field

from holdfast.errors import CorruptEntryError, StaleNodeError
from holdfast.fs.inodes.directories import Directories
from holdfast.fs.inodes.node import Node
from holdfast.system.file_id import FileId, FileStat, file_stat
from holdfast.transfer import PartialFetch

_PRIVILEGED_BITS = stat_module.S_ISUID | stat_module.S_ISGID
_CAN_NOT_WRITE = (errno.EPERM, errno.EACCES, errno.ETXTBSY, errno.EROFS)


def without_privileges(mode: int) -> int:
    """Return the permissions in ``mode`` without the set-id bits that a write clears (write(2))."""
    mode = stat_module.S_IMODE(mode)
    return mode & ~(stat_module.S_ISUID | (stat_module.S_ISGID if mode & stat_module.S_IXGRP else 0))


@dataclass(eq=False, slots=True)
class OpenFile:
    """An open node. ``handles`` counts the kernel's handles and users of the descriptor inside the daemon."""

    node: Node
    fd: int
    stat: InitVar[FileStat]
    writable: bool
    inode: FileId = field(init=False)
    """The inode number of the file behind ``fd``."""
    handles: int = 0
    leaving: int = 0
    """The handles that the kernel has released and whose release is still being processed; ``handles`` includes them."""
    unsent: bool = False
    """True if the bytes have changed since they were last sent."""
    exclusive: bool = False
    """True if it was created with O_EXCL: the first PUT must be a conditional create."""
    lost: bool = False
    """True if another writer won its only, write-once name. Flush and fsync fail from then on."""
    lost_with_disk: bool = False
    corrupt: bool = False
    unreachable: bool = False
    """True if an earlier daemon opened it, and this one can't find its bytes; ``fd`` is a placeholder."""
    arrival: PartialFetch | None = None
    """The fetch that is still writing the bytes."""
    served: bool = False
    """True if bytes were read during the fetch: the rest must be of the same version."""
    is_handed_out: bool = False
    """True once the kernel has a handle: all further handles must be served in the same way."""
    backing_id: int | None = None
    """The kernel's id for passthrough; None if the daemon serves the data."""
    passthrough_uid: int = 0
    """The user who got the first handle in passthrough, if that was not root."""
    has_strangers: bool = False
    """True if somebody other than that user, or than root, has a handle in passthrough too."""
    is_hot: bool = False
    """True if a user, not root, has a handle in passthrough, and so may hold the lock of the inode (``hot_files``)."""
    stamp: tuple[int, int] | None = None
    """The size and mtime when the bytes were last known, while passthrough writes are possible."""
    mtime_set_ns: int | None = None
    """The mtime that a user has set since the bytes last changed."""
    hides_writes: bool = False
    """True if a user has set the mtime while passthrough writes were possible: the stamp tells nothing of one just then."""
    mtime_shown_ns: int = 0
    """The store's time of these bytes, which is to be shown while the file has the present stamp; 0 while unknown."""
    was_sent: bool = False
    """True if the bytes were sent while passthrough writes were possible."""
    slot: int = 0
    """The slot of the session's open table that counts the kernel's handles; 0 if it never had any."""
    writes: bool = False
    """True once the kernel has had a writable handle."""
    writer: int = 0
    """The process that has all writable descriptors and their copies, and has closed none of them; 0 if unknown."""
    charged_uid: int = 0
    """The user whose limit of open files it counts against (``file_io.open_limits``); 0 if nobody's."""
    programs: int = 0
    """The number of handles of running programs."""
    privileged: bool = False
    """True if a write must clear set-id bits (POSIX write(2); the kernel leaves it to us)."""

    def __post_init__(self, stat: FileStat) -> None:
        self.inode = stat.st_ino
        if stat.st_mode & _PRIVILEGED_BITS:
            self.mode_changed(stat.st_mode)

    # --- handles -----------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Count one more user of the descriptor."""
        self.handles += 1

    def uncount(self) -> None:
        """Count one user fewer."""
        self.handles -= 1

    def charged_to(self, uid: int) -> None:
        """Note that it counts against the user's limit of open files."""
        self.charged_uid = uid

    def begin_leaving(self) -> None:
        """Note that the kernel has released a handle. It stays counted until its release is processed in the background."""
        self.leaving += 1

    def end_leaving(self) -> None:
        """Note that the release of a handle has been processed."""
        self.leaving -= 1

    @property
    def has_one_user(self) -> bool:
        """True if exactly one handle is in use."""
        return self.handles - self.leaving == 1

    def hand_out(self, backing_id: int | None) -> None:
        """Note that the kernel gets its first handle, which decides how all handles are served."""
        self.is_handed_out = True
        self.backing_id = backing_id

    def passed_through_for(self, uid: int, *, is_first: bool) -> None:
        """Note that a user who is not root gets a handle in passthrough."""
        self.is_hot = True
        if is_first:
            self.passthrough_uid = uid
        elif uid != self.passthrough_uid:
            self.has_strangers = True

    def passed_on_from(self, uid: int) -> None:
        """Note that an earlier daemon had given the first handle to this user."""
        self.passthrough_uid = uid

    def passed_on_from_several(self) -> None:
        """Note that an earlier daemon had given handles in passthrough to several users."""
        self.has_strangers = True

    def count_for_next_daemon(self, slot: int) -> None:
        """Count the kernel's handles at ``slot`` from now on; 0 stops counting."""
        self.slot = slot

    def note_writing_handle(self) -> None:
        """Note that the kernel gets a writable handle."""
        self.writes = True

    def begin_running(self) -> None:
        """Note that the kernel gets a handle to run the file as a program."""
        self.programs += 1

    def end_running(self) -> None:
        """Note that the kernel has released such a handle."""
        self.programs -= 1

    def opened_by(self, process: int) -> None:
        """Note that ``process`` gets a writable handle. It is the only writer until another process gets one."""
        self.writer = process if process == self.writer or not self.writes else 0

    def closed_by_writer(self) -> None:
        """Note that the only writer has closed a descriptor. Whether it has others is unknown."""
        self.writer = 0

    def resume(
        self,
        *,
        handles: int,
        programs: int,
        slot: int,
        exclusive: bool,
        writes: bool,
        backing_id: int | None,
        served: bool,
    ) -> None:
        """Restore the state that an earlier daemon recorded."""
        self.handles = handles
        self.programs = min(programs, handles)
        self.is_handed_out = True
        self.slot = slot
        self.exclusive = exclusive
        self.writes = writes
        self.backing_id = backing_id
        self.is_hot = backing_id is not None
        self.served = served

    def put_out_of_reach(self, *, lost: bool, with_disk: bool) -> None:
        """Mark a file of an earlier daemon whose bytes can't be found; ``lost`` as the attribute.

        ``with_disk``: they were on a disk that is lost, and so flush and fsync fail for that reason.
        """
        self.unreachable = True
        self.lost = lost
        self.lost_with_disk = with_disk

    # --- bytes to be sent --------------------------------------------------------------------------------------------

    @property
    def may_change(self) -> bool:
        """True if bytes were written that are not accounted for, or may be written at any time by passthrough."""
        return self.unsent or self.stamp is not None

    def created(self, *, exclusive: bool, is_sent: bool) -> None:
        """Note that the file was just created. With ``is_sent`` its bytes must be sent, even if there are none."""
        self.unsent = self.unsent or is_sent
        self.exclusive = exclusive

    def changed(self) -> None:
        """Note that the bytes differ from those sent last, or that sending them failed."""
        self.unsent = True
        self.mtime_shown_ns = 0

    def mtime_was_set(self, mtime_ns: int) -> None:
        """Note that a user has set the mtime."""
        self.mtime_set_ns = mtime_ns
        self.mtime_shown_ns = 0

    def shows_mtime(self, mtime_ns: int) -> None:
        """Note that the store has these bytes, with this time."""
        self.mtime_shown_ns = mtime_ns

    def begin_sending(self, stamp: tuple[int, int] | None) -> None:
        """Note that the current bytes are about to be sent. ``stamp`` is theirs if passthrough writes are possible."""
        self.unsent = False
        self.mtime_shown_ns = 0
        self.hides_writes = False
        if self.stamp is not None:
            self.stamp = stamp
            self.was_sent = True

    def expect_writes(self, stamp: tuple[int, int]) -> None:
        """Note that the bytes, which have this stamp now, may change at any time by passthrough writes."""
        self.stamp = stamp

    def may_have_been_sent(self) -> None:
        """Note that an earlier daemon may have sent the bytes while they could change by passthrough writes."""
        self.was_sent = True

    def note_time_set(self, stamp: tuple[int, int]) -> None:
        """Note that the bytes have this stamp because of a time that a user has set: it may hide a write."""
        self.stamp = stamp
        self.hides_writes = True

    def note_compared(self) -> None:
        """Note that the bytes with the present stamp are those that were sent."""
        self.hides_writes = False

    def lose(self) -> None:
        """Note that another writer won its only name."""
        self.lost = True

    # --- the bytes themselves ----------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """True if the fetch of its bytes ended with an error."""
        return self.arrival is not None and self.arrival.failed

    def arrives_by(self, arrival: PartialFetch) -> None:
        """Note that its bytes are still being fetched into the file behind ``fd``."""
        arrival.hold()
        self.arrival = arrival

    def arrives_anew_by(self, arrival: PartialFetch) -> None:
        """Read from another fetch from now on."""
        os.dup2(arrival.fd, self.fd, inheritable=False)
        self.inode = file_stat(self.fd).st_ino
        before = self.arrival
        self.arrives_by(arrival)
        if before is not None:
            before.let_go()

    def arrived(self) -> None:
        """Note that all of its bytes are here."""
        if self.arrival is not None:
            self.arrival.let_go()
            self.arrival = None

    def served_bytes(self) -> None:
        """Note that bytes were read during the fetch."""
        self.served = True

    def became_corrupt(self) -> None:
        """Refuse all further reads: the bytes do not match their digest."""
        self.corrupt = True

    def check_reachable(self) -> None:
        """Raise ``CorruptEntryError`` if ``fd`` is only a placeholder."""
        if self.unreachable:
            raise CorruptEntryError("the file is out of reach since the daemon was started anew; open it again")

    def mode_changed(self, mode: int) -> None:
        """Note that the mode of the file is now ``mode``."""
        self.privileged = bool(mode & _PRIVILEGED_BITS) and stat_module.S_ISREG(mode)

    def dropped_privileges(self) -> None:
        """Note that the set-id bits were cleared because the bytes change."""
        self.privileged = False

    def make_writable(self) -> None:
        """Reopen the descriptor, which is read-only, for reading and writing. Raises ``OSError``."""
        fd = os.open(f"/proc/self/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)
        self.writable = True

    def close(self) -> None:
        """Close the backing descriptor and release the fetch."""
        os.close(self.fd)
        self.arrived()


def open_local(directories: Directories, node: Node, *, writable: bool) -> OpenFile:
    """Open the backing file of a node, for writing too if possible. Raises ``OSError`` and ``StaleNodeError``."""
    if node.parent is None:
        raise StaleNodeError("the file was removed")
    directory_fd = directories.descriptor(node.parent)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(node.name, flags | os.O_RDWR, dir_fd=directory_fd)
        can_write = True
    except OSError as problem:
        if writable or problem.errno not in _CAN_NOT_WRITE:
            raise
        fd = os.open(node.name, flags | os.O_RDONLY, dir_fd=directory_fd)
        can_write = False
    stat = file_stat(fd)
    if stat.st_ino != node.backing:
        os.close(fd)
        raise StaleNodeError("another file has this name now")
    return OpenFile(node, fd, stat, can_write)
