"""Manifests, which are files of a checkpoint that list others: their kinds, their readers, and the results of reading them.

A reader takes a binary stream and its length. It returns a ``Manifest`` or, when it can't read to the end, ``Unreadable``,
and never raises anything but the stream's ``OSError``. ``Unreadable`` always means: keep everything that this manifest may
name. Readers check every length field against what is left, limit how deep they go, and hold no more memory than their
limits say, whatever the bytes are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias, TypeVar, cast

import msgspec

from holdfast.errors import UnreadableManifestError

_T = TypeVar("_T")


_MOST_VALUES = 2**19
"""The limit of values in one text. A value of one byte may take 200 in memory. A commit of 58,000 partitions with eight
stores each has so many."""


class Readable(Protocol):
    """The part of a binary stream that most readers need."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most ``size``; none at the end."""
        ...


class Manifest:
    """The content of a manifest. Each format has its own kinds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WholeLength(Manifest):
    """The length of a file; of a compressed one, the length before compression."""

    size_bytes: int


class Trouble(enum.Enum):
    """The reason why a manifest could not be read."""

    MISSING = "missing"
    """The file was listed, but is not there any more."""
    FOREIGN = "foreign"
    """The file is no manifest of this kind."""
    UNKNOWN_VERSION = "unknown version"
    UNKNOWN_TAG = "unknown tag"
    UNKNOWN_CODEC = "unknown codec"
    TRUNCATED = "truncated"
    TRAILING = "trailing bytes"
    MALFORMED = "malformed"
    TOO_DEEP = "nested too deeply"
    TOO_LARGE = "too large"


@dataclass(frozen=True, slots=True)
class Unreadable(Manifest):
    """A manifest that was not read to its end: whatever it may name has to stay."""

    trouble: Trouble
    detail: str

    def __str__(self) -> str:
        return f"{self.trouble.value}: {self.detail}"


class BrokenError(UnreadableManifestError):
    """Leaves a reader from anywhere inside it; the reader's entry point returns ``result``."""

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(f"{trouble.value}: {detail}")
        self.result = Unreadable(trouble, detail)


Reader: TypeAlias = Callable[[BinaryIO, int], Manifest]
"""Reads a manifest of so many bytes. Raises only the stream's ``OSError``."""


@dataclass(frozen=True, slots=True)
class ManifestKind:
    """A kind of manifest: its name, for people, and its reader. Some readers need a seekable stream."""

    name: str
    read: Reader


@dataclass(frozen=True, slots=True)
class MetadataReader:
    """One format's reader of manifests that stand under the same names as those of other formats.

    ``first_bytes`` tell which format has written one.
    """

    first_bytes: bytes
    read: Reader


def told_apart(readers: Sequence[MetadataReader]) -> Reader:
    """Return a reader that reads each manifest with the reader whose first bytes it has, or else with the first one."""
    longest = max(len(reader.first_bytes) for reader in readers)

    def read(stream: BinaryIO, size_bytes: int) -> Manifest:
        first = stream.read(min(longest, size_bytes))
        chosen = next((reader for reader in readers if first.startswith(reader.first_bytes)), readers[0])
        return chosen.read(cast(BinaryIO, _Rejoined(first, stream)), size_bytes)

    return read


class _Rejoined:
    """A stream whose first bytes have been taken already, and are read again."""

    def __init__(self, first: bytes, rest: Readable) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        first, self._first = self._first[:size], self._first[size:]
        return first + self._rest.read(size - len(first))


def decoder(kind: type[_T], what: str) -> Callable[[bytes], _T]:
    """Return what makes a ``kind`` of untrusted JSON. It raises ``BrokenError``, which says ``what`` the text was to be.

    Modules make theirs when they are imported: msgspec 0.22 crashes when two threads meet a type for the first time.
    """
    decode = msgspec.json.Decoder(kind).decode

    def decoded(text: bytes) -> _T:
        if sum(text.count(mark) for mark in (b",", b"[", b"{")) > _MOST_VALUES:
            raise BrokenError(Trouble.TOO_LARGE, f"{what}: more than {_MOST_VALUES} values")
        try:
            return decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise BrokenError(Trouble.MALFORMED, f"{what}: {problem}") from None
        except RecursionError:
            raise BrokenError(Trouble.TOO_DEEP, what) from None

    return decoded
