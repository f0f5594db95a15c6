"""Restraint: the fetching of standby copies gives way to everything else.

Before each request it waits while somebody waits for the store, but not for ever, and keeps to rates of its own. Before a
fetch it also waits while processes wait for a processor: to receive and to check bytes costs some, which a batch needs. The
requests come behind all others besides (``transfer.library_calls``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from holdfast.system.processor_pressure import ProcessorPressure
from holdfast.transfer import RemoteAccess
from holdfast.transfer.pace import Pace

_LOOKS_EVERY_SECONDS = 0.2
_MOST_LOOKS = 150
"""The number of looks after which a request is made although others are waiting: a copy must be finished some day."""
_MUCH_PRESSURE = 0.3
"""The share of the time in which some process waits for a processor from which on fetches are put off."""
_BYTES_A_LOOK = int(16 * 2**20 * _LOOKS_EVERY_SECONDS)
"""For the sake of the processors a fetch is put off by a look for so many bytes: at 16 MiB/s a copy can follow its state."""


@dataclass(slots=True)
class Restraint:
    """Holds back the requests for one store. ``fetches_waited_for`` is the number of fetches that somebody waits for."""

    access: RemoteAccess
    fetches_waited_for: Callable[[], int]
    processor_pressure: Callable[[], float] = field(default_factory=lambda: ProcessorPressure().share)
    bytes: Pace = field(default_factory=Pace)
    requests: Pace = field(default_factory=Pace)

    def limit(self, bytes_per_second: float, requests_per_second: float) -> None:
        """Fetch no faster than this from now on; 0: no limit."""
        self.bytes.set_rate(bytes_per_second)
        self.requests.set_rate(requests_per_second)

    async def take(self, size_bytes: int = 0) -> None:
        """Wait until a request for an object of ``size_bytes``, or one without a body, may be made."""
        await self.requests.take(1)
        if size_bytes:
            await self.bytes.take(size_bytes)
        looks_for_processors = size_bytes // _BYTES_A_LOOK
        for look in range(_MOST_LOOKS):
            must_wait = self.access.waiting or self.fetches_waited_for()
            if not must_wait and (look >= looks_for_processors or self.processor_pressure() < _MUCH_PRESSURE):
                return
            await trio.sleep(_LOOKS_EVERY_SECONDS)
