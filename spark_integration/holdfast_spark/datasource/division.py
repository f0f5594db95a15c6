"""Division of a store by prefixes, so that many tasks can list it.

A unit is a directory: with everything below it (``is_deep``), or only with its direct entries, if its subdirectories are
units of their own. Together the units yield the same as ``RemoteStore.list_all``. The division needs a few requests near the
root, and holds no more names than a few pages of a listing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from holdfast_spark.stores import PRIVATE, DirectoryInfo, ObjectInfo, RemoteStore, key_below

_SMALL = 2000
"""A directory with no more than this below it, two pages of S3, is not worth dividing."""
_MOST_SUBDIRECTORIES = 10_000
"""More subdirectories are listed together: that is cheaper than a request each, and keeps their names off the driver."""


class Unit(NamedTuple):
    """A part of a store: a directory, with or without its subdirectories."""

    prefix: str
    is_deep: bool


def divided(store: RemoteStore, prefix: str, wanted: int) -> list[Unit]:
    """Divide everything below ``prefix`` (``""``: the whole store) into about ``wanted`` units; fewer if it is small."""
    units: list[Unit] = []
    waiting = deque([prefix])
    while waiting and len(units) + len(waiting) < wanted:
        directory = waiting.popleft()
        below = _worth_dividing(store, directory)
        units.append(Unit(directory, is_deep=not below))
        waiting.extend(key_below(directory, name) for name in below)
        if below and not directory:
            units.append(Unit(PRIVATE, is_deep=True))
    return units + [Unit(directory, is_deep=True) for directory in waiting]


def listed(store: RemoteStore, unit: Unit) -> Iterator[ObjectInfo | DirectoryInfo]:
    """Yield the objects and directories of a unit."""
    if unit.is_deep:
        yield from store.list_all(unit.prefix)
        return
    listing = store.list_directory(unit.prefix)
    yield from listing.objects.values()
    for name, changed_ns in listing.changed_ns.items():
        yield DirectoryInfo(key_below(unit.prefix, name), changed_ns)


def _worth_dividing(store: RemoteStore, directory: str) -> list[str]:
    """Return the subdirectories if there is much below them. A directory that starts flat is taken as flat."""
    first = list(islice(store.list_all(directory), _SMALL + 1))
    skip = len(directory) + 1 if directory else 0
    if len(first) <= _SMALL or not any("/" in info.key[skip:] or isinstance(info, DirectoryInfo) for info in first):
        return []
    names = store.list_directory(directory).directories
    return sorted(names) if len(names) <= _MOST_SUBDIRECTORIES else []
