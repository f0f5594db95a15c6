"""Pins: paths that must not be evicted, nor anything below them, kept in a file of their own beside the index.

They are decisions of a person, which nothing can rebuild. So they are on the disk before ``add`` and ``remove`` return, and
outlive an index that is lost in a power cut. Each eviction asks them, so that costs as much for many pins as for one.
"""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import msgspec

from holdfast.system.whole_file import write_whole

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode
_MOST_BYTES = 1 << 20
"""The limit of the total length of the pinned paths; each change writes the whole file."""
_UNREADABLE = (errno.EIO, errno.EISDIR, errno.EUCLEAN)
"""The errors for a file that the disk will not be able to read later either."""
_log = logging.getLogger("holdfast.index")


class Pins:
    """The pins in ``file``, a msgpack array of paths in the tree, which is made with the first one."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._paths = dict.fromkeys(_read(file))
        self._changing = threading.Lock()

    def add(self, path: bytes) -> None:
        """Protect everything at or below ``path`` (``b""``: the whole mount). Raises ``OSError``; waits for the disk."""
        with self._changing:
            self._write([*(pin for pin in self._paths if pin != path), path])

    def has_room_for(self, path: bytes) -> bool:
        """Say whether there is room for ``path`` beside the pinned paths. Root may pin more."""
        return sum(map(len, self._paths)) + len(path) <= _MOST_BYTES

    def remove(self, path: bytes) -> bool:
        """Remove the pin of exactly ``path``; say whether there was one. Raises ``OSError``; waits for the disk."""
        with self._changing:
            if path not in self._paths:
                return False
            self._write([pin for pin in self._paths if pin != path])
            return True

    def all(self) -> list[bytes]:
        """Return all pinned paths, oldest first."""
        return list(self._paths)

    def cover(self, path: bytes) -> bool:
        """Say whether ``path`` or a directory above it is pinned."""
        if not self._paths:
            return False
        end = len(path)
        while end > 0:
            if path[:end] in self._paths:
                return True
            end = path.rfind(b"/", 0, end)
        return b"" in self._paths

    def _write(self, paths: list[bytes]) -> None:
        write_whole(self._file, [_encode(paths)])
        self._paths = dict.fromkeys(paths)


def _read(file: Path) -> list[bytes]:
    """Read the pins. A file that is damaged, or that the disk can't read, is moved aside."""
    try:
        return _decode(file.read_bytes())
    except FileNotFoundError:
        return []
    except (msgspec.DecodeError, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno not in _UNREADABLE:
            raise
        aside = file.replace(file.with_name(f"{file.name}.old"))
        _log.warning("%s is damaged (%s) and was moved to %s: pin again what must stay", file, problem, aside)
        return []
