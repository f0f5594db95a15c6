"""Working directories: what they are, acquiring and releasing them."""

from __future__ import annotations

from holdfast.control.messages.message import Message


class WorkdirInfo(Message, frozen=True):
    """A working directory. Times are seconds since the epoch; ``expires`` is None while it is held.

    ``used_bytes`` and ``used_files`` are what it takes of the disk, None if that is not known yet; ``max_bytes`` and
    ``max_files`` what it may take (0: no limit).
    """

    path: str
    role: str
    id: str
    holder: str | None
    created: float
    acquired: float
    released: float | None
    expires: float | None
    acquisitions: int
    lease_file: str
    used_bytes: int | None = None
    max_bytes: int = 0
    used_files: int | None = None
    max_files: int = 0
    volume: str = ""
    """The id of the volume that holds it; "": none does."""


class AcquireRequest(Message, frozen=True):
    """A request for a working directory. uid and gid are its owner; -1 is that of the process.

    ``adopt``, for root alone: one that exists and is another user's is given to the owner, instead of being refused.

    ``volume``, for root alone: a volume of the pod ``pod`` (``NAMESPACE/NAME``) holds it, and not a process.

    ``pid`` is a number in the process namespace with the inode number ``pid_namespace`` (of /proc/self/ns/pid), or in the
    daemon's if that is 0.
    """

    role: str
    id: str
    pid: int
    uid: int = -1
    gid: int = -1
    pid_namespace: int = 0
    adopt: bool = False
    volume: str = ""
    pod: str = ""


class ReleaseRequest(Message, frozen=True):
    """The working directory to release; with ``volume``, only if the volume with this id holds it."""

    role: str
    id: str
    volume: str = ""
