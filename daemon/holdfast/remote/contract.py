"""What every remote store does, whatever it is made of. ``tests/unit/test_remote_contract.py`` holds each of them to it.

Keys are relative to the store's URL, without leading or trailing slash; their parts are neither empty, ``.`` nor ``..``.
All methods block; all raise ``RemoteUnavailableError`` (try again) and ``RemoteRefusedError`` (mend the configuration)
beside what they say. An object appears whole or not at all, unless ``Capabilities.atomic`` is false.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can promise (``docs/configuration.md`` has the table).

    ``conditional_create``: of two creations of one name, one fails, whichever node they come from. ``atomic``: readers
    see the old object or the whole new one. ``metadata``: a digest can be kept with the object. ``versions``: an etag
    changes whenever the bytes do.
    """

    conditional_create: bool
    atomic: bool
    metadata: bool
    versions: bool


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of an object. ``modified_ns`` is the store's time (ns since the epoch); ``metadata`` comes with a read."""

    key: str
    size_bytes: int
    etag: str
    modified_ns: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """What lies directly below a prefix: objects and deeper prefixes, by their last component.

    ``exists`` says whether there is anything at all, be it only a marker object for an empty directory.
    """

    objects: dict[str, ObjectInfo]
    directories: frozenset[str]
    exists: bool


@dataclass(frozen=True, slots=True)
class ObjectBody:
    """An object's bytes from ``start``, as they arrive; ``info`` describes the whole object."""

    info: ObjectInfo
    start: int
    buffers: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class UploadSource:
    """What to send: ``data``, or for a large file the ``path`` of ``size_bytes``."""

    size_bytes: int
    data: bytes | None = None
    path: Path | None = None


class RemoteStore(abc.ABC):
    """A store of objects by key."""

    url: str
    """Where it is, without credentials."""
    capabilities: Capabilities

    @abc.abstractmethod
    def probe(self) -> None:
        """Ask for next to nothing, to learn whether the store answers and lets us in."""

    @abc.abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return what is known of ``key``, metadata included. Raises ``ObjectMissingError``."""

    @abc.abstractmethod
    def list_directory(self, prefix: str) -> DirectoryListing:
        """Return what lies directly below ``prefix`` (``""``: the whole store)."""

    @abc.abstractmethod
    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below ``prefix``, at any depth, in no order."""

    @abc.abstractmethod
    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        """Open the bytes ``start`` to ``end`` (exclusive) of the version ``etag`` (``""``: whichever there is).

        Raises ``ObjectMissingError`` and ``ObjectChangedError``; both may also come while the buffers are taken.
        """

    @abc.abstractmethod
    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        """Store an object. With ``create_only`` an existing one stays, and ``ObjectExistsError`` is raised."""

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy an object within the store, metadata included, over ``target``. Raises ``ObjectMissingError``."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in as few requests as the store allows; keys that don't exist are no error."""

    @abc.abstractmethod
    def prune(self, prefix: str) -> None:
        """Remove the empty directory at ``prefix`` where the store has real ones; elsewhere do nothing."""
