"""The place of plans between their making and their execution: a directory with two small files for each plan.

``ID.plan`` never changes once it is there. ``ID.outcome`` says how far its execution is; without one the plan waits. A crash
in the middle of an execution leaves the outcome ``executing``: the plan can be executed again, and goes on. A crash while a
plan is written leaves a file ``.new-…``, which goes when a plan comes a day later. Only the newest plans are kept.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.checkpoints.sweeps.plan_format import StoredPlan, read_plan
from holdfast.errors import NoSuchPlanError, PlanError, PlanOutdatedError
from holdfast.system.whole_file import new_name, write_whole

_KEPT_PLANS = 200
_LONGEST_WRITE_SECONDS = 86_400.0
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a plan. ``gone`` counts what others had taken before, ``in_use`` what this node has open or unsent."""

    state: Literal["waiting", "executing", "done"] = "waiting"
    removed: int = 0
    removed_bytes: int = 0
    gone: int = 0
    in_use: int = 0


_decode_outcome = msgspec.json.Decoder(Outcome).decode


def new_id() -> str:
    """Return an id for a plan: when it was made, and something random."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


class PlanStore:
    """The plans in ``directory``, which is made when the first one comes. All calls wait for the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._executing: set[str] = set()

    def put(self, plan: StoredPlan) -> None:
        """Store a plan."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._remove_left_overs()
        write_whole(self._file(plan.header.id, "plan"), plan.lines())
        for old in self.ids()[:-_KEPT_PLANS]:
            self._file(old, "plan").unlink(missing_ok=True)
            self._file(old, "outcome").unlink(missing_ok=True)

    def get(self, plan_id: str) -> StoredPlan:
        """Return a plan. Raises ``PlanError`` when there is none, or it can't be read."""
        try:
            with self._file(plan_id, "plan").open("rb") as stream:
                return read_plan(stream)
        except FileNotFoundError:
            raise NoSuchPlanError(f"there is no plan {plan_id}; 'holdfast checkpoint plans' lists those there are") from None

    def ids(self) -> list[str]:
        """Return the ids of all plans, oldest first."""
        return sorted(file.stem for file in self._directory.glob("*.plan") if _ID.fullmatch(file.stem))

    def outcome(self, plan_id: str) -> Outcome:
        """Return how far a plan is; what can't be read has not begun."""
        try:
            return _decode_outcome(self._file(plan_id, "outcome").read_bytes())
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Outcome()

    def note(self, plan_id: str, outcome: Outcome) -> None:
        """Write down how far a plan is."""
        write_whole(self._file(plan_id, "outcome"), [msgspec.json.encode(outcome)])

    @contextmanager
    def executing(self, plan_id: str) -> Iterator[None]:
        """Carry a plan out within the block.

        Raises ``PlanError`` when it is being carried out already, ``PlanOutdatedError`` when that is done.
        """
        if plan_id in self._executing:
            raise PlanError(f"the plan {plan_id} is being carried out at this moment")
        if self.outcome(plan_id).state == "done":
            raise PlanOutdatedError(f"the plan {plan_id} has been carried out; make a new one")
        self._executing.add(plan_id)
        try:
            yield
        finally:
            self._executing.discard(plan_id)

    def _remove_left_overs(self) -> None:
        """Remove what crashes have left. Another thread or the job ``orphans`` may still be writing a young file."""
        oldest = time.time() - _LONGEST_WRITE_SECONDS
        for file in self._directory.glob(new_name("*")):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime < oldest:
                    file.unlink()

    def _file(self, plan_id: str, ending: str) -> Path:
        if not _ID.fullmatch(plan_id):
            raise NoSuchPlanError(f"{plan_id!r} is no id of a plan; 'holdfast checkpoint plans' lists those there are")
        return self._directory / f"{plan_id}.{ending}"
