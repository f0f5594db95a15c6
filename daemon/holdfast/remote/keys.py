"""Object keys: how they are composed, which are valid, and which are reserved.

Everything below ``.holdfast/`` at the root of a store is reserved for the stores themselves, mostly for staged objects. A
crash leaves some there; once they are old, they can be removed safely.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.errors import NameNotStorableError, RemoteError

PRIVATE = ".holdfast"
_STAGED_BYTES = 16
LONGEST_KEY_BYTES = 4096
"""Linux's PATH_MAX; no store of objects takes more than 1024. The limit bounds how deep a tree in a store can be."""
_UNSTORABLE = re.compile("[\\x00-\\x1f/\\x7f\\ud800-\\udfff]")
UNSTORABLE_NAME = {
    errno.ENAMETOOLONG: errno.ENAMETOOLONG,
    errno.EILSEQ: errno.EILSEQ,
    errno.ENOTDIR: errno.EILSEQ,
    errno.EISDIR: errno.EILSEQ,
}
"""The errors of a file system for a name that it can't hold, and what users get, who see no such directory."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """Limits of one store beyond those of all stores, as far as they are known without asking it.

    ``longest_key_bytes`` counts below the store's URL; ``longest_part_bytes`` is for each part between slashes; no part may
    contain what ``refused`` finds. A store may refuse still other names. What ``altered`` finds the store would take for
    something else: there is no object of such a name, whatever the store answers.
    """

    longest_key_bytes: int = LONGEST_KEY_BYTES
    longest_part_bytes: int = LONGEST_KEY_BYTES
    refused: re.Pattern[str] | None = None
    altered: re.Pattern[str] | None = None

    def can_exist(self, key: str) -> bool:
        """Say whether there may be an object of this name."""
        return not self._is_too_long(key) and (self.altered is None or self.altered.search(key) is None)

    def check(self, key: str) -> None:
        """Raise ``NameNotStorableError`` for a key that the store would refuse."""
        most_bytes = _most_bytes(key)
        if most_bytes > self.longest_key_bytes and self._is_too_long(key):
            raise NameNotStorableError(
                f"{key[:80]!r}…: this store takes {self.longest_key_bytes} bytes of a name", errno.ENAMETOOLONG
            )
        if most_bytes > self.longest_part_bytes:
            longest = max(len(part.encode()) for part in key.split("/"))
            if longest > self.longest_part_bytes:
                raise NameNotStorableError(
                    f"{key[:80]!r}…: this store takes {self.longest_part_bytes} bytes between slashes", errno.ENAMETOOLONG
                )
        if self.refused is not None and (found := self.refused.search(key)):
            raise NameNotStorableError(f"{key[:80]!r}: this store takes no name with {found[0]!a}", errno.EINVAL)

    def _is_too_long(self, key: str) -> bool:
        return _most_bytes(key) > self.longest_key_bytes and len(key.encode()) > self.longest_key_bytes


def _most_bytes(key: str) -> int:
    """Return a bound of the bytes of a key that needs no copy of it."""
    return len(key) if key.isascii() else 4 * len(key)


NOT_IN_XML = re.compile("[\ufffe\uffff]")
"""Characters that XML 1.0 can't hold, beside those that no key may have.

S3, Azure and Google list objects, and S3 deletes them in bulk, in XML: one such name makes the text of all unreadable.
"""


def staged_key() -> str:
    """Return a new, unique key for an object that is staged before it gets its name."""
    return f"{PRIVATE}/{os.urandom(_STAGED_BYTES).hex()}"


def key_below(directory: str, name: str) -> str:
    """Return the key of ``name``, which is relative to ``directory`` (``""``: the whole store)."""
    return f"{directory}/{name}" if directory else name


def name_below(directory: str, key: str) -> str:
    """Return the name of ``key``, which a listing of ``directory`` (``""``: the whole store) has shown, relative to it.

    Raises ``RemoteError`` if it is not below: the store has answered for another directory than it was asked for.
    """
    prefix = key_below(directory, "")
    if is_too_long(key):
        raise RemoteError(f"LIST {prefix}: the store answers with a name of {len(key)} characters, {key[:80]!a}…")
    if not key.startswith(prefix):
        raise RemoteError(f"LIST {prefix}: the store answers with {key[:80]!a}, which is not below")
    return key[len(prefix) :]


def child_below(directory: str, key: str) -> str:
    """Return the name of ``key`` as ``name_below`` does, which also has to be directly below. Raises ``RemoteError``."""
    name = name_below(directory, key)
    if not is_storable(name):
        raise RemoteError(
            f"LIST {key_below(directory, '')}: the store answers with {key[:80]!a}, which is not directly below"
        )
    return name


def is_private(key: str) -> bool:
    """Say whether ``key`` is reserved for the stores themselves."""
    return key == PRIVATE or key.startswith(f"{PRIVATE}/")


def is_storable(name: str) -> bool:
    """Say whether ``name`` can be a part of a key: text without control characters, and not ``.`` or ``..``."""
    return name not in ("", ".", "..") and _UNSTORABLE.search(name) is None


def is_listed_as_it_is(key: str) -> bool:
    """Say whether every store's listing shows ``key`` as it is; some servers put U+FFFD for what XML can't hold."""
    return NOT_IN_XML.search(key) is None


def storable_only(keys: Iterable[str]) -> list[str]:
    """Return those of ``keys`` that are valid; objects with other keys can't exist."""
    return [key for key in keys if not is_too_long(key) and all(map(is_storable, key.split("/")))]


def is_too_long(key: str) -> bool:
    """Say whether ``key`` is longer than any key may be."""
    return 4 * len(key) > LONGEST_KEY_BYTES and len(key.encode(errors="surrogatepass")) > LONGEST_KEY_BYTES


def checked(key: str) -> str:
    """Return ``key``. Raises ``NameNotStorableError`` if it is too long, or a part of it is not valid."""
    if is_too_long(key):
        raise NameNotStorableError(
            f"{key[:80]!r}…: an object's name has at most {LONGEST_KEY_BYTES} bytes", errno.ENAMETOOLONG
        )
    for part in key.split("/"):
        if not is_storable(part):
            raise NameNotStorableError(f"{key!r}: {part!r} can't be part of an object's name")
    return key


def checked_prefix(prefix: str) -> str:
    """Return ``prefix``, a key or ``""`` for the whole store. Raises ``NameNotStorableError``."""
    return checked(prefix) if prefix else prefix


def checked_target(key: str) -> str:
    """Return ``key``, which is about to be written. Raises ``NameNotStorableError``, for reserved keys too."""
    if is_private(key):
        raise NameNotStorableError(f"{key!r}: what lies below {PRIVATE}/ is the store's own")
    return checked(key)
