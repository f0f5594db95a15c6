"""Files of which the disk has refused bytes: what the kernel tells once is known from then on."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from holdfast.errors import LostBytesError
from holdfast.store import check_nothing_lost, is_marked_lost, lost_bytes, mark_lost, sync_bytes, unmark_lost


@pytest.fixture
def file(workspace: Path) -> Iterator[int]:
    fd = os.open(workspace / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"bytes")
    yield fd
    os.close(fd)


def fail(fd: int) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("data_only", [False, True])
def test_a_file_that_has_lost_nothing_is_synced(file: int, *, data_only: bool) -> None:
    sync_bytes(file, data_only=data_only)
    check_nothing_lost(file)


def test_a_marked_file_has_lost_bytes_until_the_mark_is_removed(file: int) -> None:
    mark_lost(file)
    assert is_marked_lost(file)
    with pytest.raises(LostBytesError):
        check_nothing_lost(file)
    with pytest.raises(LostBytesError):
        sync_bytes(file)
    unmark_lost(file)
    sync_bytes(file)


@pytest.mark.parametrize(("refused", "error"), [(True, LostBytesError), (False, OSError)])
def test_a_sync_that_fails_is_a_loss_if_the_kernel_tells_so(
    file: int, monkeypatch: pytest.MonkeyPatch, refused: bool, error: type[Exception]
) -> None:
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(lost_bytes, "was_refused", lambda fd: refused)
    with pytest.raises(error):
        sync_bytes(file)


def test_where_nobody_can_be_asked_a_sync_that_fails_is_a_loss(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the daemon has no more descriptors."""
    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(lost_bytes, "_opened_again", lambda fd: None)
    with pytest.raises(LostBytesError):
        sync_bytes(file)


def test_what_has_no_disk_has_lost_nothing() -> None:
    reader, writer = os.pipe()
    check_nothing_lost(reader)
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        sync_bytes(reader)
    os.close(reader)
    os.close(writer)
