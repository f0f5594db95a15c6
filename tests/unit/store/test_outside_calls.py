"""The process that makes calls outside: what is sent while it is slow waits for it, and nobody waits here."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import Answer, Freeing, OutsideCalls
from holdfast.store.staging import Trash
from tests.support.daemons.node import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it ends by itself
FEW_DESCRIPTORS = 64
PATIENCE_SECONDS = 60.0


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of processes that are started."""
    started: list[int] = []
    start = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*arguments, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", noted)
    return started


@pytest.fixture
def calls(processes: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[OutsideCalls]:
    """Outside calls whose process is stopped. It has few descriptors."""
    made = OutsideCalls()
    with monkeypatch.context() as patch:  # not of this process, in which servers for other tests may have more open
        patch.setattr(subprocess, "Popen", partial(subprocess.Popen, preexec_fn=_have_few_descriptors))
        made.start()
    os.kill(processes[0], signal.SIGSTOP)
    yield made
    with suppress(ProcessLookupError):
        os.kill(processes[0], signal.SIGCONT)
    made.close()


def _have_few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_DESCRIPTORS, FEW_DESCRIPTORS))


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def begin_until_refused(calls: OutsideCalls, fd: int) -> list[Answer]:
    answers: list[Answer] = []
    while len(answers) < 5000:
        try:
            answers.append(calls.begin("probe", [fd]))
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            return answers
    raise AssertionError("all were taken")


def test_what_is_sent_to_a_process_that_is_slow_is_done_later(calls: OutsideCalls, processes: list[int], fd: int) -> None:
    answers = begin_until_refused(calls, fd)
    assert len(answers) > 500
    assert not any(answer.has_come() for answer in answers)
    os.kill(processes[0], signal.SIGCONT)
    for answer in answers:
        assert answer.has_come(PATIENCE_SECONDS)
        answer.take()
    assert len(processes) == 1


def test_what_waits_for_a_process_that_is_killed_goes_to_the_next(
    calls: OutsideCalls, processes: list[int], fd: int
) -> None:
    answers = begin_until_refused(calls, fd)
    os.kill(processes[0], signal.SIGKILL)
    outcomes = []
    for answer in answers:
        assert answer.has_come(PATIENCE_SECONDS)
        try:
            answer.take()
            outcomes.append("done")
        except OSError:
            outcomes.append("lost")
    assert len(processes) == 2
    assert outcomes == sorted(outcomes, reverse=True), "what the first one had is lost, what came after is done"
    assert outcomes.count("done") >= 500


def test_the_trash_is_emptied_though_the_process_takes_no_more(
    calls: OutsideCalls, processes: list[int], fd: int, tmp_path: Path
) -> None:
    answers = begin_until_refused(calls, fd)
    freeing = Freeing(calls)
    (tmp_path / "trash" / "1").mkdir(parents=True)
    with open(tmp_path / "trash" / "1" / "large", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    trash_fd = os.open(tmp_path / "trash", os.O_RDONLY)
    trash = Trash(trash_fd, freeing)
    assert trash.empty() == 1
    assert trash.take_failures() == []
    assert os.listdir(tmp_path / "trash") == []
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(other, 0, 1 << 20)
    os.unlink(tmp_path / "other")
    freeing.close(other)
    wait_until(lambda: freeing.space() == (0, 0))
    freeing.end()
    os.close(trash_fd)
    for answer in answers:
        answer.close()


def test_a_file_counts_as_deleted_until_every_descriptor_that_was_sent_is_closed(tmp_path: Path) -> None:
    calls = OutsideCalls()
    calls.start()
    open_elsewhere = [os.open(tmp_path, os.O_TMPFILE | os.O_RDWR) for _ in range(20)]  # closing each takes a second
    answers = [calls.begin("close", [fd]) for fd in open_elsewhere]
    written = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(written, 0, 1 << 20)
    held = os.open(tmp_path / "file", os.O_PATH)
    answers.append(calls.begin("close", [written]))
    os.close(written)
    os.unlink(tmp_path / "file")
    freed = calls.begin("free", [held], 1 << 20)
    assert freed.has_come(PATIENCE_SECONDS)
    freed.take()
    assert os.fstat(held).st_blocks == 0
    for fd in (held, *open_elsewhere):
        os.close(fd)
    for answer in answers:
        answer.close()
    calls.close()
