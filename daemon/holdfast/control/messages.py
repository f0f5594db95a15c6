"""The messages of the control socket, as JSON. Fields are only added, never removed."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages."""


class Failure(Message, frozen=True):
    """The reason of a refusal: a stable code, the errno, and a sentence that says what to do."""

    code: str
    errno: int
    message: str


class RemoteStatus(Message, frozen=True):
    """A store. ``since`` is when ``up`` last changed, in seconds since the epoch; 0 if not since the start."""

    url: str
    up: bool
    since: float
    problem: str
    pending_deletions: int


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
    """Whether nothing new is taken for the stores (``holdfast drain``)."""
    quarantined: int = 0
    counters: dict[str, Any] = {}
    not_configured: dict[str, int] = {}
    """Zones that are no longer configured, with the number of their unsent files."""


class WorkdirInfo(Message, frozen=True):
    """A working directory. Times are seconds since the epoch; ``expires`` is None while it is held.

    ``used_bytes`` is what it takes of the disk, None if that is not known yet; ``max_bytes`` what it may take (0: no limit).
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


class EntryInfo(Message, frozen=True):
    """A file or directory. ``state`` says where its bytes are: see ``docs/operations.md``, "States"."""

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
    """Part of a listing. Pass ``next`` as ``after`` in the next request; it is None at the end."""

    entries: list[EntryInfo]
    next: str | None


class UsagePart(Message, frozen=True):
    """What is cached of one file, or below one directory; without a name: of all others that are not shown by name."""

    name: str
    files: int
    size_bytes: int
    unsent_bytes: int
    is_directory: bool = False
    parts: list[UsagePart] = []


class CacheUsage(Message, frozen=True):
    """What is cached at or below a directory, the largest parts first. It may be some seconds old."""

    path: str
    files: int
    size_bytes: int
    unsent_bytes: int
    parts: list[UsagePart]


class TransferInfo(Message, frozen=True):
    """A transfer that is under way: a ``fetch`` from a store, or a ``send`` to one.

    ``done_bytes`` of a fetch can be read already; of a send nothing is known before its end. With ``in_background`` no
    process waits for it.
    """

    direction: str
    store: str
    path: str
    size_bytes: int
    done_bytes: int = 0
    in_background: bool = False


class Sample(Message, frozen=True):
    """What the counters said at a ``time``, in seconds since the epoch. They count from the daemon's start.

    ``latencies`` pairs bounds in seconds with how many of the kernel's requests ended within them, from 0 on.
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


class Explanation(Message, frozen=True):
    """The reasons for an entry's state, as sentences in order."""

    path: str
    reasons: list[str]


class EventInfo(Message, frozen=True):
    """An event: see ``docs/operations.md``, "Events"."""

    number: int
    time: float
    kind: str
    fields: dict[str, str | int | float | bool]


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
    """What was answered since the last line of the stream, oldest first. ``lost`` of it came too fast to be kept."""

    operations: list[OperationInfo]
    lost: int


Name = Annotated[str, msgspec.Meta(max_length=200)]
"""A text of a caller's that others will read."""
Part = Annotated[str, msgspec.Meta(max_length=40)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class BatchReport(Message, frozen=True):
    """A batch of a streaming query that is over, or with ``batch`` -1 the start of a run of it.

    ``query`` is its name, ``run`` the id of this run of it. ``parts`` are Spark's ``durationMs``: how long each part of the
    batch took. ``load_milliseconds`` and ``commit_milliseconds`` are of the state stores, all partitions together.
    """

    query: Name
    run: Name
    batch: Annotated[int, msgspec.Meta(ge=-1, le=2**62)]
    milliseconds: Milliseconds = 0.0
    rows: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    parts: Annotated[dict[Part, Milliseconds], msgspec.Meta(max_length=16)] = {}
    load_milliseconds: Milliseconds = 0.0
    commit_milliseconds: Milliseconds = 0.0


class BatchInfo(Message, frozen=True):
    """A batch that the user ``uid`` has reported, and what this daemon did since that run's report before.

    ``number`` counts reports; ``time`` is the report's, in seconds since the epoch. What was done was done for whichever
    process of this node asked for it, so for this batch alone only if nobody else was busy here; what executors on other
    nodes asked of their daemons is not in it.
    """

    number: int
    time: float
    uid: int
    query: str
    run: str
    batch: int
    seconds: float
    rows: int
    parts: dict[str, float]
    load_seconds: float
    commit_seconds: float
    hits: int
    misses: int
    fetched_bytes: int
    uploaded_bytes: int
    store_requests: int


class AcquireRequest(Message, frozen=True):
    """A request for a working directory. uid and gid are its owner; -1 is that of the process.

    ``adopt``, for root alone: one that exists and is another user's is given to the owner, instead of being refused.

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


class ReleaseRequest(Message, frozen=True):
    """The working directory to release."""

    role: str
    id: str


class PathRequest(Message, frozen=True):
    """The subject of an action: an absolute path in the mount; None means everything."""

    path: str | None = None


class ReloadInfo(Message, frozen=True):
    """The dotted keys that have changed in the configuration: those in force now, and those that need a restart."""

    taken: list[str]
    needs_restart: list[str]


class FlushRequest(Message, frozen=True):
    """What to send: an absolute path in the mount (None: everything), and for how many seconds to wait."""

    path: str | None = None
    timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 60.0


class DrainRequest(Message, frozen=True):
    """Whether to drain this node, waiting for so many seconds, or, with ``undo``, to take new files for its stores again."""

    timeout_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 600.0
    undo: bool = False


class Progress(Message, frozen=True):
    """The progress of an action. ``total`` are the files found so far. The last line of a stream has ``finished``."""

    done: int
    total: int
    bytes_done: int
    path: str = ""
    problem: str | None = None
    finished: bool = False


class CheckpointInfo(Message, frozen=True):
    """A checkpoint, savepoint or batch of a Spark query, or the files that several share. Sizes are of its own files."""

    path: str
    what: str
    complete: bool
    files: int
    size_bytes: int
    modified: float


class FaultInfo(Message, frozen=True):
    """A file that a restart would need, and what is wrong with it; ``path`` as metadata has it if no such file is known."""

    path: str
    why: str


class RestoreInfo(Message, frozen=True):
    """Whether a batch, checkpoint or savepoint can be restored, and the first of its ``broken`` faults.

    ``expired``: the engine has purged part of it, as of the oldest batches; nothing is wrong. ``newest``: a restart as
    things are begins here. ``remarks`` say what a restart gets by with.
    """

    path: str
    what: str
    restorable: bool
    expired: bool
    newest: bool
    files: int
    broken: int
    faults: list[FaultInfo]
    remarks: list[str]


class VerifyProgress(Message, frozen=True):
    """How many objects have been read. The last line of a stream has ``finished`` and the ``restores``.

    ``without_digest`` counts the objects that were read and could be compared with nothing.
    """

    done: int
    total: int
    without_digest: int
    finished: bool = False
    restores: list[RestoreInfo] = []


class VerifyRequest(Message, frozen=True):
    """What to verify: an absolute path in the mount. ``deep``: also read everything, and compare it with its digest."""

    path: str
    batch: int | None = None
    deep: bool = False


class SweepRequest(Message, frozen=True):
    """The directory to sweep: an absolute path in the mount. Settings that are None come from ``[sweep]``.

    ``items`` limits the number of entries in the reply; None means all.
    """

    path: str
    grace_seconds: float | None = None
    abandoned_seconds: float | None = None
    min_batches_to_retain: int | None = None
    items: int | None = None


class DropRequest(Message, frozen=True):
    """The checkpoint to drop, by its path in the mount. References to it are searched for below ``root``."""

    path: str
    up_to: bool = False
    root: str | None = None
    items: int | None = None


class CloneRequest(Message, frozen=True):
    """The query to copy and where to, by paths in the mount; ``batch``: as it was after that one.

    The copy gets an id of its own unless ``keep_id``.
    """

    path: str
    to: str
    batch: int | None = None
    keep_id: bool = False


class CloneProgress(Message, frozen=True):
    """How many objects have been copied. The last line of a stream has ``finished``."""

    done: int
    total: int
    batch: int
    finished: bool = False


class RewindRequest(Message, frozen=True):
    """The query to take back, by its path in the mount, and the batch that is to be its newest.

    It is refused if anything of the query was written within the last ``idle_seconds``.
    """

    path: str
    to: int
    idle_seconds: float = 300.0
    items: int | None = None


class ExecuteRequest(Message, frozen=True):
    """The plan to execute. ``at_once``: without a second listing, if this daemon has just made it."""

    plan: str
    at_once: bool = False


class PlanItem(Message, frozen=True):
    """One entry that would be removed. ``reason`` is a stable word, ``why`` a sentence."""

    path: str
    reason: str
    why: str
    size_bytes: int
    modified: float


class KeptInfo(Message, frozen=True):
    """An entry that could not be judged, so that it is kept with everything it may refer to."""

    path: str
    why: str


class PlanInfo(Message, frozen=True):
    """A plan: the entries to remove (``items``, maybe not all of them), and its ``state``.

    ``state`` is ``waiting``, ``executing`` (also after an interruption) or ``done``. ``removed`` and ``removed_bytes`` count
    removed entries, ``gone`` those that were gone before, ``in_use`` those that this node is writing.
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
    """The progress of a plan's execution. The last line of a stream has ``finished``."""

    done: int
    total: int
    removed: int
    removed_bytes: int
    gone: int
    in_use: int
    finished: bool = False


class HeldStoreInfo(Message, frozen=True):
    """What a node holds of one state store: its newest version there (0: only files that versions share), and bytes."""

    operator: int
    partition: int
    store: str
    version: int
    size_bytes: int


class HeldQueryInfo(Message, frozen=True):
    """What a node holds of the query with its checkpoint at ``path``."""

    path: str
    stores: list[HeldStoreInfo]


class HoldingsInfo(Message, frozen=True):
    """What one node holds of a zone's queries, as it has told the zone's store at ``told`` (seconds since the epoch).

    ``hosts`` are names and addresses of the node, ``cores`` are what it has. This node's own are as of now.
    """

    zone: str
    node: str
    hosts: list[str]
    cores: int
    draining: bool
    told: float
    this_node: bool
    queries: list[HeldQueryInfo]


class HoldingsReply(Message, frozen=True):
    """Who holds what; ``problems`` has a sentence for each store that did not answer."""

    nodes: list[HoldingsInfo]
    problems: list[str] = []
