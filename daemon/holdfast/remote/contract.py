"""The interface of every remote store. ``tests/unit/remote/test_remote_contract.py`` tests each of them against it.

Keys are relative to the store's URL, without leading or trailing slash; their parts are neither empty, ``.`` nor ``..``, and
have no control characters. Keys below ``.holdfast/`` are reserved for the stores themselves: listings show them only if
asked for that prefix, and nobody else can write there.

All methods block. Beside the errors that they name, all raise ``RemoteUnavailableError`` (try again),
``RemoteRefusedError`` (mend the configuration, or the object), and ``NameNotStorableError`` for a key that this store can't
hold: it is too long, has a character that the store does not take (``NameRules``) or, in stores made of files, the name of
an object is a directory's or the other way round. ``ObjectMissingError`` always means that the object is missing, never that
the bucket does not exist or the disk is not mounted. No message shows a credential. An object appears whole or not at all,
unless ``Capabilities.atomic`` is false.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from holdfast.digest import Checksum
from holdfast.errors import ObjectChangedError, ObjectExistsError, ObjectMissingError, RemoteError
from holdfast.remote.keys import PRIVATE, NameRules, checked_target, key_below
from holdfast.remote.life_signs import sign_of_life
from holdfast.system.file_reading import locks_reads, reading

_BUFFER_BYTES = 2**20
_LARGEST = 2**63 - 1
"""The largest size (bytes) and time (ns) of a file that ``off_t`` and ``holdfast.index`` can hold."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The guarantees that a store can give (``docs/configuration.md`` has the table).

    ``conditional_create``: of two creates of one name, one fails, whichever nodes they come from; without it a create fails
    only if the object existed before it began. ``atomic``: readers see the old object or the whole new one; without it they
    may find none while it is replaced. ``metadata``: a digest can be stored with the object. ``versions``: the etag changes
    whenever the bytes do; without it, at least whenever the size does. ``cheap_head``: a HEAD or two take no longer than a
    LIST of some ten names (``RemoteStore.find``).
    """

    conditional_create: bool
    atomic: bool
    metadata: bool
    versions: bool
    cheap_head: bool = False


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of an object: a listing, a head and a read give the same ``etag`` and ``modified_ns``.

    ``modified_ns`` is the store's time (``storable_time_ns``), 0 after a write whose answer did not have it. ``metadata``
    comes with a head and a read only.
    """

    key: str
    size_bytes: int
    etag: str
    modified_ns: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DirectoryInfo:
    """A directory in a store that has real directories; ``modified_ns`` is when a name was last added or removed."""

    key: str
    modified_ns: int


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The objects and deeper prefixes directly below a prefix, by their last component.

    ``exists`` says whether there is anything at all, if only a marker object for an empty directory. The root always exists.
    ``changed_ns`` has the mtimes of the directories that are real ones.
    """

    objects: dict[str, ObjectInfo]
    directories: frozenset[str]
    exists: bool
    changed_ns: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObjectBody:
    """An object's bytes from ``start``, as they arrive; ``info`` describes the whole object."""

    info: ObjectInfo
    start: int
    buffers: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class UploadSource:
    """The bytes to upload: ``data``, or for a large file its ``path`` and size; it is not read into memory.

    ``is_unchanged`` says whether the file is still as it was when its digest was computed.
    """

    size_bytes: int
    data: bytes | None = None
    path: Path | None = None
    is_unchanged: Callable[[], bool] = lambda: True

    def file(self) -> BinaryIO:
        """Return the file, whose reads wait no longer than a while for a lock that a user holds."""
        assert self.path is not None
        return reading(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))

    def body(self, what: str) -> bytes | Path | Iterator[bytes]:
        """Return the bytes, the path of a file that any library may read, or else its ``buffers``."""
        if self.path is None:
            return self.data or b""
        with self.path.open("rb", buffering=0) as file:
            return self.buffers(what) if locks_reads(file.fileno()) else self.path

    def buffers(self, what: str) -> Iterator[bytes]:
        """Yield the bytes, as many as ``size_bytes`` says, a file's by the MiB, with signs of life.

        Raises ``ObjectChangedError``, which begins with ``what``, if the file has fewer by now.
        """
        if self.path is None:
            yield self.data or b""
            return
        left = self.size_bytes
        with self.file() as file:
            while left and (buffer := file.read(min(left, _BUFFER_BYTES))):
                left -= len(buffer)
                sign_of_life()
                yield buffer
        if left:
            raise ObjectChangedError(f"{what}: the file was cut while it was sent")


class RemoteStore(abc.ABC):
    """A store of objects by key. Safe to use from several threads."""

    url: str
    """The store's URL, without credentials."""
    capabilities: Capabilities
    name_rules = NameRules()
    has_checksums = False
    """True if ``checksum`` may ask the store."""
    parallel_reads = 8
    """The number of parallel requests with which a large object is read fastest."""
    longest_read_bytes = 0
    """The number of bytes that one request for a large object asks for at most, if that is more than a part."""
    requests_in_a_call = 2
    """The limit of a call's silence (``life_signs``), as a multiple of the time for a request."""

    @abc.abstractmethod
    def probe(self) -> None:
        """Send a minimal request, to learn whether the store answers and takes our credentials."""

    def look(self) -> None:
        """Do as ``probe`` does, and change nothing in the store. Raises the same errors."""
        self.probe()

    @abc.abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return the info of ``key``, with metadata. Raises ``ObjectMissingError``."""

    def find(self, key: str) -> ObjectInfo | bool:
        """Return the info of ``key`` or, if there is no such object, whether there is a directory of this name."""
        with suppress(ObjectMissingError):
            return self.head(key)
        return self.list_directory(key).exists

    def checksum(self, info: ObjectInfo) -> Checksum | None:
        """Return the store's own checksum of the whole version ``info``; None if there is none, or after an error."""
        return None

    def checked_target(self, key: str) -> str:
        """Return ``key``, which is about to be written. Raises ``NameNotStorableError``, also by ``name_rules``."""
        self.name_rules.check(checked_target(key))
        return key

    @abc.abstractmethod
    def list_directory(self, prefix: str) -> DirectoryListing:
        """Return what is directly below ``prefix`` (``""``: the store's root), however much that is.

        A marker object (``dir/``, written by another tool) is a directory, never an object. Raises ``RemoteError`` if the
        store has an object there whose name is not a valid key.
        """

    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below ``prefix``, at any depth, in no order. Raises as ``list_directory`` does, at any step."""
        return (info for info in self._walk(prefix) if isinstance(info, ObjectInfo))

    def list_all(self, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
        """Yield what ``list_tree`` does and, where the store has real directories, each directory below ``prefix``.

        For the whole store (``""``) this includes what is below ``.holdfast/``.
        """
        yield from self._walk(prefix)
        if not prefix:
            yield from self._walk(PRIVATE)

    def _walk(self, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
        """List one directory after the other. An error ends the walk and is raised: a part is never taken for the whole."""
        waiting = [prefix]
        while waiting:
            sign_of_life()
            directory = waiting.pop()
            listing = self.list_directory(directory)
            yield from listing.objects.values()
            for name in listing.directories:
                key = key_below(directory, name)
                waiting.append(key)
                if name in listing.changed_ns:
                    yield DirectoryInfo(key, listing.changed_ns[name])

    @abc.abstractmethod
    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        """Open the bytes ``start`` to ``end`` (exclusive) of the version ``etag`` (``""``: any version).

        An ``end`` beyond the object's end is cut down to it; an empty range has no buffers. Raises ``ObjectMissingError``
        and ``ObjectChangedError``, the latter also for a ``start`` beyond the object's end. Both may also be raised while
        the buffers are consumed, and so is ``RemoteUnavailableError`` if they end early.
        """

    @abc.abstractmethod
    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        """Store an object. With ``create_only``, raises ``ObjectExistsError`` and leaves an existing one as it is.

        ``metadata``: names of lower-case letters, digits and hyphens, values of printable ASCII, 2 KiB together.
        """

    def replace(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Create an object, or replace the version (etag) ``version`` of it.

        Raises ``ObjectExistsError`` and leaves any other version as it is. Without a request for that in the store, this
        checks, deletes and creates: of two nodes that replace one version within that time, both may succeed.
        """
        with suppress(ObjectMissingError):
            if self.head(key).etag == version:
                self.delete([key])
        return self.write(key, source, metadata, create_only=True)

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy an object with its metadata within the store, over an existing target. Raises ``ObjectMissingError``."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in as few requests as the store allows; a key that does not exist is no error.

        If some can't be deleted, this raises after the others are. A refused request for many is divided.
        """

    def delete_at_once(self, keys: Sequence[str]) -> None:
        """Delete objects as ``delete`` does, but give up with the first request that is refused.

        What was deleted then is unknown; a single key may have had a second kind of request.
        """
        self.delete(keys)

    @abc.abstractmethod
    def prune(self, prefix: str) -> None:
        """Remove the empty directory at ``prefix`` where the store has real directories; elsewhere do nothing."""

    def now_ns(self) -> int:
        """Return the time of the store's own clock (ns since the epoch), which also gives objects their times."""
        self.write_private("clock", b"now", create_only=False)
        return self.head(f"{PRIVATE}/clock").modified_ns

    def take_lease(self, name: str, data: bytes) -> bool:
        """Create ``.holdfast/NAME``; False if it exists. Of several nodes one succeeds (given ``conditional_create``)."""
        try:
            self.write_private(name, data, create_only=True)
        except ObjectExistsError:
            return False
        return True

    @abc.abstractmethod
    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        """Store a small object below ``.holdfast/``. Raises ``ObjectExistsError`` with ``create_only``."""


def storable_time_ns(time_ns: int) -> int:
    """Return a time of a store's (ns since the epoch); 0, which stands for none, if it is before 1970 or after 2262.

    It may be what somebody else wrote there. The files here, and the records of them, have no such times.
    """
    return time_ns if 0 <= time_ns <= _LARGEST else 0


def storable_size_bytes(size_bytes: int, key: str) -> int:
    """Return the size that a store gives for the object ``key``. Raises ``RemoteError`` if no file can be so large."""
    if not 0 <= size_bytes <= _LARGEST:
        raise RemoteError(f"{key}: the store gives a size of {size_bytes} bytes")
    return size_bytes
