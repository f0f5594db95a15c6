"""The tree of errors: what went wrong, whose fault it is, and which errno the kernel gets.

Besides its message, every class states three things: the ``errno`` that a system call fails with, a stable ``code`` for
logs, events and metrics, and whether a retry can help (``transient``). Messages say what to do about the error.
Only ``fs.fuse.error_replies`` turns these errors into replies to the kernel.
"""

from __future__ import annotations

import errno as _errno
from typing import ClassVar


class HoldfastError(Exception):
    """Base of all errors that Holdfast raises on purpose."""

    errno: int = _errno.EIO
    code: ClassVar[str] = "internal"
    transient: ClassVar[bool] = False


# --- the operator's: configuration and set-up ---------------------------------------------------------------------


class ConfigurationError(HoldfastError):
    """A key, value or option is invalid; the message names the key, its source and what is allowed."""

    errno = _errno.EINVAL
    code = "configuration"


class StoreOptionError(ConfigurationError):
    """A store's library has no option ``option``, or does not take its value."""

    code = "store-option"

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(problem)
        self.option = option


class NotConfiguredError(ConfigurationError):
    """No configuration says yet where to mount; the message says what to edit, and how to start then."""

    code = "not-configured"


class NotInstalledError(HoldfastError):
    """A command needs packages of an extra that is not installed; the message says which, and what to install."""

    errno = _errno.ENODEV
    code = "not-installed"


class MountpointError(HoldfastError):
    """The mountpoint can't be used: missing, not a directory, in use, or held by a dead daemon."""

    code = "mountpoint"


class NotMountedError(MountpointError):
    """Nothing is mounted there, or there is no such directory."""

    errno = _errno.ENOENT
    code = "not-mounted"


class MountpointBusyError(MountpointError):
    """Somebody else has mounted there, or uses what is mounted."""

    errno = _errno.EBUSY
    code = "mountpoint-busy"


class FuseUnavailableError(HoldfastError):
    """This machine or container has no usable ``/dev/fuse``."""

    errno = _errno.ENODEV
    code = "fuse-unavailable"


class TakeoverError(HoldfastError):
    """The mount of an earlier daemon can't be taken over; a new mount can still be made."""

    code = "takeover"


class UnmountedError(HoldfastError):
    """The mount of an earlier daemon was unmounted while no daemon ran: there is nothing to take over or to do."""

    code = "unmounted"


class NotRestartableError(HoldfastError):
    """The daemon can't be replaced under the mount, because nothing would hold the mount in the meantime."""

    errno = _errno.EBUSY
    code = "not-restartable"


class StoreUnsuitableError(HoldfastError):
    """The local store directory can't hold a store (file system, rights, format version)."""

    code = "store-unsuitable"


class StoreInUseError(HoldfastError):
    """Another daemon holds the local store, the control socket or the session beside it."""

    errno = _errno.EBUSY
    code = "store-in-use"


class DaemonUnreachableError(HoldfastError):
    """No daemon answers on the control socket."""

    errno = _errno.ECONNREFUSED
    code = "daemon-unreachable"


class SocketForbiddenError(DaemonUnreachableError):
    """This user may not use the control socket."""

    errno = _errno.EACCES
    code = "socket-forbidden"


# --- the caller's: a request that can't be granted ----------------------------------------------------------------


class OutsideMountError(HoldfastError):
    """A path given to a command does not lie under the mountpoint."""

    errno = _errno.EXDEV
    code = "outside-mount"


class WithheldError(HoldfastError):
    """A request that is not allowed on the socket that is open to everybody."""

    errno = _errno.EACCES
    code = "withheld"


class RequestTooLargeError(HoldfastError):
    """A request to a control socket has a body larger than what is read there."""

    errno = _errno.EFBIG
    code = "request-too-large"


class NameTooLongError(HoldfastError):
    """A path given to a command has a name that no file can have."""

    errno = _errno.ENAMETOOLONG
    code = "name-too-long"


class NoSuchEntryError(HoldfastError):
    """Nothing is known under this name, locally or remotely."""

    errno = _errno.ENOENT
    code = "no-such-entry"


class StaleNodeError(HoldfastError):
    """The kernel refers to a file that no longer has a name; on this error it looks the name up again."""

    errno = _errno.ESTALE
    code = "stale-node"


class AccessRefusedError(HoldfastError):
    """The caller has no right to the object that a name in a working directory falls back to, or is sent to."""

    errno = _errno.EACCES
    code = "access-refused"


class ZoneNotPermittedError(HoldfastError):
    """The zone does not allow this operation (a symlink among objects, a file in the root of the mount)."""

    errno = _errno.EPERM
    code = "zone-not-permitted"


class ZoneRootBusyError(HoldfastError):
    """The root of a zone can't be renamed or replaced."""

    errno = _errno.EBUSY
    code = "zone-root"


class WriteOnceError(HoldfastError):
    """A write-once name exists already, here or on another node."""

    errno = _errno.EEXIST
    code = "write-once"


class HoldsObjectsError(HoldfastError):
    """A directory that holds objects can't be renamed in one step; ``mv`` copies instead."""

    errno = _errno.EXDEV
    code = "holds-objects"


class NameNotStorableError(HoldfastError):
    """A file name that can't be part of an object key.

    No store takes names that are not UTF-8 or have control characters (EILSEQ). One store alone may refuse a name that
    others take (EINVAL), or a key of so many bytes (ENAMETOOLONG).
    """

    errno = _errno.EILSEQ
    code = "name-not-storable"

    def __init__(self, message: str = "", errno: int = _errno.EILSEQ) -> None:
        super().__init__(message)
        self.errno = errno


class UnsupportedError(HoldfastError):
    """A flag or attribute that this kind of file can't have."""

    errno = _errno.EINVAL
    code = "unsupported"


class LeaseHeldError(HoldfastError):
    """A working directory has a live holder; the message names it."""

    errno = _errno.EBUSY
    code = "lease-held"


class DirectoryBusyError(HoldfastError):
    """A system call that hangs holds the lock of a directory, so that the kernel can't be told what has changed in it."""

    errno = _errno.EBUSY
    code = "directory-busy"


class LimitReachedError(HoldfastError):
    """A user has as much of the daemon in use as one user may have (``[limits]``)."""

    errno = _errno.ENFILE
    code = "limit-reached"


class ForeignWorkdirError(HoldfastError):
    """A working directory, or something in it, is not of the user who acquires it; the message says what."""

    errno = _errno.EPERM
    code = "foreign-workdir"


class FileBusyError(HoldfastError):
    """A file can't be dropped or moved now because it is open or not yet in the store."""

    errno = _errno.EBUSY
    code = "file-busy"


class PlanError(HoldfastError):
    """A plan can't be read, made or found."""

    errno = _errno.EINVAL
    code = "plan"


class NoSuchPlanError(PlanError):
    """There is no such plan, checkpoint, batch or query to make one of."""

    errno = _errno.ENOENT
    code = "no-such-plan"


class NotPinnedError(HoldfastError):
    """Exactly this path is not pinned."""

    errno = _errno.ENOENT
    code = "not-pinned"


class PlanOutdatedError(HoldfastError):
    """The store has changed since the plan was made, or the plan has been executed: make a new one."""

    errno = _errno.ESTALE
    code = "plan-outdated"


class HollowFileError(HoldfastError):
    """A file has so many bytes that were never written that hashing and sending them is refused."""

    errno = _errno.EFBIG
    code = "hollow-file"


class CheckpointError(HoldfastError):
    """An invalid operation on a checkpoint: a name that leads elsewhere, a restore before the commit."""

    errno = _errno.EINVAL
    code = "checkpoint"


# --- the disk's ---------------------------------------------------------------------------------------------------


class CacheFullError(HoldfastError):
    """Neither the cache limit nor the disk has room, and nothing can be evicted."""

    errno = _errno.ENOSPC
    code = "cache-full"


class IndexUnwritableError(HoldfastError):
    """A change can't be recorded in the index, because its disk takes no writes."""

    errno = _errno.EROFS
    code = "index-unwritable"


class IndexFullError(IndexUnwritableError):
    """A change can't be recorded in the index, because the disk is full."""

    errno = _errno.ENOSPC
    code = "index-full"


class QuotaExceededError(HoldfastError):
    """A working directory takes more of the disk than its role may."""

    errno = _errno.EDQUOT
    code = "quota-exceeded"


class DrainingError(HoldfastError):
    """This node is about to go away: nothing new is written to its stores."""

    errno = _errno.EROFS
    code = "draining"


class SessionFullError(HoldfastError):
    """A change can't be recorded for the next daemon, because the memory file system of the session is full."""

    errno = _errno.ENOSPC
    code = "session-full"


class CorruptEntryError(HoldfastError):
    """A file's bytes differ from its digest, or can't be read, and there is no other copy."""

    code = "corrupt-entry"


# --- the store's --------------------------------------------------------------------------------------------------


class RemoteError(HoldfastError):
    """Base of all errors of remote stores.

    ``of_store`` is false if the answer to a request for one object may say nothing of the store: the object may be archived
    or locked, or closed to us. ``is_partial`` is true if a request for many objects was carried out for the others.
    """

    code = "remote"

    def __init__(self, message: str = "", *, of_store: bool = True, is_partial: bool = False) -> None:
        super().__init__(message)
        self.of_store = of_store
        self.is_partial = is_partial


class ObjectMissingError(RemoteError):
    """The store says that there is no such object."""

    errno = _errno.ENOENT
    code = "object-missing"


class ObjectExistsError(RemoteError):
    """A conditional creation found the name taken."""

    errno = _errno.EEXIST
    code = "object-exists"


class ObjectChangedError(RemoteError):
    """The object is no longer the version that was asked for."""

    code = "object-changed"


class ObjectCorruptError(RemoteError):
    """The bytes that arrived differ from the digest stored with the object."""

    code = "object-corrupt"


class RemoteUnavailableError(RemoteError):
    """The store did not answer, or answered that it can't now."""

    code = "remote-unavailable"
    transient = True


class RemoteRefusedError(RemoteError):
    """The store refuses: credentials, rights, a bucket that does not exist."""

    code = "remote-refused"


# --- what others have written ------------------------------------------------------------------------------------


class UnreadableManifestError(HoldfastError):
    """A file that lists the contents of a checkpoint can't be read completely: everything it may name must be kept."""

    code = "manifest-unreadable"
