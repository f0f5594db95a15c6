"""holdfastd that pauses after it has looked through a directory that is to be renamed, while ``pause`` is in
HOLDFAST_TEST_SWITCHES.

It tells so by a file ``paused``. ``python -m tests.support.daemons.pausing_walk_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from holdfast import daemon
from holdfast.fs.namespace.rename_directory import DirectoryRenames
from holdfast.fs.remote_view.fallback_guard import FallbackGuard

SWITCHES = "HOLDFAST_TEST_SWITCHES"
_POLL_SECONDS = 0.01


def paused_after(walk: Callable[..., bool], switches: Path) -> Callable[..., bool]:
    """Let the thread that has found nothing by ``walk`` wait while ``pause`` is there."""

    @wraps(walk)
    def pausing(*arguments: Any) -> bool:
        found = walk(*arguments)
        while (switches / "pause").exists():
            (switches / "paused").touch()
            time.sleep(_POLL_SECONDS)
        return found

    return pausing


if __name__ == "__main__":
    switches = Path(os.environ[SWITCHES])
    FallbackGuard._holds_closed = paused_after(FallbackGuard._holds_closed, switches)  # type: ignore[method-assign]
    DirectoryRenames._holds_others = paused_after(DirectoryRenames._holds_others, switches)  # type: ignore[method-assign]
    sys.exit(daemon.main())
