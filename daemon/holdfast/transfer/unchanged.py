"""Deleting objects that are still the versions that were to go: what another node has stored under a name since then stays.

No store deletes many objects on a condition, so they are looked at just before: what is stored between the look and the
deletion, the time of one request, is not seen. A deletion whose answer was lost is never sent again without a new look.

An etag alone tells no version: S3's follows from the bytes, and the logs of a query hold the same bytes again and again. So
the time must be the same too. Of an object that this node has stored it may not know the store's time: then the object's
metadata must say that it still is this node's, for what this node puts in its place takes the deletion's place as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import trio

from holdfast.errors import HoldfastError, NameNotStorableError, ObjectMissingError
from holdfast.index import CachedName
from holdfast.remote import ObjectInfo
from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.signature import is_owned

_LARGEST_REQUEST = 1000
_FEW = 8
"""Names of one directory that are asked about one by one, side by side; of more it is listed."""


async def delete_unchanged(access: RemoteAccess, versions: Mapping[str, CachedName], owner: str) -> list[ObjectInfo]:
    """Delete objects, by key, that are these versions (without etag: whichever there is), with retries.

    Return those that are other versions by now, which stay. ``owner`` signs what this node stores. Raises ``RemoteError``.
    """
    deadline = access.deadline()
    attempt = 0
    while True:
        try:
            return await _delete_once(access, versions, owner)
        except HoldfastError as problem:
            if not problem.transient:
                raise
            await access.pause(attempt, deadline, problem)
            attempt += 1


async def _delete_once(access: RemoteAccess, versions: Mapping[str, CachedName], owner: str) -> list[ObjectInfo]:
    look = _Look(access)
    await look.at([key for key, version in versions.items() if version.etag])
    await look.closer_at([key for key, info in look.found.items() if _is_in_doubt(info, versions[key])])
    others = {
        key: info
        for key, info in look.found.items()
        if info.etag != versions[key].etag or (_is_in_doubt(info, versions[key]) and not is_owned(info, owner))
    }
    keys = [key for key, version in versions.items() if not version.etag or (key in look.found and key not in others)]
    for start in range(0, len(keys), _LARGEST_REQUEST):
        await access.delete(keys[start : start + _LARGEST_REQUEST], insist=False)
    return list(others.values())


def _is_in_doubt(info: ObjectInfo, version: CachedName) -> bool:
    return info.etag == version.etag and info.modified_ns != version.modified_ns


class _Look:
    """What there is of some objects; of those that were not looked at closely without metadata."""

    def __init__(self, access: RemoteAccess) -> None:
        self._access = access
        self._problems: list[HoldfastError] = []
        self._closely: set[str] = set()
        self.found: dict[str, ObjectInfo] = {}

    async def at(self, keys: list[str]) -> None:
        """Look for ``keys``. Raises ``HoldfastError``."""
        by_directory = defaultdict(list)
        for key in keys:
            by_directory[key.rpartition("/")[0]].append(key)
        few = [key for names in by_directory.values() if len(names) <= _FEW for key in names]
        async with trio.open_nursery() as nursery:
            for directory, names in by_directory.items():
                if len(names) > _FEW:
                    nursery.start_soon(self._list, directory, names)
            for key in few:
                nursery.start_soon(self._head, key)
        self._check()

    async def closer_at(self, keys: list[str]) -> None:
        """Look for ``keys`` with metadata. Raises ``HoldfastError``."""
        async with trio.open_nursery() as nursery:
            for key in keys:
                if key not in self._closely:
                    nursery.start_soon(self._head, key)
        self._check()

    async def _head(self, key: str) -> None:
        self._closely.add(key)
        self.found.pop(key, None)
        try:
            self.found[key] = await self._access.head(key, insist=False)
        except (ObjectMissingError, NameNotStorableError):
            return
        except HoldfastError as problem:
            self._problems.append(problem)

    async def _list(self, directory: str, keys: list[str]) -> None:
        try:
            listing = await self._access.list_directory(directory, insist=False)
        except HoldfastError as problem:
            self._problems.append(problem)
            return
        names = ((key, key.rpartition("/")[2]) for key in keys)
        self.found |= {key: listing.objects[name] for key, name in names if name in listing.objects}

    def _check(self) -> None:
        if self._problems:
            raise self._problems[0]
