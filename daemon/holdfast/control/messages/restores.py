"""Going on from checkpoints: verifying and copying them, and undoing rewinds."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.control.messages.message import Message, Seconds


class FaultInfo(Message, frozen=True):
    """A file that a restart would need, and what is wrong with it; ``path`` as metadata has it if no such file is known."""

    path: str
    why: str


class RestoreInfo(Message, frozen=True):
    """A batch, checkpoint or savepoint: whether it can be restored, and the first of its ``broken`` faults.

    ``expired``: the engine has purged part of it, as it does with the oldest batches; nothing is wrong. ``newest``: a
    restart begins here as things are. ``remarks`` say what a restart has to cope with, and can.
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
    """The number of objects that have been read. The last line of a stream has ``finished`` and the ``restores``.

    ``without_digest`` counts the objects that were read but could be compared with nothing.
    """

    done: int
    total: int
    without_digest: int
    finished: bool = False
    restores: list[RestoreInfo] = []


class VerifyRequest(Message, frozen=True):
    """The path to verify: an absolute one in the mount. ``deep``: also read everything, and compare it with its digest.

    ``spark`` is the version of Spark that would restart queries, such as ``3.5``; empty: the newest.
    """

    path: str
    batch: int | None = None
    deep: bool = False
    spark: Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,3}\.[0-9]{1,3})?$")] = ""


class CloneRequest(Message, frozen=True):
    """The query or savepoint to copy, and the target, as paths in the mount. ``batch`` copies a query as it was after that.

    The copy of a query gets an id of its own unless ``keep_id``.
    """

    path: str
    to: str
    batch: int | None = None
    keep_id: bool = False


class CloneProgress(Message, frozen=True):
    """The number of objects that have been copied, and of the bytes in them. The last line of a stream has ``finished``."""

    done: int
    total: int
    batch: int | None = None
    finished: bool = False
    bytes_done: int = 0


class UndoRequest(Message, frozen=True):
    """The query whose latest rewind is to be undone, by its path in the mount.

    It is refused if anything of the query was written since the rewind, or within the last ``idle_seconds``.
    """

    path: str
    idle_seconds: Seconds = 300.0


class UndoProgress(Message, frozen=True):
    """The number of objects of the rewind ``plan`` that are back, and of their bytes. The last line has ``finished``."""

    done: int
    total: int
    plan: str
    bytes_done: int = 0
    finished: bool = False
