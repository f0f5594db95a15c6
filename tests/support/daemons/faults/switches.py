"""The switches of faults: files that a test makes and removes, named by environment variables of the daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import trio

ARMED = "HOLDFAST_TEST_CRASH_ARMED"
"""Names the file that arms a fault, for one time: the fault removes it."""
HELD = "HOLDFAST_TEST_HELD"
"""Names the file that holds a step up for as long as it exists."""
SWITCHES = "HOLDFAST_TEST_SWITCHES"
"""Names the directory of several such files."""
_POLL_SECONDS = 0.01


def replace(owner: object, name: str, step: Callable[..., object]) -> None:
    """Replace a step, a function of a module or a class. Raises ``AttributeError`` if the daemon has none of this name."""
    getattr(owner, name)
    setattr(owner, name, step)


def disarm() -> bool:
    """Remove the file that ``ARMED`` names; say whether it was there."""
    try:
        os.unlink(os.environ[ARMED])
    except FileNotFoundError:
        return False
    return True


def exists(switch: Path, told: Path | None = None) -> bool:
    """Say whether a file exists. If so, tell the test by the file ``told``."""
    if not switch.exists():
        return False
    if told is not None:
        told.touch()
    return True


async def wait_until_gone(switch: Path, told: Path | None = None) -> None:
    """Wait while a file exists, and tell the test."""
    while exists(switch, told):  # noqa: ASYNC110 another process removes it
        await trio.sleep(_POLL_SECONDS)


def wait_in_thread_until_gone(switch: Path, told: Path) -> None:
    """Wait in a thread while a file exists, and tell the test."""
    while exists(switch, told):
        time.sleep(_POLL_SECONDS)
