"""holdfastd that some names harm: a lookup of a name hangs, or ends, the daemon that executes it, whichever daemon that is.

``python -m tests.support.daemons.poisoned_daemon`` takes holdfastd's arguments. A name that begins with ``hangs`` blocks the
event loop for good, one with ``dies`` is a SIGKILL. With ``-late`` in it, it does so in the second step of the request's
task. One with ``waits`` waits while the file ``HOLDFAST_TEST_HELD`` exists, without harm, and tells so by a file with the
extension ``.waits`` beside it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import trio

from holdfast import daemon
from holdfast.fs.namespace.lookup import Lookup

HELD = "HOLDFAST_TEST_HELD"
_POLL_SECONDS = 0.01


def harm(name: bytes) -> None:
    """Do what the name says."""
    if name.startswith(b"hangs"):
        threading.Event().wait()
    elif name.startswith(b"dies"):
        os.kill(os.getpid(), signal.SIGKILL)


def poison(is_held: Callable[[], bool], note: Callable[[], None]) -> None:
    """Let lookups of such names do harm, or wait while ``is_held``; ``note`` is called when one does."""
    find, find_nowait = Lookup.find, Lookup.find_nowait

    @wraps(find_nowait)
    def finding_at_once(self: Lookup, directory: Any, name: bytes, *arguments: Any) -> Any:
        if b"-late" in name or name.startswith(b"waits"):
            raise trio.WouldBlock
        harm(name)
        return find_nowait(self, directory, name, *arguments)

    @wraps(find)
    async def finding(self: Lookup, directory: Any, name: bytes, *arguments: Any) -> Any:
        await trio.lowlevel.checkpoint()
        harm(name)
        if not name.startswith(b"waits"):
            return await find(self, directory, name, *arguments)
        note()
        while is_held():  # noqa: ASYNC110 another process lets go
            await trio.sleep(_POLL_SECONDS)
        return None

    Lookup.find = finding  # type: ignore[method-assign, assignment]
    Lookup.find_nowait = finding_at_once  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    held = Path(os.environ[HELD])
    poison(held.exists, held.with_suffix(".waits").touch)
    sys.exit(daemon.main())
