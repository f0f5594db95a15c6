"""The tree of errors: what went wrong, whose fault it is, and which errno the kernel gets.

Besides its message, every class states three things in its head: a stable ``code`` for logs, events and metrics, the
``errno`` that a system call fails with, and whether a retry can help (``transient``). It inherits what it does not state.
Messages say what to do about the error.
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

    def __init_subclass__(cls, code: str = "", errno: int = 0, *, transient: bool = False) -> None:
        cls.code = code or cls.code
        cls.errno = errno or cls.errno
        cls.transient = transient or cls.transient


# --- the operator's: configuration and set-up ---------------------------------------------------------------------


class ConfigurationError(HoldfastError, code="configuration", errno=_errno.EINVAL):
    """A key, value or option is invalid; the message names the key, its source and what is allowed."""


class StoreOptionError(ConfigurationError, code="store-option"):
    """A store's library has no option ``option``, or does not take its value."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(problem)
        self.option = option


class NotConfiguredError(ConfigurationError, code="not-configured"):
    """No configuration says yet where to mount; the message says what to edit, and how to start then."""


class NotInstalledError(HoldfastError, code="not-installed", errno=_errno.ENODEV):
    """A command needs packages of an extra that is not installed; the message says which, and what to install."""


class MountpointError(HoldfastError, code="mountpoint"):
    """The mountpoint can't be used: missing, not a directory, in use, or held by a dead daemon."""


class UnusableMountpointError(MountpointError, code="mountpoint-unusable", errno=_errno.EINVAL):
    """The named path can't be a mountpoint: it is empty, no directory, or a directory that is not empty."""


class NotMountedError(MountpointError, code="not-mounted", errno=_errno.ENOENT):
    """Nothing is mounted there, or there is no such directory."""


class MountpointBusyError(MountpointError, code="mountpoint-busy", errno=_errno.EBUSY):
    """Somebody else has mounted there, or uses what is mounted."""


class OutputError(HoldfastError, code="output"):
    """The output of a command can't be written."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(f"the output can't be written: {problem.strerror}")


class FuseUnavailableError(HoldfastError, code="fuse-unavailable", errno=_errno.ENODEV):
    """This machine or container has no usable ``/dev/fuse``."""


class TakeoverError(HoldfastError, code="takeover"):
    """The mount of an earlier daemon can't be taken over; a new mount can still be made."""


class UnmountedError(HoldfastError, code="unmounted"):
    """The mount of an earlier daemon was unmounted while no daemon ran: there is nothing to take over or to do."""


class NotRestartableError(HoldfastError, code="not-restartable", errno=_errno.EBUSY):
    """The daemon can't be replaced under the mount, because nothing would hold the mount in the meantime."""


class StoreUnsuitableError(HoldfastError, code="store-unsuitable"):
    """The local store directory can't hold a store (file system, rights, format version)."""


class StoreInUseError(HoldfastError, code="store-in-use", errno=_errno.EBUSY):
    """Another daemon holds the local store, the control socket or the session beside it."""


class DaemonUnreachableError(HoldfastError, code="daemon-unreachable", errno=_errno.ECONNREFUSED):
    """No daemon answers on the control socket."""


class DaemonSilentError(DaemonUnreachableError, code="daemon-silent"):
    """A daemon holds the control socket, and does not answer."""


class SocketForbiddenError(DaemonUnreachableError, code="socket-forbidden", errno=_errno.EACCES):
    """This user may not use the control socket."""


# --- the caller's: a request that can't be granted ----------------------------------------------------------------


class OutsideMountError(HoldfastError, code="outside-mount", errno=_errno.EXDEV):
    """A path given to a command does not lie under the mountpoint."""


class WithheldError(HoldfastError, code="withheld", errno=_errno.EACCES):
    """A request that is not allowed on the socket that is open to everybody."""


class RequestTooLargeError(HoldfastError, code="request-too-large", errno=_errno.EFBIG):
    """A request to a control socket has a body larger than what is read there."""


class NameTooLongError(HoldfastError, code="name-too-long", errno=_errno.ENAMETOOLONG):
    """A path given to a command has a name that no file can have."""


class NoSuchEntryError(HoldfastError, code="no-such-entry", errno=_errno.ENOENT):
    """Nothing is known under this name, locally or remotely."""


class StaleNodeError(HoldfastError, code="stale-node", errno=_errno.ESTALE):
    """The kernel refers to a file that no longer has a name; on this error it looks the name up again."""


class AccessRefusedError(HoldfastError, code="access-refused", errno=_errno.EACCES):
    """The caller has no right to the object that a name in a working directory falls back to, or is sent to."""


class ZoneNotPermittedError(HoldfastError, code="zone-not-permitted", errno=_errno.EPERM):
    """The zone does not allow this operation (a symlink among objects, a file in the root of the mount)."""


class ZoneRootBusyError(HoldfastError, code="zone-root", errno=_errno.EBUSY):
    """The root of a zone can't be renamed or replaced."""


class WriteOnceError(HoldfastError, code="write-once", errno=_errno.EEXIST):
    """A write-once name exists already, here or on another node."""


class HoldsObjectsError(HoldfastError, code="holds-objects", errno=_errno.EXDEV):
    """A directory that holds objects can't be renamed in one step; ``mv`` copies instead."""


class NameNotStorableError(HoldfastError, code="name-not-storable", errno=_errno.EILSEQ):
    """A file name that can't be part of an object key.

    No store takes names that are not UTF-8 or have control characters (EILSEQ). One store alone may refuse a name that
    others take (EINVAL), or a key of so many bytes (ENAMETOOLONG).
    """

    def __init__(self, message: str = "", errno: int = _errno.EILSEQ) -> None:
        super().__init__(message)
        self.errno = errno


class UnsupportedError(HoldfastError, code="unsupported", errno=_errno.EINVAL):
    """A flag or attribute that this kind of file can't have."""


class LeaseHeldError(HoldfastError, code="lease-held", errno=_errno.EBUSY):
    """A working directory has a live holder; the message names it."""


class DirectoryBusyError(HoldfastError, code="directory-busy", errno=_errno.EBUSY):
    """A system call that hangs holds the lock of a directory, so that the kernel can't be told what has changed in it."""


class LimitReachedError(HoldfastError, code="limit-reached", errno=_errno.ENFILE):
    """A user has as much of the daemon in use as one user may have (``[limits]``)."""


class ForeignWorkdirError(HoldfastError, code="foreign-workdir", errno=_errno.EPERM):
    """A working directory, or something in it, is not of the user who acquires it; the message says what."""


class FileBusyError(HoldfastError, code="file-busy", errno=_errno.EBUSY):
    """A file can't be dropped or moved now because it is open or not yet in the store."""


class PlanError(HoldfastError, code="plan", errno=_errno.EINVAL):
    """A plan can't be read, made or found."""


class NoSuchPlanError(PlanError, code="no-such-plan", errno=_errno.ENOENT):
    """There is no such plan, checkpoint, batch or query to make one of."""


class QueryRunsError(PlanError, code="query-runs", errno=_errno.EBUSY):
    """The query that is to be changed seems to run: something was written a moment ago."""


class NotPinnedError(HoldfastError, code="not-pinned", errno=_errno.ENOENT):
    """Exactly this path is not pinned."""


class PlanOutdatedError(HoldfastError, code="plan-outdated", errno=_errno.ESTALE):
    """The store has changed since the plan was made, or the plan has been executed: make a new one."""


class HollowFileError(HoldfastError, code="hollow-file", errno=_errno.EFBIG):
    """A file has so many bytes that were never written that hashing and sending them is refused."""


class CheckpointError(HoldfastError, code="checkpoint", errno=_errno.EINVAL):
    """An invalid operation on a checkpoint: a name that leads elsewhere, a restore before the commit."""


# --- the disk's ---------------------------------------------------------------------------------------------------


class CacheFullError(HoldfastError, code="cache-full", errno=_errno.ENOSPC):
    """Neither the cache limit nor the disk has room, and nothing can be evicted."""


class IndexUnwritableError(HoldfastError, code="index-unwritable", errno=_errno.EROFS):
    """A change can't be recorded in the index, because its disk takes no writes."""


class IndexFullError(IndexUnwritableError, code="index-full", errno=_errno.ENOSPC):
    """A change can't be recorded in the index, because the disk is full."""


class QuotaExceededError(HoldfastError, code="quota-exceeded", errno=_errno.EDQUOT):
    """A working directory takes more of the disk than its role may."""


class DrainingError(HoldfastError, code="draining", errno=_errno.EROFS):
    """This node is about to go away: nothing new is written to its stores."""


class SessionFullError(HoldfastError, code="session-full", errno=_errno.ENOSPC):
    """A change can't be recorded for the next daemon, because the memory file system of the session is full."""


class CorruptEntryError(HoldfastError, code="corrupt-entry"):
    """A file's bytes differ from its digest, or can't be read, and there is no other copy."""


class LostBytesError(HoldfastError, code="lost-bytes"):
    """The disk has refused bytes of a file after their write had succeeded; so the file is neither sent nor trusted."""

    def __init__(
        self, message: str = "the disk has refused bytes that were written to the file: look at the disk, and write it anew"
    ) -> None:
        super().__init__(message)


# --- the store's --------------------------------------------------------------------------------------------------


class RemoteError(HoldfastError, code="remote"):
    """Base of all errors of remote stores.

    ``of_store`` is false if the answer to a request for one object may say nothing of the store: the object may be archived
    or locked, or closed to us. ``is_partial`` is true if a request for many objects was carried out for the others.
    """

    def __init__(self, message: str = "", *, of_store: bool = True, is_partial: bool = False) -> None:
        super().__init__(message)
        self.of_store = of_store
        self.is_partial = is_partial


class ObjectMissingError(RemoteError, code="object-missing", errno=_errno.ENOENT):
    """The store says that there is no such object."""


class ObjectExistsError(RemoteError, code="object-exists", errno=_errno.EEXIST):
    """A conditional creation found the name taken."""


class ObjectChangedError(RemoteError, code="object-changed"):
    """The object is no longer the version that was asked for."""


class ObjectCorruptError(RemoteError, code="object-corrupt"):
    """The bytes that arrived differ from the digest stored with the object."""


class RemoteUnavailableError(RemoteError, code="remote-unavailable", transient=True):
    """The store did not answer, or answered that it can't now."""


class RemoteRefusedError(RemoteError, code="remote-refused"):
    """The store refuses: credentials, rights, a bucket that does not exist."""


class RemoteUnsupportedError(RemoteRefusedError, code="remote-unsupported"):
    """The store has no such request, or not in the form in which it was sent."""


class AccessDeniedError(RemoteRefusedError, code="remote-denied"):
    """The store denies access, to an object or to all of them. Some say no more than this of an expired token."""


class CredentialsExpiredError(RemoteRefusedError, code="credentials-expired"):
    """The store refuses a token whose time is over."""


# --- what others have written ------------------------------------------------------------------------------------


class UnreadableManifestError(HoldfastError, code="manifest-unreadable"):
    """A file that lists the contents of a checkpoint can't be read completely: everything it may name must be kept."""
