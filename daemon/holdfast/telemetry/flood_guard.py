"""The guard that keeps one subject, mostly a user, from flooding the event journal: events too many are only counted.

Each kind of event has an allowance for each subject, a bucket of ``BURST`` events that fills again by one every
``REFILL_SECONDS``. Events beyond it are counted, and told of in one summary a minute. The events of others have allowances
of their own. The number of subjects is bounded: those beyond ``MOST_SUBJECTS`` share one allowance for each kind.

Pure: time comes in with the events.
"""

from __future__ import annotations

from dataclasses import dataclass

BURST = 100
REFILL_SECONDS = 6.0
SUMMARY_SECONDS = 60.0
MOST_SUBJECTS = 1000
_OTHERS = "others"

Subject = int | str


@dataclass(slots=True)
class _Allowance:
    left: float
    at: float
    more: int = 0
    """The number of events since the last summary that were only counted."""
    since: float = 0.0
    """The time of the first of them."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of ``more`` events of ``kind`` by ``subject`` within ``seconds``."""

    kind: str
    subject: Subject
    more: int
    seconds: float


class FloodGuard:
    """The allowances of all subjects."""

    def __init__(self) -> None:
        self._allowances: dict[tuple[str, Subject], _Allowance] = {}

    def admits(self, kind: str, subject: Subject, now: float) -> bool:
        """Say whether an event may be recorded; otherwise it is counted."""
        allowance = self._allowance(kind, subject, now)
        allowance.left = min(float(BURST), allowance.left + max(0.0, now - allowance.at) / REFILL_SECONDS)
        allowance.at = now
        if allowance.left >= 1 and not allowance.more:  # a summary comes before the next event
            allowance.left -= 1
            return True
        if not allowance.more:
            allowance.since = now
        allowance.more += 1
        return False

    def summaries(self, now: float, *, all_of_them: bool = False) -> list[Summary]:
        """Return the summaries that are due, or all, and forget what they tell of."""
        due = []
        for (kind, subject), allowance in list(self._allowances.items()):
            if allowance.more and (all_of_them or now - allowance.since >= SUMMARY_SECONDS):
                due.append(Summary(kind, subject, allowance.more, max(0.0, now - allowance.since)))
                allowance.more = 0
            elif not allowance.more and now - allowance.at >= BURST * REFILL_SECONDS:
                del self._allowances[kind, subject]  # full again
        return due

    def _allowance(self, kind: str, subject: Subject, now: float) -> _Allowance:
        if (kind, subject) not in self._allowances and len(self._allowances) >= MOST_SUBJECTS:
            subject = _OTHERS
        return self._allowances.setdefault((kind, subject), _Allowance(float(BURST), now))
