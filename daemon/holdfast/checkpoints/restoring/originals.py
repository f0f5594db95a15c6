"""The original of a clone: a query as it was after a batch, or a checkpoint of a job that has all its files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from holdfast.checkpoints.examination import Examination
from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.formats.interface import LocationLayout
from holdfast.checkpoints.plans import Listed
from holdfast.checkpoints.reachability import location_at_root, self_contained
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.planning import RootListing, list_root
from holdfast.checkpoints.sweeps.several_at_once import read_all
from holdfast.errors import PlanError
from holdfast.transfer import RemoteAccess

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Original:
    """The original of a copy: ``files``, by their names below ``source``, then ``entry``, which makes it a checkpoint.

    For a query as it was after ``batch``, ``layout`` makes the entry with another id, and each of the files ``rewritten``
    for a copy at another place.
    """

    source: str
    files: list[Listed]
    entry: str
    batch: int | None = None
    rewritten: tuple[Listed, ...] = ()
    layout: LocationLayout | None = None


@dataclass(frozen=True, slots=True)
class Originals:
    """Finds out what is to be copied, in some stores, by the names of their zones."""

    stores: Mapping[str, RemoteAccess]
    verification: StoreVerification
    formats: Formats = FORMATS

    async def at(self, zone: str, source: str, batch: int | None) -> Original:
        """Return what a copy of ``source`` takes, of a query as it was after ``batch`` or its newest.

        Raises ``PlanError`` when it can't be restored, or not from another place; and ``RemoteError``.
        """
        listed = await list_root(self.stores[zone], source)
        found = await self._examined(zone, source, self_contained(listed.listing, self.formats))
        if found is None:
            return await self._query(zone, source, batch, listed)
        if batch is not None:
            raise PlanError(f"{source} is a checkpoint of a job, which has no batches")
        *files, manifest = found
        return Original(source, files, manifest.name.decode())

    async def _query(self, zone: str, source: str, batch: int | None, listed: RootListing) -> Original:
        restore = await self.verification.restore(zone, source, batch)
        number = next(found.number for layout in self.formats.locations if (found := layout.batch_of(restore.name)))
        layout, below = location_at_root(listed.listing, self.formats)
        copied = await self._examined(zone, source, Examination(layout.copied(b"", below, number)))
        return Original(source, copied.files, layout.entry.decode(), number, tuple(copied.rewritten), layout)

    async def _examined(self, zone: str, source: str, examination: Examination[_T]) -> _T:
        while examination.wanted:
            examination.supply(await read_all(self.stores[zone], source, examination.wanted))
        return examination.result
