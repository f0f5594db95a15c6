"""Files: their state, the cache, transfers, and requests for actions on them."""

from __future__ import annotations

from holdfast.control.messages.message import Message, Seconds


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


class Explanation(Message, frozen=True):
    """The reasons for an entry's state, as sentences in order."""

    path: str
    reasons: list[str]


class UsagePart(Message, frozen=True):
    """A file, or a directory with everything below it, in the cache. The part without a name stands for all others."""

    name: str
    files: int
    size_bytes: int
    unsent_bytes: int
    is_directory: bool = False
    parts: list[UsagePart] = []


class CacheUsage(Message, frozen=True):
    """The files in the cache at or below a directory, the largest parts first. The figures may be some seconds old."""

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


class PathRequest(Message, frozen=True):
    """The subject of an action: an absolute path in the mount; None means everything."""

    path: str | None = None


class PinRequest(Message, frozen=True):
    """The path to pin: an absolute one in the mount. With ``future``, nothing need exist there yet."""

    path: str | None = None
    future: bool = False


class PinInfo(Message, frozen=True):
    """A path that is pinned, with all that is below it."""

    path: str


class FlushRequest(Message, frozen=True):
    """The path to send, an absolute one in the mount (None: everything), and the number of seconds to wait."""

    path: str | None = None
    timeout_seconds: Seconds = 60.0


class DrainRequest(Message, frozen=True):
    """A request to drain this node, waiting for so many seconds; with ``undo``, to take new files for its stores again."""

    timeout_seconds: Seconds = 600.0
    undo: bool = False


class Progress(Message, frozen=True):
    """The progress of an action. ``total`` are the files found so far. The last line of a stream has ``finished``."""

    done: int
    total: int
    bytes_done: int
    path: str = ""
    problem: str | None = None
    finished: bool = False
