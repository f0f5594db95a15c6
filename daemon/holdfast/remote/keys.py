"""Keys: how they are put together, which a store can hold, and which are its own.

Everything below ``.holdfast/`` at the root of a store belongs to the stores themselves: objects on their way. A crash leaves
some there; nothing else does any harm by removing them when they are old.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from holdfast.errors import NameNotStorableError

PRIVATE = ".holdfast"


def staged_key() -> str:
    """Return a key for an object on its way to its name; no two calls return the same."""
    return f"{PRIVATE}/{uuid.uuid4().hex}"


def key_below(directory: str, name: str) -> str:
    """Return the key of ``name``, which is relative to ``directory`` (``""``: the whole store)."""
    return f"{directory}/{name}" if directory else name


def is_private(key: str) -> bool:
    """Say whether ``key`` is one of the stores' own."""
    return key == PRIVATE or key.startswith(f"{PRIVATE}/")


def is_storable(name: str) -> bool:
    """Say whether ``name`` can be a part of a key: text, without control characters, that leads nowhere else."""
    return name not in ("", ".", "..") and all(
        character >= " " and character != "\x7f" and not "\ud800" <= character <= "\udfff" for character in name
    )


def storable_only(keys: Iterable[str]) -> list[str]:
    """Return those of ``keys`` that can be keys; the others can't exist."""
    return [key for key in keys if all(map(is_storable, key.split("/")))]


def checked(key: str) -> str:
    """Return ``key``. Raises ``NameNotStorableError`` where a part of it can't be."""
    for part in key.split("/"):
        if not is_storable(part):
            raise NameNotStorableError(f"{key!r}: {part!r} can't be part of an object's name")
    return key


def checked_prefix(prefix: str) -> str:
    """Return ``prefix``, a key or ``""`` for the whole store. Raises ``NameNotStorableError``."""
    return checked(prefix) if prefix else prefix


def checked_target(key: str) -> str:
    """Return ``key``, which is about to be written. Raises ``NameNotStorableError`` also for the stores' own names."""
    if is_private(key):
        raise NameNotStorableError(f"{key!r}: what lies below {PRIVATE}/ is the store's own")
    return checked(key)
