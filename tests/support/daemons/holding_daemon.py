"""holdfastd that does unlink, rmdir and rename at once and answers late: not while the file ``HOLDFAST_TEST_HELD`` exists.

``python -m tests.support.daemons.holding_daemon`` takes holdfastd's arguments. Who asked learns of its answer late on a busy
machine too; here other requests are sure to be answered meanwhile.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import trio

from holdfast import daemon
from holdfast.fs.fuse.immediate_replies import ImmediateReplies
from holdfast.fs.fuse.operations import Operations

HELD = "HOLDFAST_TEST_HELD"
_POLL_SECONDS = 0.01


def answer_late(method: str, is_held: Callable[[], bool]) -> None:
    """Let a handler of pyfuse3's, which may wait, answer all requests of its kind, and wait before each answer."""
    original = getattr(Operations, method)

    @wraps(original)
    async def late(*arguments: Any) -> None:
        await original(*arguments)
        while is_held():  # noqa: ASYNC110 another process lets go
            await trio.sleep(_POLL_SECONDS)

    setattr(Operations, method, late)


def _leave_it(*_: object) -> None:
    raise trio.WouldBlock


if __name__ == "__main__":
    for handler in ("unlink", "rmdir", "rename"):
        answer_late(handler, partial(os.path.exists, os.environ[HELD]))
    for at_once in ("_unlink", "_rename", "_rename2"):
        setattr(ImmediateReplies, at_once, _leave_it)
    sys.exit(daemon.main())
