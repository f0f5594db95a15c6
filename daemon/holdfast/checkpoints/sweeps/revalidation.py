"""The common part of all executions of a plan: the second look, the steps, and the numbers that are counted and told."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.checkpoints.reachability import Phase, Plan
from holdfast.checkpoints.sweeps.plan_format import Item, StoredPlan
from holdfast.checkpoints.sweeps.plan_store import Outcome, PlanStore
from holdfast.errors import PlanOutdatedError
from holdfast.telemetry import Counters, EventLog

_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Step:
    """The progress of an execution of ``total`` entries."""

    total: int
    outcome: Outcome

    @property
    def done(self) -> int:
        """The number of entries that have been dealt with."""
        return self.outcome.removed + self.outcome.gone + self.outcome.in_use


def confirmed(plan: StoredPlan, later: Plan, there: Collection[bytes], etags: Mapping[bytes, str]) -> tuple[Item, ...]:
    """Return what of the plan is still there, by a later plan and the names in its listing.

    Raises ``PlanOutdatedError`` when any of it would not go any more or is another version. The reason may be another one:
    half of a sweep changes those of what is left, as of a checksum without its file. Empty directories change by the
    deletions themselves: that they are removed only when empty is enough.
    """
    still = {(each.name, each.size_bytes, each.mtime_ns) for each in later.entries}
    left = [item for item in plan.items if item.name.encode() in there]
    files = [item for item in left if item.step() is not Phase.DIRECTORY]
    changed = [item.name for item in files if not _is_same(item, still, etags)]
    if changed:
        named = ", ".join(changed[:_SHOWN_NAMES]) + (", …" if len(changed) > _SHOWN_NAMES else "")
        raise PlanOutdatedError(
            f"the world has changed since the plan {plan.header.id} was made: {len(changed)} of {len(plan.items)} "
            f"would not go any more ({named}); nothing was touched, make a new plan"
        )
    return tuple(left)


def check_nothing_new(plan: StoredPlan, later: Plan) -> None:
    """Raise ``PlanOutdatedError`` when a later plan would take something that the plan does not have."""
    planned = {item.name.encode() for item in plan.items}
    new = next((entry.name for entry in later.entries if entry.name not in planned), None)
    if new is not None:
        text = new.decode(errors="backslashreplace")
        raise PlanOutdatedError(
            f"{text} was written since the plan {plan.header.id} was made; nothing was touched, make a new plan"
        )


class Execution:
    """Counts how far one execution of a plan is, and notes it in the store. The caller holds ``plan_store.executing``."""

    def __init__(self, plan: StoredPlan, plan_store: PlanStore, counters: Counters, events: EventLog) -> None:
        self._plan = plan
        self._plan_store = plan_store
        self._counters = counters
        self._events = events
        self._outcome = Outcome(state="executing")

    def begin(self, left: Sequence[Item]) -> None:
        """Take note that the plan is confirmed: ``left`` are the items of it that are still there."""
        self._note(gone=len(self._plan.items) - len(left))

    def removed(self, items: Sequence[Item], *, gone: int = 0, in_use: int = 0) -> Step:
        """Count ``items`` as removed; ``gone`` others had gone by themselves, ``in_use`` others are in use and stay."""
        freed_bytes = sum(item.size_bytes for item in items)
        self._counters.objects_swept += len(items)
        self._counters.bytes_swept += freed_bytes
        before = self._outcome
        return self._note(
            removed=before.removed + len(items),
            removed_bytes=before.removed_bytes + freed_bytes,
            gone=before.gone + gone,
            in_use=before.in_use + in_use,
        )

    def done(self) -> Step:
        """Take note that all entries have been dealt with, and report the outcome as an event."""
        step = self._note(state="done")
        header, outcome = self._plan.header, step.outcome
        self._events.emit(
            "swept",
            what=header.kind,
            zone=header.zone,
            root=header.root,
            plan=header.id,
            removed=outcome.removed,
            bytes=outcome.removed_bytes,
            gone=outcome.gone,
            in_use=outcome.in_use,
        )
        return step

    def _note(self, **changes: int | str) -> Step:
        self._outcome = msgspec.structs.replace(self._outcome, **changes)
        self._plan_store.note(self._plan.header.id, self._outcome)
        return Step(len(self._plan.items), self._outcome)


def _is_same(item: Item, still: Collection[tuple[bytes, int, int]], etags: Mapping[bytes, str]) -> bool:
    name = item.name.encode()
    same_version = not item.etag or etags.get(name, "") in ("", item.etag)
    return same_version and (name, item.size_bytes, item.mtime_ns) in still
