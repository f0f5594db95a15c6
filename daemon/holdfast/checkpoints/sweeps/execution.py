"""Plans carried out: in bulk, manifests first, and only what is still as it was when the plan was made.

An execution lists the root once more and makes the plan anew. What has gone meanwhile was taken by another node, or by an
earlier execution that was cut off, and does not matter, except to a rewind: it could not be undone. If anything is still
there but would not go any more, or is another version, the store has changed and nothing is touched. A plan that was made a
moment ago by this daemon may be carried out without a second listing (``at_once``): its listing is as new as a second one
would be when a large plan is half done.

An object that the store refuses to delete (a lock, a right that is missing) keeps no other of its phase: what is left of the
phase is deleted first, then the execution ends with the error. A manifest that stays keeps all that it may name.

Two executions side by side delete the same things twice, which no store minds. An execution that is cut off leaves what it
has not come to; of what it had begun, the manifests are gone first, so that nothing looks whole and is not.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

import trio

from holdfast.checkpoints.formats import FORMATS, Formats
from holdfast.checkpoints.reachability import Found, Listed, Phase, Plan, PlanEntry, Policy, Reason, location_at_root
from holdfast.checkpoints.sweeps.plan_format import DROP, REWIND, SWEEP, Header, Item, StoredPlan
from holdfast.checkpoints.sweeps.plan_store import PlanStore, new_id
from holdfast.checkpoints.sweeps.planning import Question, RootListing, make, make_drop, stored, take_census
from holdfast.checkpoints.sweeps.revalidation import Execution, Step, check_nothing_new, confirmed
from holdfast.checkpoints.sweeps.setting_aside import check_nothing_lost, set_aside
from holdfast.errors import PlanError, RemoteRefusedError
from holdfast.remote import key_below
from holdfast.telemetry import Counters, EventLog
from holdfast.transfer import RemoteAccess

_BATCH = 1000
"""The number of objects that one request deletes: S3's limit."""
_AT_ONCE_SECONDS = 60.0


class LocalCopies(Protocol):
    """The copies that this node has of a store's objects, and its view of them."""

    def in_use(self, zone: str, key: str) -> bool:
        """Return whether the object is being written here, or its bytes are only here."""
        ...

    async def gone(self, zone: str, keys: list[str]) -> None:
        """Take note that the store has deleted these objects."""
        ...

    async def leftovers(self, zone: str, root: str, before_ns: int) -> list[Listed]:
        """Return the temporary files below ``root`` that ended writers have left on this node, and no store has.

        They have not been touched after ``before_ns``, by this node's clock. Names are relative to ``root``.
        """
        ...

    def is_leftover(self, zone: str, key: str) -> bool:
        """Return whether there is such a file on this node."""
        ...

    async def remove_leftovers(self, zone: str, keys: Sequence[str], before_ns: int) -> tuple[list[str], int]:
        """Remove those that nobody has open or has touched after ``before_ns``; return them, and how many are in use."""
        ...

    async def directory_made(self, zone: str, key: str) -> None:
        """Take note that the store has a directory ``key`` now, with objects that this node has not written."""
        ...

    async def directory_gone(self, zone: str, key: str, *, for_good: bool) -> None:
        """Take note that the store has no directory ``key`` any more, if it was empty.

        ``for_good``: nothing will be written there.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreSweeps:
    """Plans for the objects of some stores, by the names of their zones."""

    stores: Mapping[str, RemoteAccess]
    plan_store: PlanStore
    local: LocalCopies
    events: EventLog
    counters: Counters
    formats: Formats = FORMATS
    _made_at: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def zones(self) -> frozenset[str]:
        """The zones that are swept."""
        return frozenset(self.stores)

    async def census(self, zone: str, root: str) -> list[Found]:
        """Return the checkpoints below ``root``. Raises ``RemoteError``."""
        return await take_census(self.stores[zone], root, self.formats)

    async def plan_sweep(self, zone: str, root: str, policy: Policy) -> StoredPlan:
        """Make and store the plan of a sweep. Raises ``RemoteError``."""
        began = time.monotonic()
        question = Question(SWEEP, root, policy)
        plan, listed = await self._make(zone, question)
        return await self._put(zone, question, plan, listed, began)

    async def plan_leftovers(self, zone: str, root: str, policy: Policy) -> StoredPlan | None:
        """Make and store the plan of a sweep of what only this node has, without a request; None if there is nothing."""
        began, now_ns = time.monotonic(), time.time_ns()
        entries = await self._leftovers(zone, root, policy, now_ns)
        if not entries:
            return None
        return await self._put(zone, Question(SWEEP, root, policy), Plan(entries), RootListing(now_ns, [], {}), began)

    async def plan_drop(self, zone: str, name: str, root: str | None, *, all_before: bool) -> StoredPlan:
        """Make and store the plan to drop a checkpoint. Raises ``PlanError`` and ``RemoteError``."""
        began = time.monotonic()
        access = self.stores[zone]
        question, plan, listed = await make_drop(access, name, root, all_before=all_before, formats=self.formats)
        return await self._put(zone, question, plan, listed, began)

    async def plan_rewind(self, zone: str, root: str, batch: str, policy: Policy) -> StoredPlan:
        """Make and store the plan to take a query back to ``batch``. Raises ``PlanError`` and ``RemoteError``."""
        began = time.monotonic()
        question = Question(REWIND, root, policy, (batch,))
        plan, listed = await make(self.stores[zone], question, self.formats)
        return await self._put(zone, question, plan, listed, began)

    async def execute(self, plan: StoredPlan, *, at_once: bool) -> AsyncIterator[Step]:
        """Carry a stored plan out; yield a step after each request, and one at the end.

        Raises ``PlanOutdatedError`` before anything is touched when the world has changed or the plan is done, ``PlanError``
        when it is another store's or under way, ``RemoteError`` when the store does not answer: then it can go on later.
        """
        header = plan.header
        if header.zone not in self.stores or header.store != self._url(header.zone):
            raise PlanError(f"the plan {header.id} is for {header.store}, which is not this daemon's {header.zone}")
        with self.plan_store.executing(header.id):
            items = plan.items
            made_at = self._made_at.get(header.id)
            if header.kind == REWIND:
                items = await self._set_aside(plan)
            elif not at_once or made_at is None or time.monotonic() - made_at > _AT_ONCE_SECONDS:
                items = await self._confirmed(plan)
            execution = Execution(plan, self.plan_store, self.counters, self.events)
            execution.begin(items)
            left_here = {item.name: item for item in items if self._is_leftover(header, item)}
            async for step in self._remove_leftovers(header, left_here.values(), execution):
                yield step
            stored_items = [item for item in items if item.name not in left_here]
            async for step in self._delete(header, stored_items, execution):
                yield step
            for name in header.checkpoints if header.kind == DROP else ():
                await self.local.directory_gone(header.zone, key_below(header.root, name), for_good=True)
            yield execution.done()

    async def _confirmed(self, plan: StoredPlan) -> tuple[Item, ...]:
        later, listed = await self._make(plan.header.zone, Question.of(plan.header))
        there = {each.name for each in listed.listing} | {each.name for each in later.entries}
        return confirmed(plan, later, there, listed.etags)

    async def _make(self, zone: str, question: Question) -> tuple[Plan, RootListing]:
        """Make a plan. A sweep takes what ended writers have left on this node too."""
        plan, listed = await make(self.stores[zone], question, self.formats)
        if question.kind != SWEEP:
            return plan, listed
        leftovers = await self._leftovers(zone, question.root, question.policy, time.time_ns())
        by_name = {entry.name: entry for entry in (*plan.entries, *leftovers)}
        return replace(plan, entries=tuple(sorted(by_name.values(), key=lambda entry: entry.phase))), listed

    async def _leftovers(self, zone: str, root: str, policy: Policy, now_ns: int) -> tuple[PlanEntry, ...]:
        found = await self.local.leftovers(zone, root, now_ns - policy.grace_ns)
        return tuple(
            PlanEntry(each.name, Reason.TEMPORARY, "on this node", each.size_bytes, each.mtime_ns, now_ns - each.mtime_ns)
            for each in found
        )

    def _is_leftover(self, header: Header, item: Item) -> bool:
        is_temporary = header.kind == SWEEP and item.reason == Reason.TEMPORARY.name.lower()
        return is_temporary and self.local.is_leftover(header.zone, key_below(header.root, item.name))

    async def _remove_leftovers(self, header: Header, items: Iterable[Item], execution: Execution) -> AsyncIterator[Step]:
        left = iter(items)
        while batch := list(islice(left, _BATCH)):
            by_key = {key_below(header.root, item.name): item for item in batch}
            before_ns = time.time_ns() - header.policy.policy().grace_ns
            removed, in_use = await self.local.remove_leftovers(header.zone, list(by_key), before_ns)
            gone = len(batch) - len(removed) - in_use
            yield execution.removed([by_key[key] for key in removed], gone=gone, in_use=in_use)

    async def _set_aside(self, plan: StoredPlan) -> tuple[Item, ...]:
        """Confirm the plan of a rewind, which always takes a second look, and copy all that is to go."""
        header = plan.header
        later, listed = await make(self.stores[header.zone], Question.of(header), self.formats)
        items = confirmed(plan, later, {each.name for each in listed.listing}, listed.etags)
        check_nothing_new(plan, later)
        in_use = next((item.name for item in items if self._in_use(header, item)), None)
        if in_use is not None:
            raise PlanError(f"{in_use} is being written on this node: stop the query first")
        layout, below = location_at_root(listed.listing, self.formats)
        sizes_bytes = {each.name.decode(errors="replace"): each.size_bytes for each in below}
        directory = layout.set_aside.decode()
        check_nothing_lost(plan, items, directory, sizes_bytes)
        made = await set_aside(self.stores[header.zone], header, items, directory, sizes_bytes)
        await self.local.directory_made(header.zone, made)
        return items

    async def _delete(self, header: Header, items: Iterable[Item], execution: Execution) -> AsyncIterator[Step]:
        access = self.stores[header.zone]
        for phase in Phase:
            of_phase = iter([item for item in items if item.step() is phase])
            is_in_order = header.kind == REWIND and phase is not Phase.MANIFEST
            refusal: RemoteRefusedError | None = None
            while batch := list(islice(of_phase, 1 if is_in_order else _BATCH)):
                free = [item for item in batch if not self._in_use(header, item)]
                keys = [key_below(header.root, item.name) for item in free]
                if phase is Phase.DIRECTORY:
                    await self._prune(access, header.zone, keys)
                elif keys:
                    try:
                        await access.delete(keys)
                    except RemoteRefusedError as problem:
                        if is_in_order or problem.of_store:
                            raise
                        refusal = problem
                        continue
                    await self.local.gone(header.zone, keys)
                yield execution.removed(free, in_use=len(batch) - len(free))
            if refusal is not None:
                raise refusal

    def _in_use(self, header: Header, item: Item) -> bool:
        return item.step() is not Phase.DIRECTORY and self.local.in_use(header.zone, key_below(header.root, item.name))

    async def _prune(self, access: RemoteAccess, zone: str, keys: list[str]) -> None:
        """Remove directories, deepest first; one that is not empty any more stays."""
        for key in keys:
            await access.prune(key)
            await self.local.directory_gone(zone, key, for_good=False)

    async def _put(self, zone: str, question: Question, plan: Plan, listed: RootListing, began: float) -> StoredPlan:
        kept = stored(plan, listed, question, plan_id=new_id(), zone=zone, store=self._url(zone))
        await trio.to_thread.run_sync(self.plan_store.put, kept)
        self._made_at[kept.header.id] = began
        return kept

    def _url(self, zone: str) -> str:
        return self.stores[zone].store.url
