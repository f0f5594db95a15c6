"""The past in samples of the counters: every ten seconds for an hour, every five minutes for a day.

They are in memory only; a new daemon begins anew.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable

from holdfast.control.messages import Sample
from holdfast.telemetry.wakeups import sleep_within

_PERIOD_SECONDS = 10.0
_KEPT = 361  # an hour: the difference of two samples is what was between them
_COARSE = 30  # one sample in so many is kept for a day
_KEPT_COARSE = 289


class History:
    """Takes samples by ``sample``, which must be cheap: it is called on the event loop."""

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample
        self._fine: deque[Sample] = deque(maxlen=_KEPT)
        self._coarse: deque[Sample] = deque(maxlen=_KEPT_COARSE)

    async def run(self) -> None:
        """Take samples until cancelled."""
        for number in itertools.count():
            sample = self._sample()
            self._fine.append(sample)
            if number % _COARSE == 0:
                self._coarse.append(sample)
            await sleep_within(_PERIOD_SECONDS)

    def samples(self, since: float = 0.0) -> list[Sample]:
        """Return the samples after ``since`` (seconds since the epoch), oldest first, and one of now."""
        begin = self._fine[0].time if self._fine else math.inf
        past = itertools.chain((sample for sample in self._coarse if sample.time < begin), self._fine)
        return [*(sample for sample in past if sample.time > since), self._sample()]
