"""Threads in uninterruptible sleep, as /proc shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.system import blocked_threads as module
from holdfast.system.blocked_threads import blocked_threads


def add(
    proc: Path,
    process: int,
    thread: int,
    state: str,
    sleeps: int,
    name: str = "java",
    where: str = "rwsem_down_write_slowpath",
) -> None:
    """Show a thread as the kernel does (proc(5))."""
    directory = proc / str(process) / "task" / str(thread)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{thread} ({name}) {state} 1 {process} 0 -1 4194304\n")
    (directory / "wchan").write_text(where)
    (directory / "status").write_text(
        f"Name:\t{name}\nState:\t{state}\nvoluntary_ctxt_switches:\t{sleeps}\nnonvoluntary_ctxt_switches:\t9\n"
    )


def test_only_those_that_no_signal_wakes_are_told(tmp_path: Path) -> None:
    add(tmp_path, 10, 10, "S", 5)
    add(tmp_path, 10, 11, "D", 6)
    add(tmp_path, 20, 20, "R", 7)
    add(tmp_path, 20, 21, "D", 8, "a) S (b")
    (tmp_path / "self").mkdir()
    (tmp_path / "30/task/31").mkdir(parents=True)  # it ends meanwhile
    (tmp_path / "40").mkdir()
    assert blocked_threads(str(tmp_path)) == {11: 6, 21: 8}


@pytest.mark.parametrize("where", ["folio_wait_bit_common", "wait_on_page_bit_common", "__lock_page", "io_schedule"])
def test_who_waits_for_the_bytes_of_a_file_waits_for_nobody(tmp_path: Path, where: str) -> None:
    add(tmp_path, 10, 11, "D", 6, where=where)
    add(tmp_path, 10, 12, "D", 7, where="0")
    assert blocked_threads(str(tmp_path)) == {12: 7}


def test_who_looks_is_not_blocked() -> None:
    assert os.getpid() not in blocked_threads()


def test_no_more_are_looked_at_than_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_THREADS", 3)
    for thread in range(10, 20):
        add(tmp_path, thread, thread, "D", 1)
    assert len(blocked_threads(str(tmp_path))) == 3
