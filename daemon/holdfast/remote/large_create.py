"""Creating an object from a large file, in parts and only if its name is free: no store has one request for that.

The file is uploaded in parts to a staged object, which one conditional copy then moves to its name. S3's conditional copy (a
multipart upload of one part) drops the metadata; a second copy, over the first, restores it. So readers see the whole object
or none, for a moment without its digest, and of several writers one wins. S3 copies no more than 5 GiB: larger files are
refused. A crash leaves the staged object, and perhaps the object without metadata, which is then not checked by digest.

Not every S3 server keeps the condition: one that takes a copy to a name that is taken would let both of two writers win.
It is asked once, with two small objects that stay, and gets a whole file in one conditional PUT if it doesn't
(``s3_whole``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from holdfast.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    RemoteError,
    RemoteUnavailableError,
    RemoteUnsupportedError,
)
from holdfast.remote.contract import ObjectInfo, UploadSource
from holdfast.remote.keys import PRIVATE, staged_key
from holdfast.remote.obstore_answers import is_of_server

WholePut = Callable[[str, UploadSource, dict[str, str]], ObjectInfo]
"""A function that creates an object from a file by one conditional request (``s3_whole``)."""
_TRIED = ("condition-source", "condition-taken")
"""The objects below ``.holdfast/`` of which one is copied to the other. They have fixed names and stay: all nodes use the
same, and it takes no right to delete."""


class Requests(Protocol):
    """The requests that a store must provide; each method is one request, or one upload."""

    def head(self, key: str) -> ObjectInfo:
        """Return the info of ``key``, metadata included."""

    def delete_staged(self, key: str) -> None:
        """Delete a staged object."""

    def put_parts(self, key: str, source: UploadSource, metadata: dict[str, str]) -> None:
        """Upload a file in parts, over an existing object."""

    def write_private(self, name: str, data: bytes, *, create_only: bool) -> None:
        """Store a small object below ``.holdfast/``. Raises ``ObjectExistsError`` with ``create_only``."""

    def copy_object(self, source: str, target: str, *, overwrite: bool) -> None:
        """Copy an object. Raises ``ObjectExistsError`` without ``overwrite``."""


class LargeCreate:
    """Conditional creates from files in one store.

    It remembers creates whose conditional copy may have been carried out although the answer was lost: when they are tried
    again, with the same metadata, they must not take their own object for another writer's.
    """

    def __init__(self, requests: Requests, put_whole: WholePut | None = None) -> None:
        """``put_whole``: how else to create, if a server's conditional copies have to be tried before they are trusted."""
        self._requests = requests
        self._put_whole = put_whole
        self._keeps_condition: bool | None = None
        """True if the server refuses a copy to a name that is taken; None until it was tried."""
        self._trying = threading.Lock()
        self._in_doubt: dict[str, dict[str, str]] = {}

    def create(self, key: str, source: UploadSource, metadata: dict[str, str]) -> ObjectInfo:
        """Create ``key``.

        Raises ``ObjectExistsError`` when it is there already, and ``ObjectChangedError`` if the file has changed meanwhile.
        """
        in_doubt = bool(metadata) and self._in_doubt.get(key) == metadata
        self._refuse_early(key, in_doubt)
        if self._put_whole is not None and not self._is_condition_kept():
            return self._put_whole(key, source, metadata)
        staged = staged_key()
        try:
            self._requests.put_parts(staged, source, metadata)
            if not source.is_unchanged():  # its digest is of other bytes, and nobody could tell later which are right
                raise ObjectChangedError(f"PUT {key}: the file was written to while it was sent")
            info = self._place(staged, key, metadata, in_doubt)
        except ObjectMissingError as problem:
            raise RemoteUnavailableError(f"PUT {key}: deleted meanwhile: {problem}") from None
        finally:
            self._drop(staged)
        self._in_doubt.pop(key, None)
        return info

    def _is_condition_kept(self) -> bool:
        """Say whether the server refuses to copy to a name that is taken, and takes such a copy at all.

        Any other refusal is raised: it says nothing of the condition.
        """
        with self._trying:
            if self._keeps_condition is None:
                self._keeps_condition = self._try_condition()
            return self._keeps_condition

    def _try_condition(self) -> bool:
        for name in _TRIED:
            with suppress(ObjectExistsError):
                self._requests.write_private(name, b"1", create_only=True)
        source, taken = (f"{PRIVATE}/{name}" for name in _TRIED)
        try:
            self._requests.copy_object(source, taken, overwrite=False)
        except ObjectExistsError:
            return True
        except RemoteUnsupportedError:
            return False
        return False

    def _refuse_early(self, key: str, in_doubt: bool) -> None:
        """Raise ``ObjectExistsError`` before gigabytes are uploaded for nothing."""
        try:
            there = self._requests.head(key)
        except ObjectMissingError:
            return
        if there.metadata or not in_doubt:
            raise _taken(key)

    def _place(self, staged: str, key: str, metadata: dict[str, str], in_doubt: bool) -> ObjectInfo:
        try:
            try:
                self._requests.copy_object(staged, key, overwrite=False)
            except ObjectExistsError:
                if not (in_doubt and self._is_unfinished(key, staged)):
                    raise _taken(key) from None
            info = self._requests.head(key)
            if metadata and not info.metadata:
                self._requests.copy_object(staged, key, overwrite=True)
                info = self._requests.head(key)
            return info
        except RemoteUnavailableError:
            self._in_doubt[key] = metadata
            raise

    def _is_unfinished(self, key: str, staged: str) -> bool:
        """Say whether ``key`` has the bytes of ``staged`` and no metadata: then only the last step is missing.

        The etag of a conditional copy is derived from the bytes, so another copy of the staged object shows what it must be.
        """
        there = self._requests.head(key)
        if there.metadata:
            return False
        twin = staged_key()
        try:
            self._requests.copy_object(staged, twin, overwrite=False)
            return is_of_server(there.etag) and self._requests.head(twin).etag == there.etag
        finally:
            self._drop(twin)

    def _drop(self, staged: str) -> None:
        with suppress(RemoteError):  # the staged object is invisible; the outcome for ``key`` is what counts
            self._requests.delete_staged(staged)


def _taken(key: str) -> ObjectExistsError:
    return ObjectExistsError(f"PUT {key}: the object exists already")
