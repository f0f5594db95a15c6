"""A mount that is served, and what becomes of it when the daemon ends."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.fs.fuse.session import Session
from holdfast.session.handover import Handover


@dataclass(frozen=True, slots=True)
class ServedMount:
    """The mount of ``session``; ``handover`` is how the next daemon finds it."""

    session: Session
    handover: Handover

    @property
    def outlives(self) -> bool:
        """True if the mount outlives this daemon: it can be taken over, and somebody holds its descriptor until then."""
        return self.session.device is not None and self.handover.is_held

    @property
    def takeover(self) -> str:
        """``takeover`` if the mount outlives this daemon, else ``no takeover:`` and the reason."""
        if self.session.device is not None and not self.handover.is_held:
            return f"no takeover: {self.handover.why_not_held}"
        return self.session.takeover

    @property
    def keeper_problem(self) -> str:
        """The reason why the keeper that is configured does not hold the mount; empty if it does, or none is."""
        return self.handover.keeper.problem if self.handover.keeper is not None else ""
