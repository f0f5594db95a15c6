"""What every execution of a plan has in common: the second look, the steps, the event at its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast.checkpoints.hooks.shelf import Outcome
from holdfast.checkpoints.hooks.stored import Header, Item, StoredPlan
from holdfast.checkpoints.reachability import Phase, Plan
from holdfast.errors import PlanOutdatedError
from holdfast.telemetry import EventLog

_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Step:
    """How far an execution of ``total`` entries is."""

    total: int
    outcome: Outcome

    @property
    def done(self) -> int:
        """How many entries have been dealt with."""
        return self.outcome.removed + self.outcome.gone + self.outcome.in_use


def confirmed(plan: StoredPlan, later: Plan, there: Collection[bytes], etags: Mapping[bytes, str]) -> tuple[Item, ...]:
    """Return what of the plan is still there, by a later plan and the names in its listing.

    Raises ``PlanOutdatedError`` when any of it would not go any more or is another version. Empty directories change by the
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


def tell(events: EventLog, header: Header, outcome: Outcome) -> None:
    """Say what an execution did."""
    events.emit(
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


def _is_same(item: Item, still: Collection[tuple[bytes, int, int]], etags: Mapping[bytes, str]) -> bool:
    name = item.name.encode()
    same_version = not item.etag or etags.get(name, "") in ("", item.etag)
    return same_version and (name, item.size_bytes, item.mtime_ns) in still
