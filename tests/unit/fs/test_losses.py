"""Files that have lost bytes: marked once, told of once, known until they are empty."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import FileBusyError, LostBytesError
from holdfast.fs.inodes.losses import Losses
from holdfast.store import is_marked_lost, lost_bytes
from holdfast.telemetry import EventLog


class _Hot:
    """Changes files at once, or never: ``problem``."""

    set_attribute, remove_attribute = staticmethod(os.setxattr), staticmethod(os.removexattr)

    def __init__(self) -> None:
        self.problem: Exception | None = None

    async def change(self, inode: int, change: Callable[[], None]) -> None:
        if self.problem is not None:
            raise self.problem
        change()


@pytest.fixture
def hot() -> _Hot:
    return _Hot()


@pytest.fixture
def losses(hot: _Hot, events: EventLog) -> Losses:
    nodes: Any = SimpleNamespace(of_backing=lambda inode: None)
    parts: Any = hot
    return Losses(parts, nodes, events)


@pytest.fixture
def file(workspace: Path) -> Iterator[int]:
    fd = os.open(workspace / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The answers of the kernel from now on: each once, and then that nothing was refused."""
    answers: list[bool] = []
    monkeypatch.setattr(lost_bytes, "was_refused", lambda fd: bool(answers and answers.pop()))
    return answers


@pytest.mark.parametrize("problem", [None, FileBusyError("held"), OSError(errno.EROFS, os.strerror(errno.EROFS))])
async def test_what_the_kernel_tells_once_is_known_until_the_file_is_empty(
    losses: Losses, hot: _Hot, file: int, events: EventLog, refused: list[bool], problem: Exception | None
) -> None:
    await losses.sync(file)
    refused.append(True)
    hot.problem = problem
    for _ in range(2):
        with pytest.raises(LostBytesError):
            await losses.sync(file)
        assert await losses.has_lost(file)
    assert events.counts["bytes-lost"] == 1
    assert is_marked_lost(file) == (problem is None)
    assert bool(losses.unmarked) == (problem is not None)
    hot.problem = None
    await losses.truncated(file)
    await losses.sync(file)
    assert not losses.unmarked


async def test_what_was_refused_of_bytes_that_are_gone_is_no_loss(losses: Losses, file: int, refused: list[bool]) -> None:
    refused.append(True)
    await losses.truncated(file)
    assert not await losses.has_lost(file)
