"""Walking all objects below a directory, for stores that list one directory at a time.

An error of a listing ends the walk and is raised: a part is never taken for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from holdfast.remote.contract import DirectoryInfo, DirectoryListing, ObjectInfo
from holdfast.remote.keys import PRIVATE, key_below

ListDirectory: TypeAlias = Callable[[str], DirectoryListing]


def objects_below(list_directory: ListDirectory, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the objects below ``prefix``: a store's ``list_tree``."""
    return (info for info in _walk(list_directory, prefix) if isinstance(info, ObjectInfo))


def everything_below(list_directory: ListDirectory, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
    """Yield the objects and real directories below ``prefix``; for ``""``, the reserved ones too: a store's ``list_all``."""
    yield from _walk(list_directory, prefix)
    if not prefix:
        yield from _walk(list_directory, PRIVATE)


def _walk(list_directory: ListDirectory, prefix: str) -> Iterator[ObjectInfo | DirectoryInfo]:
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
