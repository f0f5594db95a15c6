"""holdfastd that pauses after it has looked for closed copies in a directory, while ``pause`` is in HOLDFAST_TEST_SWITCHES.

It tells so by a file ``paused``. ``python -m tests.support.pausing_walk_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import os
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

from holdfast import daemon
from holdfast.fs.remote_view.fallback_guard import FallbackGuard

SWITCHES = "HOLDFAST_TEST_SWITCHES"
_POLL_SECONDS = 0.01


def pause_after_walks(switches: Path) -> None:
    """Let the thread that has found no closed copy wait while ``pause`` is there."""
    original = FallbackGuard._holds_closed

    @wraps(original)
    def holds_closed(*arguments: Any) -> bool:
        found = original(*arguments)
        while (switches / "pause").exists():
            (switches / "paused").touch()
            time.sleep(_POLL_SECONDS)
        return found

    FallbackGuard._holds_closed = holds_closed  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    pause_after_walks(Path(os.environ[SWITCHES]))
    sys.exit(daemon.main())
