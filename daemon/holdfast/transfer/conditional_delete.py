"""Deleting objects only if they are still the expected versions: what another node has stored under a name meanwhile stays.

No store offers a conditional bulk delete, so the objects are checked just before. An object that is stored between the check
and the deletion (the time of one request) is not noticed. A failed deletion is never sent again without a new check: its
answer may have been lost, or it failed for only one of many names.

An etag alone does not identify a version: S3 derives it from the bytes, and the logs of a query have the same bytes again
and again. So the modification time must match too. Of an object that this node stored itself, etag and time may be unknown
(the answer was lost) or differ from what the store shows: such an object is recognised by its signature. It may be deleted,
because whatever this node puts in place of an object that is to be deleted also cancels the deletion. Stores without
metadata have etags that contain the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from holdfast.errors import HoldfastError, NameNotStorableError, ObjectMissingError
from holdfast.index import CachedName
from holdfast.remote import ObjectInfo, RemoteStore, is_listed_as_it_is, says_nothing_of_others
from holdfast.transfer.computing import computed, emptied
from holdfast.transfer.store_requests import RemoteAccess

OWNER = "holdfast-node"
"""The field of an object's metadata that names the node which has stored it (``transfer.upload``)."""
_FEW = 8
_PAGE = 1000
"""The number of names in one answer to LIST. A directory is listed if that takes fewer requests than a HEAD of each name."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a deletion: ``superseded`` objects, which stay, and ``problems`` by key. All others are deleted.

    ``alone`` has those keys whose own deletion, and not only one together with others, has failed.
    """

    superseded: list[ObjectInfo] = field(default_factory=list)
    problems: dict[str, HoldfastError] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)


async def delete_unchanged(
    access: RemoteAccess, versions: Mapping[str, CachedName], owner: str, cached_count: Callable[[str], int]
) -> Outcome:
    """Delete those objects, by key, that are these versions (without etag: any version).

    An object that the store refuses to delete holds up no other: a refused request is divided until that key stands alone.

    ``owner`` signs what this node stores; ``cached_count`` says about how many names a directory has.
    """
    tried = _Try(access, versions, owner, cached_count)
    await tried.run()
    return tried.outcome


def may_delete(store: RemoteStore, info: ObjectInfo, version: CachedName, owner: str) -> bool:
    """Say whether an object may be deleted as ``version``: it is that, or this node's own. ``info`` is from a HEAD."""
    return _is_version(store, info, version) or _is_owned(info, owner)


def _is_version(store: RemoteStore, info: ObjectInfo, version: CachedName) -> bool:
    is_same_time = info.modified_ns == version.modified_ns or not store.capabilities.metadata
    return info.etag == version.etag and is_same_time


@dataclass(slots=True)
class _Try:
    """A check of the versions and the deletion after it."""

    access: RemoteAccess
    versions: Mapping[str, CachedName]
    owner: str
    cached_count: Callable[[str], int]
    _found: dict[str, ObjectInfo] = field(default_factory=dict, init=False)
    outcome: Outcome = field(default_factory=Outcome, init=False)

    async def run(self) -> None:
        """Check and delete."""
        await self._check([key for key, version in self.versions.items() if version.etag])
        await self._delete([key for key, version in self.versions.items() if not version.etag or self._may_delete(key)])

    async def _delete(self, keys: list[str]) -> None:
        """Delete keys that were checked just now. What is refused is checked again and divided."""
        keys = [key for key in keys if key not in self.outcome.problems]
        if not keys:
            return
        try:
            await self.access.delete(keys, retry=False)
            return
        except HoldfastError as problem:
            refusal = problem.with_traceback(None)
        if len(keys) == 1:
            self._failed_alone(keys[0], refusal)
            return
        await self._check(keys)
        left = [key for key in keys if key in self._found]
        if says_nothing_of_others(refusal) and self.access.health.up:
            await self._delete_halves([key for key in left if not self.versions[key].etag or self._may_delete(key)])
        else:
            self._failed(left, refusal)

    async def _delete_halves(self, keys: list[str]) -> None:
        middle = (len(keys) + 1) // 2
        async with trio.open_nursery() as nursery:
            for half in (keys[:middle], keys[middle:]):
                nursery.start_soon(self._delete, half)

    def _may_delete(self, key: str) -> bool:
        info = self._found.get(key)
        if info is None:
            return False
        if may_delete(self.access.store, info, self.versions[key], self.owner):
            return True
        self.outcome.superseded.append(info)
        return False

    async def _check(self, keys: list[str]) -> None:
        for key in keys:
            self._found.pop(key, None)
        by_directory = defaultdict(list)
        odd = [key for key in keys if not is_listed_as_it_is(key)]
        for key in keys if not odd else set(keys).difference(odd):
            by_directory[key.rpartition("/")[0]].append(key)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._head_each, odd)
            for directory, names in by_directory.items():
                if len(names) > _FEW + self.cached_count(directory) // _PAGE:
                    nursery.start_soon(self._list, directory, names)
                else:
                    nursery.start_soon(self._head_each, names)

    async def _head_each(self, keys: list[str]) -> None:
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(self._head, key)

    async def _head(self, key: str) -> None:
        self._found.pop(key, None)
        try:
            self._found[key] = await self.access.head(key, retry=False)
        except (ObjectMissingError, NameNotStorableError):
            return
        except HoldfastError as problem:
            self._failed_alone(key, problem)

    async def _list(self, directory: str, keys: list[str]) -> None:
        try:
            listing = await self.access.list_directory(directory, retry=False)
        except HoldfastError as problem:
            if problem.transient:
                self._failed(keys, problem)
            else:  # another object in the directory may be the reason
                await self._head_each(keys)
            return
        names = ((key, key.rpartition("/")[2]) for key in keys)
        self._found |= {key: listing.objects[name] for key, name in names if name in listing.objects}
        await computed(emptied(listing.objects), len(listing.objects))
        await self._head_each([key for key in keys if key in self._found and not self._is_expected(key)])

    def _is_expected(self, key: str) -> bool:
        return _is_version(self.access.store, self._found[key], self.versions[key])

    def _failed_alone(self, key: str, problem: HoldfastError) -> None:
        self._failed([key], problem)
        self.outcome.alone.add(key)

    def _failed(self, keys: list[str], problem: HoldfastError) -> None:
        """Note a problem, without its traceback, which refers to this."""
        self.outcome.problems |= dict.fromkeys(keys, problem.with_traceback(None))


def _is_owned(info: ObjectInfo, owner: str) -> bool:
    """Say whether the node ``owner`` stored an object. ``info`` is from a HEAD, which has the metadata."""
    return info.metadata.get(OWNER) == owner
