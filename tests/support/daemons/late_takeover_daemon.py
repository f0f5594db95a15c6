"""holdfastd that dies at a named point as ``crashing_daemon`` does, and whose next one takes over late.

``python -m tests.support.daemons.late_takeover_daemon`` takes holdfastd's arguments. While the file ``HOLDFAST_TEST_HELD``
exists, a daemon that takes over waits, before it reads a request; it tells so by a file with the extension ``.waits`` beside
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path

import trio

from holdfast import daemon
from holdfast.fs.takeover.reopening import Takeover
from tests.support.daemons.crashing_daemon import ARMED, POINT, arm, disarm, points_of

HELD = "HOLDFAST_TEST_HELD"
_POLL_SECONDS = 0.01


def take_over_late(is_held: Callable[[], bool], note: Callable[[], None]) -> None:
    """Let takeovers wait while ``is_held``; ``note`` is called when one does."""
    original = Takeover.run

    @wraps(original)
    async def late(self: Takeover) -> int:
        files = await original(self)
        if is_held():
            note()
        while is_held():  # noqa: ASYNC110 another process lets go
            await trio.sleep(_POLL_SECONDS)
        return files

    Takeover.run = late  # type: ignore[method-assign]


if __name__ == "__main__":
    for deadly_step in points_of(os.environ[POINT]):
        arm(deadly_step, partial(disarm, os.environ[ARMED]))
    held = Path(os.environ[HELD])
    take_over_late(held.exists, held.with_suffix(".waits").touch)
    sys.exit(daemon.main())
