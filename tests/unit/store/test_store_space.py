"""Space of deleted files: held over the loss of the last name, free soon after, and never held where that would show."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store import QUICKLY_FREED_BYTES, Freeing, OutsideCalls
from tests.support.daemons.node import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")  # it ends by itself


@pytest.fixture
def freeing() -> Iterator[Freeing]:
    calls = OutsideCalls()
    made = Freeing(calls)
    yield made
    made.end()
    calls.close()


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


def test_a_file_with_another_name_is_not_held(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "linked").write_bytes(b"bytes")
    os.link(tmp_path / "linked", tmp_path / "link")
    with freeing.later(b"linked", directory_fd, os.stat(tmp_path / "linked")):
        os.unlink(tmp_path / "linked")
        assert held(tmp_path) == []


def test_what_is_not_free_yet_counts_for_its_own_disk(tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    device, calls = os.stat(tmp_path).st_dev, OutsideCalls()
    freeing = Freeing(calls, [device])
    freeing._thread = threading.Thread(target=freeing._close_all)  # has not begun yet
    unlink(freeing, directory_fd, b"file")
    assert freeing.space(device).files == 1
    assert freeing.space() == freeing.space(device + 1) == (0, 0)
    freeing._thread.start()
    freeing.end()
    assert freeing.space(device) == (0, 0)
    calls.close()


def test_a_large_file_is_freed_by_another_process(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.write(bytes(1 << 20))
        os.fsync(file.fileno())  # the blocks are counted once they are given
    taken = os.stat(tmp_path / "large").st_blocks * 512
    unlink(freeing, directory_fd, b"large")
    assert held(tmp_path) == []
    assert freeing.space() in ((1, taken), (0, 0))
    wait_until(lambda: freeing.space() == (0, 0))


def test_a_large_file_that_has_got_another_name_stays_whole(freeing: Freeing, tmp_path: Path, directory_fd: int) -> None:
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    with open(tmp_path / "large", "rb+") as file:
        os.fsync(file.fileno())
    with freeing.later(b"large", directory_fd, os.stat(tmp_path / "large")):
        os.link(tmp_path / "large", tmp_path / "link")
        os.unlink(tmp_path / "large")
    wait_until(lambda: freeing.space() == (0, 0))
    assert (tmp_path / "link").read_bytes() == bytes(1 << 20)


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


@pytest.mark.parametrize("is_mapped", [True, False])
def test_a_large_file_that_somebody_still_has_mapped_keeps_its_bytes(
    is_mapped: bool, freeing: Freeing, tmp_path: Path, directory_fd: int
) -> None:
    """As with a mapping made in passthrough, which the daemon does not know of after the handle's last close."""
    size_bytes = 4 * QUICKLY_FREED_BYTES
    (tmp_path / "file").write_bytes(b"x" * size_bytes)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    watched = os.open(tmp_path / "file", os.O_PATH)
    mapping = mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ)
    os.close(fd)
    if not is_mapped:
        mapping.close()
    unlink(freeing, directory_fd, b"file")
    wait_until(lambda: freeing.space() == (0, 0))
    assert os.fstat(watched).st_size == (size_bytes if is_mapped else 0)
    if is_mapped:
        assert mapping[-1:] == b"x"
        mapping.close()
    os.close(watched)


def test_what_is_closed_and_keeps_a_name_never_counts_as_deleted(freeing: Freeing, tmp_path: Path) -> None:
    for number in range(20):
        fd = os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, 1 << 20)
        freeing.close(fd)
        assert freeing.space() == (0, 0)
    assert held(tmp_path) == []
    assert [os.stat(tmp_path / str(number)).st_size for number in range(20)] == [1 << 20] * 20
