"""The lines of a census: the checkpoints that there are, as far as names tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.checkpoints.plans import Listed


@dataclass(frozen=True, slots=True)
class Found:
    """One line of a census: a checkpoint, a savepoint, a batch of a query, or the files that several of these share.

    ``name`` is what ``drop`` takes, or the directory of something that can't be dropped by itself. ``what`` is
    ``checkpoint``, ``savepoint``, ``batch``, ``shared`` or ``state``. ``files`` and ``size_bytes`` count what is there, for
    a checkpoint only its exclusive files; ``newest_ns`` is the time of the last write.
    """

    name: bytes
    what: str
    is_complete: bool
    files: int
    size_bytes: int
    newest_ns: int

    @classmethod
    def of(cls, name: bytes, what: str, files: Sequence[Listed], *, is_complete: bool) -> Found:
        """Return the line that adds up ``files``, of which there is at least one."""
        newest_ns = max(listed.mtime_ns for listed in files)
        return cls(name, what, is_complete, len(files), sum(listed.size_bytes for listed in files), newest_ns)


class Counted(NamedTuple):
    """A line of a census with its sort key. Lines are sorted by job or location, then by number, then by name."""

    owner: bytes
    number: int
    found: Found
