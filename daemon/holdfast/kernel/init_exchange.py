"""The INIT exchange that the first daemon of a mount keeps in a file, and that each later one replays.

The C module writes the file just before the kernel gets the reply (``native/handshake.c``). The file must outlive the
daemon but not the machine: it belongs on tmpfs, beside the session table. A crash leaves the whole file, none, or an
unfinished ``.new`` beside it, which nobody reads.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import TakeoverError

_HEAD = struct.Struct("=8sII")
_MAGIC = b"HFINIT1\n"
_REPLY_BYTES = 16 + 64
"""A ``fuse_out_header`` and a ``fuse_init_out``."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The kernel's INIT request and its reply, with headers."""

    request: bytes
    reply: bytes

    @classmethod
    def read(cls, path: Path) -> Exchange | None:
        """Read the kept exchange; None if there is none. Raises ``TakeoverError`` for an unreadable or invalid file."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise TakeoverError(f"the start of the mount can't be read from {path}: {problem.strerror}") from None
        if len(data) < _HEAD.size:
            raise TakeoverError(f"{path} is cut short")
        magic, request_size, reply_size = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise TakeoverError(f"{path} was not kept by this version of Holdfast")
        if len(data) != _HEAD.size + request_size + reply_size or reply_size != _REPLY_BYTES:
            raise TakeoverError(f"{path} is cut short")
        return cls(data[_HEAD.size : _HEAD.size + request_size], data[_HEAD.size + request_size :])
