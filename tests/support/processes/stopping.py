"""Processes that stand still by SIGSTOP, which the kernel carries out a moment after it was sent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.daemons.node import wait_until
from tests.support.processes.children import family_of


def stop(*processes: int) -> None:
    """Stop processes; return when none of their threads runs any more."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    wait_until(lambda: stand_still(processes))


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Let a process, and all that it has started, stand still in this context; its connections stay open."""
    processes = family_of(pid)
    try:
        stop(*processes)
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


def stand_still(processes: Iterable[int]) -> bool:
    """Say whether all threads of processes are stopped: one that is in the kernel does what it is at before that."""
    return all(_states(process) <= {"T", "Z", "X"} for process in processes)


def _states(process: int) -> set[str]:
    states = set()
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it was about to end
            states.add((thread / "stat").read_text().rpartition(")")[2].split()[0])
    return states
