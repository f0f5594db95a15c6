"""Loading the C module so that pyfuse3's calls reach it before libfuse; where it is missing, a stand-in that does nothing.

The dynamic linker looks up a symbol first in the globally loaded libraries, in load order, and only then in pyfuse3's own
dependencies. So the module is loaded with ``RTLD_GLOBAL`` (dlopen(3)) before pyfuse3 is imported.
"""

from __future__ import annotations

import enum
import errno
import os
import sys
from array import array
from collections.abc import Callable
from typing import Protocol

from holdfast.system.file_id import FileId

ImmediateReply = Callable[[int, int, int, int, int, int, bytes], bytes | int | None]
"""A function that is called before pyfuse3, with opcode, unique number, node, uid, gid, pid and body of a request.

It returns the body of the reply, an errno (0: success), True (it replies later), or None (pyfuse3 handles the request).
"""


class NativeReply(enum.IntEnum):
    """The kind of a descriptor from which the C module answers (``enum native_reply_kind`` in native/native_replies.h)."""

    FILE = 0
    DIRECTORY = 1
    STORE_DIRECTORY = 2
    WHOLE_DIRECTORY = 3
    DATA = 4
    DATA_AS_NOBODY = 5


NO_MOUNT = (0, -1, 0, "", 0, 0, 0)


class NativeModule(Protocol):
    """The functions of the C module. ``Connection`` documents them, but for ``attributes`` and ``entry``.

    These return a ``fuse_attr_out`` and a ``fuse_entry_out`` that the kernel may cache for so long.
    """

    def configure(self, add: int, keep_path: bytes, resend: bool, request: bytes, reply: bytes, /) -> None: ...
    def session(self) -> tuple[int, int, int, str, int, int, int]: ...
    def end(self) -> None: ...
    def request(self) -> int: ...
    def drops(self) -> bool: ...
    def user(self) -> int: ...
    def process(self) -> int: ...
    def count_latencies(self, rows: array[int], zones: int, bounds: array[int], zone: array[int], /) -> None: ...
    def mark_execution(self, word: memoryview, refused: bytes, function: ImmediateReply, /) -> None: ...
    def executing(self, number: int, /) -> None: ...
    def enable_native_replies(self, enabled: bool, /) -> None: ...
    def answer(self, unique: int, backing_id: int, flags: int, /) -> None: ...
    def answer_directly(self, function: ImmediateReply | None, opcodes: int, /) -> None: ...
    def reply(self, unique: int, error: int, body: bytes, /) -> None: ...
    def serve(self, events: int, handed_over: int, seconds: float, /) -> bool: ...
    def interrupt(self, task: object, /) -> None: ...
    def add_native_reply(self, node: int, fd: int, kind: int, nanoseconds: int, zone: int, /) -> None: ...
    def register(self, device: int, node: int, fd: int, zone: int, /) -> int: ...
    def unregister(self, device: int, node: int, backing_id: int, /) -> None: ...
    def hold_writes(self, held: bool, /) -> None: ...
    def is_written(self, fd: int, /) -> bool: ...
    def hold_back(self, fd: int, /) -> bool: ...
    def let_go(self, fd: int, /) -> None: ...
    def remove_native_reply(self, node: int, /) -> None: ...
    def entries(self, fd: int, position: int, size: int, others: dict[FileId, int], /) -> bytes | None: ...
    def attributes(self, node: int, stat: object, seconds: float, /) -> bytes: ...
    def entry(self, node: int, stat: object, seconds: float, /) -> bytes: ...
    def counts(self) -> tuple[tuple[int, ...], int, int]: ...


class NoNativeModule:
    """Stands in for a missing C module: libfuse alone serves the mount, and pyfuse3 has all requests."""

    def _do_nothing(self, *arguments: object) -> None:
        """Take whatever a function of the C module takes."""

    end = count_latencies = mark_execution = executing = enable_native_replies = _do_nothing
    answer_directly = reply = interrupt = add_native_reply = remove_native_reply = hold_writes = entries = _do_nothing
    unregister = let_go = _do_nothing

    def configure(self, add: int, keep_path: bytes, resend: bool, request: bytes, reply: bytes, /) -> None:
        """Do nothing."""

    def answer(self, unique: int, backing_id: int, flags: int, /) -> None:
        """Do nothing."""

    def session(self) -> tuple[int, int, int, str, int, int, int]:
        """Say that nothing was mounted."""
        return NO_MOUNT

    def register(self, device: int, node: int, fd: int, zone: int, /) -> int:
        """Refuse: nothing is mounted."""
        del device, node, fd, zone
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))

    def is_written(self, fd: int, /) -> bool:
        """Say no: it has no threads."""
        del fd
        return False

    hold_back = is_written

    def request(self) -> int:
        """Return 0: the number is unknown."""
        return 0

    def drops(self) -> bool:
        """Say no."""
        return False

    def user(self) -> int:
        """Return 0: the caller is unknown, and counts as root."""
        return 0

    process = user

    def serve(self, events: int, handed_over: int, seconds: float, /) -> bool:
        """Leave all requests to pyfuse3."""
        del events, handed_over, seconds
        return False

    def attributes(self, node: int, stat: object, seconds: float, /) -> bytes:
        """Return nothing: pyfuse3 has all requests."""
        del node, stat, seconds
        return b""

    entry = attributes

    def counts(self) -> tuple[tuple[int, ...], int, int]:
        """Return no counts."""
        return (), 0, 0


def load() -> tuple[NativeModule, str]:
    """Load the C module; return it and ``""``, or a stand-in and why the module is missing."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_GLOBAL)
    try:
        import _holdfast_kernel  # here, where the flags are set
    except ImportError as problem:
        return NoNativeModule(), str(problem)
    finally:
        sys.setdlopenflags(flags)
    return _holdfast_kernel, ""


NATIVE_MODULE, MISSING = load()
