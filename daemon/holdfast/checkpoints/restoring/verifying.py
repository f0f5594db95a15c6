"""The verification of a store's batches, checkpoints and savepoints: a listing, the manifests it asks for, a judgement.

With ``deep`` everything that a restart reads is read too, and compared with its digest; what is corrupt may be something
that a restart can do without, so the judgement is made again. A query that runs meanwhile writes and deletes: what is found
wrong is looked at a second time, with another listing, before it is told.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial

import trio

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import EngineVersion, Restore
from holdfast.checkpoints.reachability import Examination, Listed, Place, places_of, restores
from holdfast.checkpoints.restoring.object_checks import Outcome, checked
from holdfast.checkpoints.sweeps.manifest_reading import read_all
from holdfast.checkpoints.sweeps.planning import RootListing, list_root
from holdfast.errors import NoSuchPlanError, PlanError
from holdfast.remote import key_below
from holdfast.system.text import shown
from holdfast.transfer import RemoteAccess
from holdfast.transfer.several_at_once import for_each

_AT_ONCE = 4
_STEP = 50
"""The number of objects that are checked between two steps."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The progress: ``done`` of ``total`` objects have been read, and ``without_digest`` could be compared with nothing.

    ``restores`` is there at the end; their names are relative to ``root``.
    """

    done: int = 0
    total: int = 0
    without_digest: int = 0
    root: str = ""
    restores: list[Restore] | None = None


class StoreVerification:
    """Verifies checkpoints in some stores, by the names of their zones."""

    def __init__(self, stores: Mapping[str, RemoteAccess], formats: Formats = FORMATS) -> None:
        self._stores = stores
        self._formats = formats

    @property
    def zones(self) -> frozenset[str]:
        """The zones that can be verified."""
        return frozenset(self._stores)

    async def restore(self, zone: str, location: str, batch: int | None) -> Restore:
        """Return a batch of the query at ``location``, or its newest, as it is without what later batches have left.

        Raises ``PlanError`` if it can't be restored.
        """
        if batch is None:
            batch = await self._newest(zone, location)
        if batch is not None:
            async for step in self.verify(zone, location, batch, deep=False, is_last=True):
                for each in step.restores or () if step.root == location else ():
                    if each.faults:
                        fault = each.faults[0]
                        raise PlanError(f"{shown(each.name)} can't be restored: {shown(fault.name)}: {fault.why}")
                    return each
        raise NoSuchPlanError(
            f"there is no query with a batch to restore at {location or 'the root'}; "
            "what an engine keeps without batches, only that engine can copy"
        )

    async def _newest(self, zone: str, location: str) -> int | None:
        """Return the newest batch of the query at ``location``; None if there is no such query."""
        async for step in self.verify(zone, location, None, deep=False):
            for each in step.restores or ():
                batches = (layout.batch_of(each.name) for layout in self._formats.locations)
                named = next((found for found in batches if found), None)
                if named is not None and each.is_newest and step.root == location:
                    return named.number
        return None

    async def verify(
        self,
        zone: str,
        path: str,
        batch: int | None,
        *,
        deep: bool,
        is_last: bool = False,
        engine: EngineVersion | None = None,
    ) -> AsyncIterator[Verified]:
        """Judge what lies below ``path``, or the one batch or checkpoint that it names. At least one step is yielded.

        Raises ``PlanError`` when there is nothing to restore, ``RemoteError``.
        """
        for place in places_of(path.encode(), batch, self._formats):
            one = _Verification(self._stores[zone], place._replace(is_last=is_last), self._formats, engine)
            async for step in one.steps(deep=deep):
                if step.restores != []:
                    yield step
                if step.restores:
                    return
        raise NoSuchPlanError(
            f"there is nothing to restore at {path or 'the root'}: 'holdfast checkpoint ls' shows what there is"
        )


class _Verification:
    def __init__(self, access: RemoteAccess, place: Place, formats: Formats, engine: EngineVersion | None) -> None:
        self._access = access
        self._engine = engine
        self._place = place
        self._root = place.root.decode()
        self._formats = formats
        self._outcomes: dict[bytes, Outcome] = {}

    async def steps(self, *, deep: bool) -> AsyncIterator[Verified]:
        while True:
            listed, found = await self._looked_at_twice()
            left = {name for each in found for name in each.files()} - self._outcomes.keys() if deep else set()
            before = self._with(Outcome.CORRUPT)
            async for done in self._check(listed, left):
                yield Verified(done, len(left), len(self._with(Outcome.WITHOUT_DIGEST)))
            if self._with(Outcome.CORRUPT) == before:
                break
        read = len(self._outcomes)
        yield Verified(read, read, len(self._with(Outcome.WITHOUT_DIGEST)), self._root, found)

    def _with(self, outcome: Outcome) -> frozenset[bytes]:
        return frozenset(name for name, each in self._outcomes.items() if each is outcome)

    async def _looked_at_twice(self) -> tuple[RootListing, list[Restore]]:
        listed = await list_root(self._access, self._root)
        found = await self._judged(listed)
        if not all(each.is_good or each.is_expired for each in found):
            listed = await list_root(self._access, self._root)
            found = await self._judged(listed)
        return listed, found

    async def _judged(self, listed: RootListing) -> list[Restore]:
        place, spoilt = self._place, self._with(Outcome.CORRUPT)

        def begin() -> Examination[list[Restore]]:
            return restores(listed.listing, place.batch, spoilt, self._formats, is_last=place.is_last, engine=self._engine)

        examination = await trio.to_thread.run_sync(begin)
        while examination.wanted:
            answers = await read_all(self._access, self._root, examination.wanted)
            await trio.to_thread.run_sync(examination.supply, answers)
        return [each for each in examination.result if place.name is None or each.name == place.name]

    async def _check(self, listed: RootListing, names: set[bytes]) -> AsyncIterator[int]:
        """Read objects and note what came out; yield how many are done, now and then. Raises ``RemoteError``."""
        there = [each for each in listed.listing if each.name in names]
        for first in range(0, len(there), _STEP):
            await for_each(there[first : first + _STEP], partial(self._check_object, listed.etags), _AT_ONCE)
            yield min(first + _STEP, len(there))

    async def _check_object(self, etags: Mapping[bytes, str], each: Listed) -> None:
        await self._access.downloads.take(each.size_bytes)
        key, etag = key_below(self._root, each.name.decode()), etags.get(each.name, "")
        self._outcomes[each.name], _ = await self._access.read(checked, self._access.store, key, each.size_bytes, etag)
