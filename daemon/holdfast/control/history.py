"""The last hour in samples: what the counters said every ten seconds. In memory only; a new daemon begins anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.control.messages import Sample
from holdfast.wakeups import sleep_within

_PERIOD_SECONDS = 10.0
_KEPT = 361  # an hour: the difference of two samples is what was between them


class History:
    """Takes samples by ``sample``, which must be cheap: it is called on the event loop."""

    def __init__(self, sample: Callable[[], Sample]) -> None:
        self._sample = sample
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            self._samples.append(self._sample())
            await sleep_within(_PERIOD_SECONDS)

    def samples(self) -> list[Sample]:
        """Return the samples, oldest first, and one of now."""
        return [*self._samples, self._sample()]
