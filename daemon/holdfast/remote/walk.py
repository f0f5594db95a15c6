"""Everything below a directory, for stores that list one directory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.remote.contract import DirectoryInfo, DirectoryListing, ObjectInfo
from holdfast.remote.names import key_below


def walk(list_directory: Callable[[str], DirectoryListing], prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
    """Yield the objects and the real directories below ``prefix``.

    What the listings raise ends the walk: a part is never taken for the whole.
    """
    waiting = [prefix]
    while waiting:
        directory = waiting.pop()
        listing = list_directory(directory)
        yield from listing.objects.values()
        for name in listing.directories:
            key = key_below(directory, name)
            waiting.append(key)
            if name in listing.changed_ns:
                yield DirectoryInfo(key, listing.changed_ns[name])
