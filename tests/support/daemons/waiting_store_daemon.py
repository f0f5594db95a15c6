"""holdfastd that waits for its store while a file of this name is in the directory ``HOLDFAST_TEST_SWITCHES``:

``fetches``: after the first part of any file; ``puts``: before each PUT; ``answers``: after each PUT. It tells of the first
that waits by a file ``held``. ``python -m tests.support.daemons.waiting_store_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import os
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

import trio

from holdfast import daemon
from holdfast.transfer import fetch
from holdfast.transfer.store_requests import RemoteAccess

SWITCHES = "HOLDFAST_TEST_SWITCHES"
_POLL_SECONDS = 0.01


def wait_in_fetches(switches: Path) -> None:
    """Let no more than one part of all files come while ``fetches`` is there."""
    original = fetch._read_part
    came: list[object] = []

    @wraps(original)
    def read_part(*arguments: Any) -> Any:
        came.append(None)
        while len(came) > 1 and (switches / "fetches").exists():
            (switches / "held").touch()
            time.sleep(_POLL_SECONDS)
        return original(*arguments)

    fetch._read_part = read_part  # type: ignore[assignment]


def wait_in_puts(switches: Path) -> None:
    """Let PUTs wait."""
    original = RemoteAccess.write_once

    async def hold(switch: str) -> None:
        while (switches / switch).exists():
            (switches / "held").touch()
            await trio.sleep(_POLL_SECONDS)

    @wraps(original)
    async def write_once(*arguments: Any) -> Any:
        await hold("puts")
        answer = await original(*arguments)
        await hold("answers")
        return answer

    RemoteAccess.write_once = write_once  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    directory = Path(os.environ[SWITCHES])
    wait_in_fetches(directory)
    wait_in_puts(directory)
    sys.exit(daemon.main())
