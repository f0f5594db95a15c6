"""Lines of a census: which checkpoints there are, as far as names tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.checkpoints.plans import Listed


@dataclass(frozen=True, slots=True)
class Found:
    """In a census: a checkpoint, a savepoint, a batch of a query, or what several of these share.

    ``name`` is what ``drop`` takes; of what can't be dropped by itself it is the directory. ``what`` is ``checkpoint``,
    ``savepoint``, ``batch``, ``shared`` or ``state``. Bytes are of what lies there, for a checkpoint of its exclusive files;
    ``newest_ns`` is when it was last written to.
    """

    name: bytes
    what: str
    is_complete: bool
    files: int
    size_bytes: int
    newest_ns: int

    @classmethod
    def of(cls, name: bytes, what: str, files: Sequence[Listed], *, is_complete: bool) -> Found:
        """Add up what the files have, of which there is at least one."""
        newest_ns = max(listed.mtime_ns for listed in files)
        return cls(name, what, is_complete, len(files), sum(listed.size_bytes for listed in files), newest_ns)


class Counted(NamedTuple):
    """A line of a census. Lines are sorted by job or location, then by number, then by name."""

    owner: bytes
    number: int
    found: Found
