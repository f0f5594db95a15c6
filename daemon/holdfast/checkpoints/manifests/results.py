"""What reading a manifest gives: what it names, or why it could not be read. A reader returns one of them and never raises.

``Unreadable`` always means: keep everything that this manifest may name. Readers take a binary stream and its length; they
check every length field against what is left, go only so deep, and hold no more memory than their limits say, whatever the
bytes are.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import UnreadableManifestError


class Readable(Protocol):
    """The part of a binary stream that a reader needs."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most ``size``; none at the end."""
        ...


class Trouble(enum.Enum):
    """Why a manifest could not be read."""

    MISSING = "missing"
    """It was listed, but is not there any more."""
    FOREIGN = "foreign"
    """It is no manifest of this kind."""
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_TAG = "unknown tag"
    UNKNOWN_CODEC = "unknown codec"
    TRUNCATED = "truncated"
    TRAILING = "trailing bytes"
    MALFORMED = "malformed"
    TOO_DEEP = "nested too deeply"
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A manifest that was not read to its end: whatever it may name has to stay."""

    trouble: Trouble
    detail: str

    def __str__(self) -> str:
        return f"{self.trouble.value}: {self.detail}"


class BrokenError(UnreadableManifestError):
    """Leaves a reader from wherever it has come to; its entry turns it into ``result``."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(f"{trouble.value}: {detail}")
        self.result = Unreadable(trouble, detail)
