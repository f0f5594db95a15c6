"""What every remote store does, whatever it is made of. ``tests/unit/test_remote_contract.py`` holds each of them to it.

Keys are relative to the store's URL, without leading or trailing slash; their parts are neither empty, ``.`` nor ``..``, and
hold no control characters. Names below ``.holdfast/`` are the stores' own: no listing shows them, unless they are asked for
by that prefix, and nobody else can write there.

All methods block. All raise ``RemoteUnavailableError`` (try again) and ``RemoteRefusedError`` (mend the configuration)
beside what they say, and ``NameNotStorableError`` for a key that this store can't hold: too long for it, or, in stores made
of files, an object's name where there is a directory and the other way round. What is missing is never mistaken: a bucket
that does not exist, a disk that is not mounted is no ``ObjectMissingError``. No message tells a credential. An object
appears whole or not at all, unless ``Capabilities.atomic`` is false.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.errors import HoldfastError, ObjectExistsError, ObjectMissingError
from holdfast.remote.keys import PRIVATE

_MOST_UNANSWERED = 3


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can promise (``docs/configuration.md`` has the table).

    ``conditional_create``: of two creations of one name, one fails, whichever node they come from; without it a creation
    fails only when the object was there before it began. ``atomic``: readers see the old object or the whole new one;
    without it they may find none while it is replaced. ``metadata``: a digest can be kept with the object; without it there
    is none to read. ``versions``: an etag changes whenever the bytes do; without it at least when their number does.
    ``cheap_head``: to ask for a name or two takes no longer than to list some ten.
    """

    conditional_create: bool
    atomic: bool
    metadata: bool
    versions: bool
    cheap_head: bool = False


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One version of an object: the same ``etag`` and ``modified_ns`` from a listing, a head and a read.

    ``modified_ns`` is the store's time (ns since the epoch), 0 from a write whose answer did not tell. ``metadata`` comes
    with a head and a read.
    """

    key: str
    size_bytes: int
    etag: str
    modified_ns: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DirectoryInfo:
    """A directory in a store that has real ones; ``modified_ns`` is when a name was last added or removed."""

    key: str
    modified_ns: int


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """What lies directly below a prefix: objects and deeper prefixes, by their last component.

    ``exists`` says whether there is anything at all, be it only a marker object for an empty directory. The root exists.
    ``changed_ns`` has the times of those directories that are real ones.
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
    """What to send: ``data``, or for a large file the ``path`` of ``size_bytes``, which is not read into memory."""

    size_bytes: int
    data: bytes | None = None
    path: Path | None = None


class RemoteStore(abc.ABC):
    """A store of objects by key. Safe to use from several threads."""

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
        """Return what lies directly below ``prefix`` (``""``: the whole store), however much that is.

        A marker object (``dir/``, written by another tool) is a directory, never an object. Raises ``RemoteError`` when the
        store holds an object there whose name can't be a key.
        """

    @abc.abstractmethod
    def list_tree(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below ``prefix``, at any depth, in no order. Raises as ``list_directory`` does, at any step."""

    @abc.abstractmethod
    def survey(self, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
        """Yield what ``list_tree`` does and, where the store has real directories, each of those below ``prefix``.

        Of the whole store, with what lies below ``.holdfast/``.
        """

    @abc.abstractmethod
    def read(self, key: str, start: int, end: int, etag: str) -> ObjectBody:
        """Open the bytes ``start`` to ``end`` (exclusive) of the version ``etag`` (``""``: whichever there is).

        An ``end`` beyond the object's is taken for the object's; of no bytes the buffers are none. Raises
        ``ObjectMissingError`` and ``ObjectChangedError``, the latter also for a ``start`` beyond the object's end; both may
        also come while the buffers are taken, and ``RemoteUnavailableError`` when they end early.
        """

    @abc.abstractmethod
    def write(self, key: str, source: UploadSource, metadata: dict[str, str], *, create_only: bool) -> ObjectInfo:
        """Store an object. With ``create_only`` an existing one stays, and ``ObjectExistsError`` is raised.

        ``metadata``: names of lower-case letters, digits and hyphens, values of printable ASCII, 2 KiB together.
        """

    def replace(self, key: str, version: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Create an object, or replace the one that is the version (etag) ``version``.

        Any other stays, and ``ObjectExistsError`` is raised. Where the store has no request for that, this is to look, to
        delete and to create: of two nodes that replace one version within that time both may succeed.
        """
        with suppress(ObjectMissingError):
            if self.head(key).etag == version:
                self.delete([key])
        return self.write(key, source, metadata, create_only=True)

    @abc.abstractmethod
    def copy(self, source: str, target: str) -> ObjectInfo:
        """Copy an object within the store, metadata included, over another ``target``. Raises ``ObjectMissingError``."""

    @abc.abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in as few requests as the store allows; keys that don't exist are no error.

        What can be deleted is, also when this raises for another.
        """

    @abc.abstractmethod
    def prune(self, prefix: str) -> None:
        """Remove the empty directory at ``prefix`` where the store has real ones; elsewhere do nothing."""

    def now_ns(self) -> int:
        """Return the time by the store's own clock (ns since the epoch), which is the one that objects are dated by."""
        self.write_private("clock", b"now", create_only=False)
        return self.head(f"{PRIVATE}/clock").modified_ns

    def claim(self, name: str, data: bytes) -> bool:
        """Create ``.holdfast/NAME``; False when it is there. Of several nodes one succeeds (``conditional_create``)."""
        try:
            self.write_private(name, data, create_only=True)
        except ObjectExistsError:
            return False
        return True

    @abc.abstractmethod
    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        """Store a small object of the stores' own. Raises ``ObjectExistsError`` when it is only to be created."""


def delete_each(keys: Sequence[str], delete: Callable[[str], None]) -> None:
    """Delete one by one all that can be, and raise the first of the problems. Who does not answer is not asked on and on."""
    problems = []
    unanswered = 0
    for key in keys:
        try:
            delete(key)
        except HoldfastError as problem:
            problems.append(problem)
            unanswered += problem.transient
            if unanswered == _MOST_UNANSWERED:
                break
    if problems:
        raise problems[0]
