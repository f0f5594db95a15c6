"""A query taken back to an earlier batch that is retained, and that undone.

First it is verified that the query can be restored from there. What a rewind has set aside comes back, as long as the query
has not gone on and no sweep has taken it, by the steps of a rewind in the other direction: log entries, the oldest first,
then state. Cut off anywhere, a restart goes on from what is there or fails for want of state, and the same command completes
it. The note of the rewind goes at the end: then there is nothing to undo any more, and the next sweep removes the copies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.plans import Policy
from holdfast.checkpoints.reachability import PutBack, SetAside, put_back, set_aside
from holdfast.checkpoints.restoring.object_checks import content
from holdfast.checkpoints.restoring.verifying import StoreVerification
from holdfast.checkpoints.sweeps.execution import LocalCopies, StoreSweeps
from holdfast.checkpoints.sweeps.plan_format import Header, StoredPlan, read_header
from holdfast.checkpoints.sweeps.planning import RootListing, batch_named, list_root
from holdfast.checkpoints.sweeps.setting_aside import copy_all, in_steps
from holdfast.errors import PlanError
from holdfast.remote import key_below
from holdfast.transfer import RemoteAccess

_SECOND_NS = 10**9
_LARGEST_BYTES = 2**20
"""The size limit of a note and of a log's entry; those of real queries have some kilobytes."""


class Rewinds:
    """Makes plans of rewinds; they are carried out as all plans are."""

    def __init__(self, verification: StoreVerification, sweeps: StoreSweeps) -> None:
        self._verification = verification
        self._sweeps = sweeps

    async def plan(self, zone: str, location: str, batch: int, idle_seconds: float) -> StoredPlan:
        """Make and store the plan to take the query at ``location`` back to ``batch``.

        Nothing may have been written for ``idle_seconds``. Raises ``PlanError`` when the query seems to run, or there is no
        such batch, or it can't be restored; and ``RemoteError``.
        """
        restore = await self._verification.restore(zone, location, batch)
        name = restore.name.decode()
        idle_ns = int(idle_seconds * _SECOND_NS)
        return await self._sweeps.plan_rewind(zone, location, name, Policy(idle_ns, idle_ns))


class LocalView(LocalCopies, Protocol):
    """This node's view of a store."""

    async def objects_made(self, zone: str, keys: Sequence[str]) -> None:
        """Take note that the store has these objects now, which this node has not written."""
        ...


@dataclass(frozen=True, slots=True)
class Undone:
    """The progress of undoing the rewind ``plan``: ``done`` of ``total`` objects are back, and ``bytes_done`` with them."""

    done: int
    total: int
    plan: str
    bytes_done: int = 0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class _Rewind:
    """A rewind to ``batch``, by its note."""

    aside: SetAside
    header: Header
    batch: int

    def order(self) -> tuple[int, int]:
        """Return a key that sorts rewinds by the time of planning.

        S3 tells whole seconds; of two within one the later went further back.
        """
        return self.header.made_ns, -self.batch


class Undoing:
    """Undoes rewinds in some stores, by the names of their zones."""

    def __init__(self, stores: Mapping[str, RemoteAccess], local: LocalView, formats: Formats = FORMATS) -> None:
        self._stores = stores
        self._local = local
        self._formats = formats

    async def undo(self, zone: str, location: str, idle_seconds: float) -> AsyncIterator[Undone]:
        """Put back what the latest rewind of the query at ``location`` set aside; yield how far it is.

        Raises ``PlanError`` when there is nothing to put back, a part of it is gone, or the query has written since or
        within ``idle_seconds``; and ``RemoteError``: then the same again goes on with it.
        """
        access = self._stores[zone]
        listed = await list_root(access, location)
        latest = await self._latest(access, location, listed)
        aside, header = latest.aside, latest.header
        _check_whole(aside, header)
        idle_ns = int(idle_seconds * _SECOND_NS)
        back = put_back(listed.listing, aside, latest.batch, idle_ns, listed.began_ns, self._formats)
        await self._check_same(access, location, aside, back)
        done, bytes_done = 0, 0
        for step in (*([each] for each in back.logs), *in_steps(back.state)):
            names = [each.name for each in step]
            await copy_all(access, ((_key(location, aside.directory + name), _key(location, name)) for name in names))
            done += len(step)
            bytes_done += sum(each.size_bytes for each in step)
            yield Undone(done, len(back.logs) + len(back.state), header.id, bytes_done)
        await self._local.objects_made(zone, [_key(location, name) for name in aside.copies])
        await access.delete([_key(location, aside.note)])
        await self._local.gone(zone, [_key(location, aside.note)])
        yield Undone(done, done, header.id, bytes_done, finished=True)

    async def _latest(self, access: RemoteAccess, location: str, listed: RootListing) -> _Rewind:
        """Return the rewind that was planned last. Raises ``PlanError`` if there is none, and for a note that is damaged."""
        rewinds = []
        for aside in set_aside(listed.listing, self._formats):
            header = read_header(await _read(access, location, aside.note))
            rewinds.append(_Rewind(aside, header, batch_named(tuple(header.checkpoints), self._formats)))
        if not rewinds:
            raise PlanError("no rewind of this query can be undone: what it set aside has been put back, or swept")
        return max(rewinds, key=_Rewind.order)

    async def _check_same(self, access: RemoteAccess, location: str, aside: SetAside, back: PutBack) -> None:
        """Raise ``PlanError`` if a log has an entry already that is not the one that was set aside."""
        for name in sorted(back.doubtful):
            if await _read(access, location, name) != await _read(access, location, aside.directory + name):
                raise PlanError(f"{name.decode()} was written since the rewind: the query has another history now")


def _check_whole(aside: SetAside, header: Header) -> None:
    if len(aside.copies) != header.count:
        raise PlanError(
            f"{len(aside.copies)} of {header.count} files that the rewind {header.id} takes away are set aside: it was cut "
            f"off ('holdfast checkpoint execute {header.id}' completes it), or a sweep has begun to remove them"
        )


async def _read(access: RemoteAccess, location: str, name: bytes) -> bytes:
    return await access.read(content, access.store, _key(location, name), _LARGEST_BYTES)


def _key(location: str, name: bytes) -> str:
    return key_below(location, name.decode())
