"""Requests of the kernel's, as they are answered."""

from __future__ import annotations

from holdfast.control.messages.message import Message


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
