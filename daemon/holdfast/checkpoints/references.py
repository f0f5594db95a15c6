"""The references of a manifest to files, and the bounded set in which a reader collects them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.checkpoints.manifests import BrokenError, ManifestKind, Trouble

_LARGEST_BYTES = 256 * 2**20
"""The memory limit of a set: about a million references; the largest jobs known have some hundred thousand files a
checkpoint."""
_BYTES_BESIDE_PATH = 200
"""The memory that one reference takes besides its path (CPython 3.11: object, bytes header, place in a set)."""


class ReferenceKind(enum.Enum):
    """The way in which a manifest names a file or directory."""

    FILE = "file"
    """A file, by its absolute URI."""
    SEGMENT = "segment"
    """A part of a physical file, by that file's absolute URI."""
    DIRECTORY = "directory"
    """A directory of file merging with all that is in it, by its absolute URI."""
    RELATIVE = "relative"
    """A name relative to the directory of this manifest, or to one that the format knows."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One file or directory that a checkpoint needs. ``path`` is a URI or a relative name, as the manifest has it.

    ``least_bytes`` is the smallest size that the file may have, according to the manifest. If that is the size before
    compression, ``length`` tells how to find it in the file (``WholeLength``). Neither counts when two references are
    compared.
    """

    kind: ReferenceKind
    path: bytes
    least_bytes: int = field(default=0, compare=False)
    length: ManifestKind | None = field(default=None, compare=False)

    @property
    def last_component(self) -> bytes:
        """The name without its directories: it identifies the file wherever the root is mounted now, if names are unique."""
        return self.path.rstrip(b"/").rpartition(b"/")[2]


class References:
    """The references found so far, each once, within a limit of memory."""

    def __init__(self) -> None:
        self._found: dict[Reference, Reference] = {}
        self._bytes = 0

    def add(self, kind: ReferenceKind, path: bytes, least_bytes: int = 0, length: ManifestKind | None = None) -> None:
        """Note a reference. Raises ``BrokenError`` when there are too many, or when it names nothing."""
        reference = Reference(kind, path, least_bytes, length)
        if not reference.last_component:
            raise BrokenError(Trouble.MALFORMED, f"a {kind.value} without a name")
        if reference not in self._found:
            self._bytes += len(path) + _BYTES_BESIDE_PATH
            if self._bytes > _LARGEST_BYTES:
                raise BrokenError(Trouble.TOO_LARGE, f"more than {len(self._found)} references")
        self._found[reference] = max(reference, self._found.get(reference, reference), key=lambda each: each.least_bytes)

    def __iter__(self) -> Iterator[Reference]:
        return iter(self._found.values())


class Referring(Protocol):
    """A manifest that names the files of its checkpoint."""

    @property
    def references(self) -> frozenset[Reference]:
        """The files and directories that the checkpoint needs."""
        ...
