"""``chk-N/_metadata`` as Holdfast itself writes it, for plain processes in the layout of FLINK-10930.

JSON: the format's version under ``holdfast``, the checkpoint's id, and its files by their names relative to the job's
directory (``exclusive/chk-7-…``, ``shared/…``, ``taskowned/…``) with size and digest. The bytes are pinned by a test.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.checkpoints.manifests import BrokenError, Manifest, Readable, Trouble, Unreadable, decoder
from holdfast.checkpoints.references import Reference, ReferenceKind

VERSION = 1
FIRST_BYTE = b"{"
_NOT_IN_NAMES = frozenset({"", ".", ".."})
"""The parts that no name may have, because such a name could lead out of the job's directory, in which files are restored
and deleted."""
_LARGEST_BYTES = 16 * 2**20
"""The size limit of the metadata, enough for 100,000 files."""


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of a checkpoint; ``digest`` is its xxh3-128 in hex, ``path`` the name that it has for its process."""

    name: str
    size_bytes: int
    digest: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class OwnMetadata(Manifest):
    """The content of the metadata of one of Holdfast's own checkpoints."""

    checkpoint: int
    files: tuple[OwnFile, ...]

    @property
    def references(self) -> frozenset[Reference]:
        """Its files, in the form in which Flink's metadata refers to files."""
        return frozenset(Reference(ReferenceKind.RELATIVE, file.name.encode(), file.size_bytes) for file in self.files)


class _Version(msgspec.Struct, frozen=True):
    holdfast: int


class _Metadata(_Version, frozen=True):
    checkpoint: int
    files: list[OwnFile]


_decode_version = decoder(_Version, "Holdfast's metadata")
_decode_metadata = decoder(_Metadata, "Holdfast's metadata")


def own_metadata(metadata: OwnMetadata) -> bytes:
    """Return the bytes of a metadata object."""
    return msgspec.json.encode(_Metadata(VERSION, metadata.checkpoint, list(metadata.files)))


def read_own_metadata(stream: Readable, size_bytes: int) -> OwnMetadata | Unreadable:
    """Read ``size_bytes`` of ``stream``. Raises only the stream's ``OSError``."""
    try:
        return _read(stream, size_bytes)
    except BrokenError as broken:
        return broken.result


def _read(stream: Readable, size_bytes: int) -> OwnMetadata:
    if size_bytes > _LARGEST_BYTES:
        raise BrokenError(Trouble.TOO_LARGE, f"metadata of {size_bytes} bytes")
    text = stream.read(size_bytes)
    if len(text) < size_bytes:
        raise BrokenError(Trouble.TRUNCATED, f"{len(text)} of {size_bytes} bytes")
    version = _decode_version(text).holdfast
    if version != VERSION:
        raise BrokenError(Trouble.UNKNOWN_VERSION, f"{version} of Holdfast's metadata; {VERSION} can be read")
    metadata = _decode_metadata(text)
    for file in metadata.files:
        if "\0" in file.name or not _NOT_IN_NAMES.isdisjoint(file.name.split("/")):
            raise BrokenError(Trouble.MALFORMED, f"metadata names {file.name[:80]!r}")
    return OwnMetadata(metadata.checkpoint, tuple(metadata.files))
