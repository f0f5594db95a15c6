"""Checkpoints, and plans of what may be removed of them."""

from __future__ import annotations

from holdfast.control.messages.message import Message, Seconds


class CheckpointInfo(Message, frozen=True):
    """A checkpoint, savepoint or batch of a Spark query, or the files that several share. Sizes are of its own files."""

    path: str
    what: str
    complete: bool
    files: int
    size_bytes: int
    modified: float


class SweepRequest(Message, frozen=True):
    """The directory to sweep: an absolute path in the mount. Settings that are None come from ``[sweep]``.

    ``items`` limits the number of entries in the reply; None means all.
    """

    path: str
    grace_seconds: Seconds | None = None
    abandoned_seconds: Seconds | None = None
    min_batches_to_retain: int | None = None
    items: int | None = None


class DropRequest(Message, frozen=True):
    """The checkpoint to drop, by its path in the mount. References to it are searched for below ``root``."""

    path: str
    up_to: bool = False
    root: str | None = None
    items: int | None = None


class RewindRequest(Message, frozen=True):
    """The query to take back, by its path in the mount, and the batch that is to be its newest.

    It is refused if anything of the query was written within the last ``idle_seconds``.
    """

    path: str
    to: int
    idle_seconds: Seconds = 300.0
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
