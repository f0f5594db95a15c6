"""Space of deleted files: held over the loss of the last name, free soon after, and never held where that would show."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import Freeing
from tests.support.node import wait_until


@pytest.fixture
def freeing() -> Iterator[Freeing]:
    made = Freeing()
    yield made
    made.end()


@pytest.fixture
def directory_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def held(directory: Path) -> list[str]:
    """The names, some of them gone, of files in ``directory`` that a descriptor of this process leads to."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one of this listing
            continue
        if target.startswith(f"{directory}/"):
            found.append(target.removeprefix(f"{directory}/"))
    return found


def unlink(freeing: Freeing, directory_fd: int, name: bytes) -> None:
    with freeing.later(name, directory_fd, os.stat(name, dir_fd=directory_fd, follow_symlinks=False)):
        os.unlink(name, dir_fd=directory_fd)


def test_a_file_outlives_its_last_name_until_the_thread_has_it(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    with freeing.later(b"file", directory_fd, os.stat(tmp_path / "file")):
        os.unlink(tmp_path / "file")
        assert held(tmp_path) == ["file (deleted)"]
    wait_until(lambda: freeing.space() == (0, 0))
    assert held(tmp_path) == []


def test_a_file_with_another_name_and_a_large_one_are_not_held(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "linked").write_bytes(b"bytes")
    os.link(tmp_path / "linked", tmp_path / "link")
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    os.sync()  # the blocks are counted once they are given
    for name in (b"linked", b"large"):
        with freeing.later(name, directory_fd, os.stat(name, dir_fd=directory_fd)):
            os.unlink(name, dir_fd=directory_fd)
            assert held(tmp_path) == []


def test_a_symbolic_link_is_held_itself(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "target").write_bytes(b"bytes")
    os.symlink("target", tmp_path / "link")
    unlink(freeing, directory_fd, b"link")
    wait_until(lambda: freeing.space() == (0, 0))
    assert os.listdir(tmp_path) == ["target"]
    assert held(tmp_path) == []


def test_what_is_done_inside_may_fail(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    stat = os.stat(tmp_path / "file")
    with pytest.raises(FileNotFoundError), freeing.later(b"file", directory_fd, stat):
        os.rename(tmp_path / "missing", tmp_path / "file")
    wait_until(lambda: freeing.space() == (0, 0))
    os.unlink(tmp_path / "file")
    with pytest.raises(FileNotFoundError), freeing.later(b"file", directory_fd, stat):
        os.unlink(tmp_path / "file")
    assert held(tmp_path) == []


def test_no_more_than_some_hundreds_wait(
    freeing: Freeing, tmp_path: Path, directory_fd: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()
    close = os.close

    def close_when_told(fd: int) -> None:
        if threading.current_thread().name == "freeing":
            goes_on.wait()
        close(fd)

    monkeypatch.setattr(os, "close", close_when_told)
    try:
        for number in range(1000):
            (tmp_path / str(number)).write_bytes(b"bytes")
            unlink(freeing, directory_fd, b"%d" % number)
        assert 400 < len(held(tmp_path)) < 600
        space = freeing.space()
        assert 400 < space.files < 600
        assert space.files * 512 <= space.size_bytes <= space.files * 128 * 1024
    finally:
        goes_on.set()
    wait_until(lambda: freeing.space() == (0, 0))
    assert held(tmp_path) == []


def test_the_end_leaves_nothing_held(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_bytes(b"bytes")
        unlink(freeing, directory_fd, b"%d" % number)
    freeing.end()
    assert held(tmp_path) == []
    freeing.end()
    assert freeing.space() == (0, 0)
