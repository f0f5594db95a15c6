"""Long work on the event loop, cut into slices between which others have their turn."""

from __future__ import annotations

import time

import trio

from holdfast.system.waits import before_waiting

SLICE_SECONDS = 0.01
"""The time that others wait at most, apart from the piece of work that is under way then."""


class Slices:
    """``await slices.pause()`` after each piece of the work. It lets others have their turn once a slice is over."""

    def __init__(self) -> None:
        self._end = time.monotonic() + SLICE_SECONDS

    async def pause(self) -> None:
        """Let others go on if this work has taken long. What they may change must be looked at again."""
        if time.monotonic() > self._end:
            await before_waiting()
            await trio.lowlevel.checkpoint()
            self._end = time.monotonic() + SLICE_SECONDS
