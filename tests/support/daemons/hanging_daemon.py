"""holdfastd that hangs when it is told to: SIGUSR1 blocks its event loop, for good.

``python -m tests.support.daemons.hanging_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast import daemon

BLOCKED = "the event loop is blocked"


def block_event_loop(*_: object) -> None:
    """Wait for what never happens, in the thread of the event loop, which runs Python's signal handlers."""
    os.write(sys.stderr.fileno(), f"{BLOCKED}\n".encode())
    threading.Event().wait()


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, block_event_loop)
    sys.exit(daemon.main())
