"""Deleting objects that are still the versions that were to go: what another node has stored under a name since then stays.

No store deletes many objects on a condition, so they are looked at just before: what is stored between the look and the
deletion, the time of one request, is not seen. A deletion that failed is never sent again without a new look: its answer may
have been lost, or it failed for one of many names.

An etag alone tells no version: S3's follows from the bytes, and the logs of a query hold the same bytes again and again. So
the time must be the same too. What this node has stored it may know by other marks than the store shows, or not at all (an
answer that was lost): it is known by its signature. It can go, for what this node puts in the place of an object that is to
go takes the deletion's place as well. Stores without metadata have etags that are made of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from holdfast.errors import HoldfastError, NameNotStorableError, ObjectMissingError
from holdfast.index import CachedName
from holdfast.remote import ObjectInfo, RemoteStore
from holdfast.transfer.access import RemoteAccess
from holdfast.transfer.signature import is_owned

_FEW = 8
_PAGE = 1000
"""Names that one request of a LIST tells. A directory is listed if that takes fewer requests than to ask about the names."""


@dataclass(slots=True)
class Outcome:
    """What became of deletions: objects that stay as ``others``, and ``problems`` by key. The rest is done."""

    others: list[ObjectInfo] = field(default_factory=list)
    problems: dict[str, HoldfastError] = field(default_factory=dict)


async def delete_unchanged(
    access: RemoteAccess, versions: Mapping[str, CachedName], owner: str, believed_size: Callable[[str], int]
) -> Outcome:
    """Delete objects, by key, that are these versions (without etag: whichever there is). Each is tried once.

    ``owner`` signs what this node stores; ``believed_size`` says about how many names a directory has.
    """
    tried = _Try(access, versions, owner, believed_size)
    await tried.run()
    return tried.outcome


def is_to_go(store: RemoteStore, info: ObjectInfo, version: CachedName, owner: str) -> bool:
    """Say whether the object ``info``, as a HEAD tells of it, is the ``version``, or else one of this node's."""
    return _is_version(store, info, version) or is_owned(info, owner)


def _is_version(store: RemoteStore, info: ObjectInfo, version: CachedName) -> bool:
    is_same_time = info.modified_ns == version.modified_ns or not store.capabilities.metadata
    return info.etag == version.etag and is_same_time


class _Try:
    """A look and, after it, the deletion."""

    def __init__(
        self, access: RemoteAccess, versions: Mapping[str, CachedName], owner: str, believed_size: Callable[[str], int]
    ) -> None:
        self._access = access
        self._versions = versions
        self._owner = owner
        self._believed_size = believed_size
        self._found: dict[str, ObjectInfo] = {}
        self.outcome = Outcome()

    async def run(self) -> None:
        """Look and delete."""
        problems = self.outcome.problems
        await self._look([key for key, version in self._versions.items() if version.etag])
        keys = [
            key
            for key, version in self._versions.items()
            if key not in problems and (not version.etag or self._is_to_go(key))
        ]
        if not keys:
            return
        try:
            await self._access.delete(keys, insist=False)
        except HoldfastError as problem:
            if len(keys) > 1:
                await self._look(keys)
                keys = [key for key in keys if key in self._found]
            problems |= dict.fromkeys(keys, problem)

    def _is_to_go(self, key: str) -> bool:
        info = self._found.get(key)
        if info is None:
            return False
        if is_to_go(self._access.store, info, self._versions[key], self._owner):
            return True
        self.outcome.others.append(info)
        return False

    async def _look(self, keys: list[str]) -> None:
        self._found.clear()
        by_directory = defaultdict(list)
        for key in keys:
            by_directory[key.rpartition("/")[0]].append(key)
        async with trio.open_nursery() as nursery:
            for directory, names in by_directory.items():
                if len(names) > _FEW + self._believed_size(directory) // _PAGE:
                    nursery.start_soon(self._list, directory, names)
                else:
                    nursery.start_soon(self._ask, names)

    async def _ask(self, keys: list[str]) -> None:
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(self._head, key)

    async def _head(self, key: str) -> None:
        self._found.pop(key, None)
        try:
            self._found[key] = await self._access.head(key, insist=False)
        except (ObjectMissingError, NameNotStorableError):
            return
        except HoldfastError as problem:
            self.outcome.problems[key] = problem

    async def _list(self, directory: str, keys: list[str]) -> None:
        try:
            listing = await self._access.list_directory(directory, insist=False)
        except HoldfastError as problem:
            if problem.transient:
                self.outcome.problems |= dict.fromkeys(keys, problem)
            else:  # for what else lies there, perhaps
                await self._ask(keys)
            return
        names = ((key, key.rpartition("/")[2]) for key in keys)
        self._found |= {key: listing.objects[name] for key, name in names if name in listing.objects}
        await self._ask([key for key in keys if key in self._found and not self._is_the_version(key)])

    def _is_the_version(self, key: str) -> bool:
        return _is_version(self._access.store, self._found[key], self._versions[key])
