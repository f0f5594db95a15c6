"""Pins: what they cover, and that they outlive a daemon, a lost index and a damaged file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.index import Index
from holdfast.index.pins import Pins


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pins"


def test_a_pin_holds_what_it_names_and_all_below(file: Path) -> None:
    pins = Pins(file)
    pins.add(b"checkpoints/q")
    pinned = [b"checkpoints/q", b"checkpoints/q/a", b"checkpoints/q/a/b"]
    assert all(pins.cover(path) for path in pinned)
    assert not any(pins.cover(path) for path in (b"checkpoints", b"checkpoints/qq", b"checkpoints/p/q"))
    assert not pins.remove(b"checkpoints/q/a")
    assert pins.remove(b"checkpoints/q")
    assert not pins.remove(b"checkpoints/q")
    assert not any(pins.cover(path) for path in pinned)


def test_the_whole_mount_can_be_pinned(file: Path) -> None:
    pins = Pins(file)
    pins.add(b"")
    assert pins.all() == [b""]
    assert pins.cover(b"checkpoints/a")
    assert pins.remove(b"")
    assert not pins.cover(b"checkpoints/a")


def test_pins_survive_the_daemon_and_the_index(tmp_path: Path) -> None:
    index = Index.open(tmp_path, "store")
    for path in (b"blobs/a", b"blobs/a\n\xff", b"blobs/a"):
        index.pins.add(path)
    index.close()
    (tmp_path / "data.mdb").write_bytes(b"lost")
    index = Index.open(tmp_path, "store")
    assert index.renewed
    assert index.pins.all() == [b"blobs/a\n\xff", b"blobs/a"]
    assert index.pins.cover(b"blobs/a/b")
    index.close()


def test_a_damaged_file_is_moved_aside(file: Path) -> None:
    Pins(file).add(b"blobs")
    file.write_bytes(b"\xc1" + file.read_bytes())
    assert Pins(file).all() == []
    assert file.with_name("pins.old").exists()
    Pins(file).add(b"blobs")
    assert Pins(file).all() == [b"blobs"]


def test_a_directory_in_the_place_of_the_file_is_moved_aside(tmp_path: Path) -> None:
    """Nobody could start a daemon, and the error said to move the whole index away."""
    (tmp_path / "pins" / "deep").mkdir(parents=True)
    index = Index.open(tmp_path, "store")
    assert index.pins.all() == []
    assert (tmp_path / "pins.old" / "deep").is_dir()
    index.pins.add(b"blobs")
    index.close()
    assert Pins(tmp_path / "pins").all() == [b"blobs"]


@contextmanager
def reads_failing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Let each read of a whole file fail with this errno in the block."""

    def fail(_: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        yield


def test_a_file_that_the_disk_can_not_read_is_moved_aside(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pins(file).add(b"blobs")
    with reads_failing(monkeypatch, errno.EIO):
        assert Pins(file).all() == []
    assert file.with_name("pins.old").exists()


def test_a_file_that_can_not_be_opened_now_stays(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pins(file).add(b"blobs")
    with reads_failing(monkeypatch, errno.EMFILE), pytest.raises(OSError, match="Too many open files"):
        Pins(file)
    assert Pins(file).all() == [b"blobs"]
