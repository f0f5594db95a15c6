"""The C module, loaded so that pyfuse3's calls reach it first; or, where it is not there, something that does nothing.

The dynamic linker looks a symbol up in the order in which libraries were loaded globally, and only then in pyfuse3's own
dependencies. So the module is loaded with ``RTLD_GLOBAL`` (dlopen(3)), and before pyfuse3 is imported.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable
from typing import Protocol

DirectAnswer = Callable[[int, int, int, int, int, int, bytes], bytes | int | None]
"""What may be asked before pyfuse3: opcode, unique number, node, uid, gid, pid and body of a request in; out comes the body
of the reply, an errno (0: done), True when the reply comes later, or None: let pyfuse3 have it."""


class FdReply(enum.IntEnum):
    """What may be answered from a descriptor (``enum fd_reply_kind`` in native/fd_replies.h)."""

    FILE = 0
    DIRECTORY = 1
    WHOLE_DIRECTORY = 2


NO_MOUNT = (0, -1, 0, "", 0, 0, 0)


class NativeModule(Protocol):
    """What the C module does for Python; documented in ``Connection``, its only user."""

    def configure(self, add: int, keep_path: bytes, resend: bool, request: bytes, reply: bytes, /) -> None:
        """Say what the next mount is to have: flags of INIT, where to keep it; for a takeover, what was kept."""

    def session(self) -> tuple[int, int, int, str, int, int, int]:
        """Return state, descriptor, error, version of libfuse, flags offered, flags agreed, error of keeping."""

    def end(self) -> None:
        """Answer nothing any more: the mount's descriptor is about to be closed."""

    def request(self) -> int:
        """Return the unique number of the request read last."""

    def drops(self) -> bool:
        """Say whether that request takes set-id bits and capabilities away."""

    def answer(self, unique: int, backing_id: int, flags: int, /) -> None:
        """Ask for a change in the reply to an OPEN, OPENDIR or CREATE."""

    def answer_directly(self, function: DirectAnswer | None, opcodes: int, /) -> None:
        """Ask ``function`` first, for the kinds of requests whose bits are set."""

    def reply(self, unique: int, error: int, body: bytes, /) -> None:
        """Reply to a request that the function has taken on."""

    def serve(self, events: int, handed_over: int, seconds: float, /) -> bool:
        """Answer requests while the event loop sleeps."""

    def interrupt(self) -> None:
        """Let it go on."""

    def add_fd_reply(self, node: int, fd: int, kind: int, nanoseconds: int, /) -> None:
        """Answer for a file or directory from its descriptor."""

    def remove_fd_reply(self, node: int, /) -> None:
        """Stop that."""

    def entries(self, fd: int, position: int, size: int, others: dict[int, int], /) -> bytes | None:
        """Return entries of a backing directory, as READDIR gives them."""

    def counts(self) -> tuple[tuple[int, ...], int, int]:
        """Return how many requests of each kind there were, how many replies, and how many notifications."""


class NoNativeModule:
    """Stands in where the C module is not there: the mount is libfuse's alone."""

    def configure(self, add: int, keep_path: bytes, resend: bool, request: bytes, reply: bytes, /) -> None:
        """Do nothing: there is nobody to tell."""

    def session(self) -> tuple[int, int, int, str, int, int, int]:
        """Say that no mount came past."""
        return NO_MOUNT

    def end(self) -> None:
        """Have nothing to answer."""

    def request(self) -> int:
        """Say that the request is not known."""
        return 0

    def drops(self) -> bool:
        """Say that it does not."""
        return False

    def answer(self, unique: int, backing_id: int, flags: int, /) -> None:
        """Let the reply be."""

    def answer_directly(self, function: DirectAnswer | None, opcodes: int, /) -> None:
        """Never ask it."""

    def reply(self, unique: int, error: int, body: bytes, /) -> None:
        """Have nothing to reply to."""

    def serve(self, events: int, handed_over: int, seconds: float, /) -> bool:
        """Leave all of them to pyfuse3."""
        del events, handed_over, seconds
        return False

    def interrupt(self) -> None:
        """Have nothing to interrupt."""

    def add_fd_reply(self, node: int, fd: int, kind: int, nanoseconds: int, /) -> None:
        """Leave it where it is."""

    def remove_fd_reply(self, node: int, /) -> None:
        """Have nothing to give back."""

    def entries(self, fd: int, position: int, size: int, others: dict[int, int], /) -> bytes | None:
        """Leave it to whoever makes listings otherwise."""
        del fd, position, size, others
        return None

    def counts(self) -> tuple[tuple[int, ...], int, int]:
        """Say that nothing was counted."""
        return (), 0, 0


def load() -> tuple[NativeModule, str]:
    """Load the C module; return it and an empty text, or a stand-in and why there is none."""
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | os.RTLD_GLOBAL)
    try:
        import _holdfast_kernel  # with these flags, so here
    except ImportError as problem:
        return NoNativeModule(), str(problem)
    finally:
        sys.setdlopenflags(flags)
    return _holdfast_kernel, ""


NATIVE_MODULE, MISSING = load()
