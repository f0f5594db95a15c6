"""Common wake-ups of background work, because in an idle daemon a wake-up costs more than most of that work."""

from __future__ import annotations

import math

import trio

GRAIN_SECONDS = 5.0


def wakeup_within(seconds: float) -> float:
    """Return the last common wake-up (trio's time) within ``seconds``; their end if they are less than the grain."""
    time = trio.current_time() + seconds
    return time if seconds < GRAIN_SECONDS else math.floor(time / GRAIN_SECONDS) * GRAIN_SECONDS


async def sleep_within(seconds: float) -> None:
    """Sleep until ``wakeup_within(seconds)``: nearly so long each time, if called again and again."""
    await trio.sleep_until(wakeup_within(seconds))
