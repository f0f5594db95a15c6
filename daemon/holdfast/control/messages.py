"""The messages of the control socket, as JSON. Fields are only ever added."""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Failure(Message, frozen=True):
    """Why a request was refused: a stable code, the errno's number, and a sentence that says what to do."""

    code: str
    errno: int
    message: str


class RemoteStatus(Message, frozen=True):
    """A store: ``since`` is when ``up`` last changed, in seconds since the epoch (0: since the start)."""

    url: str
    up: bool
    since: float
    problem: str
    pending_deletions: int


class Status(Message, frozen=True):
    """The daemon and its mount. ``unsent`` names some of the ``unsent_files``; on ``status.sock`` none."""

    pid: int
    version: str
    mountpoint: str
    store: str
    data_mode: str
    takeover: str
    kernel_requests: dict[str, int]
    """FUSE requests by kind since this daemon started; empty without the C module."""
    uptime_seconds: float
    remotes: dict[str, RemoteStatus]
    cached_bytes: int
    cached_files: int
    max_bytes: int
    free_bytes: int
    min_free_bytes: int
    known_nodes: int
    fetching: int
    unsent: list[str]
    unsent_files: int
    quarantined: int
    counters: dict[str, Any]
    not_configured: dict[str, int] = {}
    """Zones that were configured once, and how many of the unsent files are in them."""


class WorkdirInfo(Message, frozen=True):
    """A working directory. Times are seconds since the epoch; ``expires`` is None while it is held."""

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


class EntryInfo(Message, frozen=True):
    """A file or directory. ``state`` is where its bytes are: see ``docs/operations.md``, "States"."""

    path: str
    type: str
    zone: str
    state: str
    size_bytes: int
    modified: float
    kind: str | None = None
    object: str | None = None
    etag: str | None = None
    digest: str | None = None
    used: float | None = None
    pinned: bool = False
    open: bool = False


class EntryPage(Message, frozen=True):
    """Part of a listing; ``next`` goes into the next request's ``after``, None at the end."""

    entries: list[EntryInfo]
    next: str | None


class Explanation(Message, frozen=True):
    """Why an entry is as it is: sentences, in order."""

    path: str
    reasons: list[str]


class EventInfo(Message, frozen=True):
    """An event: see ``docs/operations.md``, "Events"."""

    number: int
    time: float
    kind: str
    fields: dict[str, str | int | float | bool]


class AcquireRequest(Message, frozen=True):
    """Who wants which working directory. uid and gid are the owner of a new one.

    ``pid`` counts in the process namespace whose inode number is ``pid_namespace`` (that of /proc/self/ns/pid); 0: in the
    daemon's.
    """

    role: str
    id: str
    pid: int
    uid: int = -1
    gid: int = -1
    pid_namespace: int = 0


class ReleaseRequest(Message, frozen=True):
    """Which working directory is to be released."""

    role: str
    id: str


class PathRequest(Message, frozen=True):
    """What an action is about: an absolute path in the mount; None means everything."""

    path: str | None = None


class Progress(Message, frozen=True):
    """How far an action is. The last line of a stream has ``finished``."""

    done: int
    total: int
    bytes_done: int
    path: str = ""
    problem: str | None = None
    finished: bool = False


class CheckpointInfo(Message, frozen=True):
    """A checkpoint, a savepoint, a batch of a Spark query, or what several of these share; bytes are of its own files."""

    path: str
    what: str
    complete: bool
    files: int
    size_bytes: int
    modified: float


class SweepRequest(Message, frozen=True):
    """What is to be swept: an absolute path in the mount. What is None is as configured (``[sweep]``).

    ``items`` limits how many entries the reply has; None: all.
    """

    path: str
    grace_seconds: float | None = None
    abandoned_seconds: float | None = None
    min_batches_to_retain: int | None = None
    items: int | None = None


class DropRequest(Message, frozen=True):
    """Which checkpoint is to be dropped, by its path in the mount; ``root`` is where references to it are looked for."""

    path: str
    up_to: bool = False
    root: str | None = None
    items: int | None = None


class ExecuteRequest(Message, frozen=True):
    """Which plan is to be carried out. ``at_once``: without a second listing, if this daemon has just made it."""

    plan: str
    at_once: bool = False


class PlanItem(Message, frozen=True):
    """One thing that would go. ``reason`` is a stable word, ``why`` a sentence."""

    path: str
    reason: str
    why: str
    size_bytes: int
    modified: float


class KeptInfo(Message, frozen=True):
    """Something that could not be judged, and so stays with all it may refer to."""

    path: str
    why: str


class PlanInfo(Message, frozen=True):
    """A plan: what would go (``items``, perhaps not all of them), and how far it is (``state``).

    ``state`` is ``waiting``, ``executing`` (or cut off in the middle) or ``done``; ``removed`` and ``removed_bytes`` count
    what went, ``gone`` what was gone before, ``in_use`` what this node is writing.
    """

    id: str
    kind: str
    path: str
    made: float
    checkpoints: list[str]
    grace_seconds: float
    count: int
    size_bytes: int
    by_reason: dict[str, int]
    kept: list[KeptInfo]
    state: str
    removed: int
    removed_bytes: int
    gone: int
    in_use: int
    items: list[PlanItem]


class SweepProgress(Message, frozen=True):
    """How far the execution of a plan is. The last line of a stream has ``finished``."""

    done: int
    total: int
    removed: int
    removed_bytes: int
    gone: int
    in_use: int
    finished: bool = False
