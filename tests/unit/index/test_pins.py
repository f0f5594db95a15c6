"""Pins: what they cover, and that they outlive a daemon, a lost index and a damaged file."""

from __future__ import annotations

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
