"""The quotes of an etag in the condition of a PUT: servers compare it with them, as HTTP says, or without, as Ceph does.

Once a right etag was refused, the server is asked with an object of our own. An etag without quotes is sent only to a server
that refuses the right one in quotes, and a wrong one without: another might not see a condition in it, and store anyway.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Protocol

from holdfast.errors import ObjectChangedError, RemoteError
from holdfast.remote.keys import staged_key

_WRONG = "0123456789abcdef" * 2


class Requests(Protocol):
    """The requests that a store must provide."""

    def put_small(self, key: str, data: bytes, etag: str = "") -> str:
        """Store a small object and return its etag. With ``etag``, raises ``ObjectChangedError`` over another version."""

    def delete_staged(self, key: str) -> None:
        """Delete a staged object."""


class EtagQuotes:
    """Remembers how one server compares etags, and asks it."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._asking = threading.Lock()
        self._wants_bare: bool | None = None
        """True if the etag is sent without quotes; None until a right one was refused."""

    @property
    def are_known(self) -> bool:
        """True once the server was asked."""
        return self._wants_bare is not None

    def sent(self, etag: str) -> str:
        """Return ``etag`` as it is sent in a condition."""
        return etag.strip('"') if self._wants_bare else etag

    def find_out(self) -> None:
        """Ask the server, once. Raises ``RemoteError``."""
        with self._asking:
            if self._wants_bare is None:
                self._wants_bare = self._ask()

    def _ask(self) -> bool:
        key = staged_key()
        etag = self._requests.put_small(key, b"1")
        try:
            return not self._is_taken(key, etag) and not self._is_taken(key, _WRONG) and self._is_taken(key, etag.strip('"'))
        finally:
            with suppress(RemoteError):
                self._requests.delete_staged(key)

    def _is_taken(self, key: str, etag: str) -> bool:
        """Say whether the server stores an object over the version ``etag``."""
        try:
            self._requests.put_small(key, b"1", etag)
        except ObjectChangedError:
            return False
        return True
