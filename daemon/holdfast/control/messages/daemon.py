"""The daemon: its state, what it has done, and what it has taken of a changed configuration."""

from __future__ import annotations

from typing import Any

from holdfast.control.messages.message import Message


class RemoteStatus(Message, frozen=True):
    """A store. ``since`` is when ``up`` last changed, in seconds since the epoch; 0 if not since the start.

    ``refused_deletions`` counts those of the pending ones that the store refuses, each by itself.
    """

    url: str
    up: bool
    since: float
    problem: str
    pending_deletions: int
    refused_deletions: int = 0


class OtherDiskStatus(Message, frozen=True):
    """A disk in ``store.other_disks``, with the number of working directories there, and the bytes of copies in them.

    ``problem`` says why it is not used, and is empty if it is. ``min_free_bytes`` and ``min_free_files`` are kept free.
    ``files`` is the number of inodes; if the disk makes them as they are needed, it and the other two are 0.
    """

    path: str
    problem: str = ""
    size_bytes: int = 0
    free_bytes: int = 0
    workdirs: int = 0
    min_free_bytes: int = 0
    files: int = 0
    free_files: int = 0
    min_free_files: int = 0
    cached_bytes: int = 0


class PublicStatus(Message, frozen=True):
    """The daemon and its mount, as told to everybody on ``status.sock``: nothing that comes from what others do in it.

    ``remotes`` has the stores whose zones the caller may search.
    """

    pid: int
    version: str
    mountpoint: str
    data_mode: str
    takeover: str
    uptime_seconds: float
    remotes: dict[str, RemoteStatus]
    max_bytes: int
    free_bytes: int
    min_free_bytes: int
    node: str = ""
    """The name by which other nodes know this one."""
    problems: list[str] = []
    """A sentence for each thing that is wrong with this node."""
    files: int = 0
    """The number of inodes on the disk; if it makes them as they are needed, this and the next two fields are 0."""
    free_files: int = 0
    min_free_files: int = 0
    is_public: bool = True


class Status(PublicStatus, frozen=True):
    """The daemon and its mount. ``unsent`` has some of the ``unsent_files``.

    What ``PublicStatus`` does not have is empty if ``is_public``.
    """

    is_public: bool = False
    store: str = ""
    kernel_requests: dict[str, int] = {}
    """FUSE requests by kind since this daemon started; empty without the C module."""
    cached_bytes: int = 0
    cached_files: int = 0
    known_nodes: int = 0
    fetching: int = 0
    unsent: list[str] = []
    unsent_files: int = 0
    draining: bool = False
    """True if nothing new is taken for the stores (``holdfast drain``)."""
    quarantined: int = 0
    counters: dict[str, Any] = {}
    mountpoint_protection: str = ""
    """The protection from writes of the directory below the mount: immutable, covered, closed; or unprotected, and why."""
    hidden_files: list[str] = []
    """Some names in that directory, which the mount hides."""
    other_disks: list[OtherDiskStatus] = []
    """The disks that have working directories beside that of the store directory, and those that had."""
    not_configured: dict[str, int] = {}
    """Zones that are no longer configured, with the number of their unsent files."""


class Sample(Message, frozen=True):
    """The counters, and some sizes, at ``time``, in seconds since the epoch. Counters count from the daemon's start.

    ``latencies`` pairs bounds in seconds with the number of the kernel's requests that ended within them, from 0 on.
    """

    time: float
    hits: int
    misses: int
    bytes_fetched: int
    bytes_uploaded: int
    requests: int
    files_evicted: int
    cached_bytes: int
    free_bytes: int
    fetching: int
    operations: int = 0
    latencies: list[tuple[float, int]] = []


class EventInfo(Message, frozen=True):
    """An event: see ``docs/operations.md``, "Events"."""

    number: int
    time: float
    kind: str
    fields: dict[str, str | int | float | bool]
    user: str = ""
    """The name of the user in the field ``uid``, if there is one."""


class ReloadInfo(Message, frozen=True):
    """The dotted keys that have changed in the configuration: those in force now, and those that need a restart."""

    taken: list[str]
    needs_restart: list[str]


class OperationInfo(Message, frozen=True):
    """One request of the kernel's that was answered: a system call, or a part of one.

    ``time`` is its end, in seconds since the epoch. ``operation`` and ``zone`` are those of the metric
    ``holdfast_operation_duration_seconds``. ``path`` is where the file was when the request began; the mountpoint if it had
    no name. ``target`` is the new name of a rename or a link. ``pid`` is a number in the daemon's process namespace; 0 for
    the kernel itself. ``error`` is a name like ENOENT, empty if it succeeded.

    ``cache`` is ``hit`` or ``miss`` for the open of an object, else empty. A miss has fetched ``fetched_bytes``, all of the
    object or as much of it as is still arriving. ``data_bytes`` were read or written through the daemon; what the kernel
    reads and writes by itself (passthrough) is no request. The requests to stores that were made for it, in parallel
    perhaps, took ``store_seconds`` together.
    """

    time: float
    operation: str
    zone: str
    path: str
    target: str
    pid: int
    uid: int
    seconds: float
    error: str
    cache: str
    data_bytes: int
    fetched_bytes: int
    store_requests: int
    store_seconds: float


class OperationsInfo(Message, frozen=True):
    """The requests answered since the last line of the stream, oldest first; ``lost`` more came too fast to be kept."""

    operations: list[OperationInfo]
    lost: int
