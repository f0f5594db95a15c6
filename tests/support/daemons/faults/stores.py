"""Faults of stores and of what is in them: requests that wait, and a format that no daemon knows."""

from __future__ import annotations

import os
import threading
from functools import wraps
from pathlib import Path
from typing import Any

from holdfast.fs.file_io.prefetch import Prefetcher
from holdfast.process import serving
from holdfast.remote.file_store import FileStore
from holdfast.transfer import fetch, run_reading
from holdfast.transfer.store_requests import RemoteAccess
from tests.support.checkpoints.toy_format import WITH_TOY
from tests.support.daemons.faults.switches import SWITCHES, exists, replace, wait_in_thread_until_gone, wait_until_gone


def waiting_store() -> None:
    """Wait for the store while a file of this name is in the directory ``SWITCHES``:

    ``fetches``: after the first part of any file; ``puts``: before each PUT; ``answers``: after each PUT. The daemon tells
    so by a file ``held`` there.
    """
    switches = Path(os.environ[SWITCHES])
    _wait_in_fetches(switches)
    _wait_in_puts(switches)


def _wait_in_fetches(switches: Path) -> None:
    """Let no more than one part of all files come while ``fetches`` is there."""
    original = run_reading.read_run
    came: list[object] = []

    @wraps(original)
    def read_run(*arguments: Any) -> None:
        came.append(None)
        if len(came) > 1:
            wait_in_thread_until_gone(switches / "fetches", switches / "held")
        original(*arguments)

    for module in (run_reading, fetch):
        replace(module, "read_run", read_run)


def _wait_in_puts(switches: Path) -> None:
    original = RemoteAccess.write_once

    @wraps(original)
    async def write_once(*arguments: Any) -> Any:
        await wait_until_gone(switches / "puts", switches / "held")
        answer = await original(*arguments)
        await wait_until_gone(switches / "answers", switches / "held")
        return answer

    replace(RemoteAccess, "write_once", write_once)


def hung_library() -> None:
    """Hang for good in each LIST of a directory once the file ``hangs`` is in the directory ``SWITCHES``.

    The daemon tells so by a file ``held`` there, and gives requests a second when it is stopped.
    """
    switches = Path(os.environ[SWITCHES])
    original = FileStore.list_directory

    @wraps(original)
    def list_directory(*arguments: Any) -> Any:
        if exists(switches / "hangs", switches / "held"):
            threading.Event().wait()
        return original(*arguments)

    replace(FileStore, "list_directory", list_directory)
    vars(serving)["_LONGEST_STOP_SECONDS"] = 1.0


def toy_format() -> None:
    """Know one checkpoint format more, ``tests.support.checkpoints.toy_format``."""
    Prefetcher.__init__.__defaults__ = (WITH_TOY,)
