"""Which files of a store's zone ended writers have left: by names, which the formats know, and by times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.checkpoints.formats import FORMATS
from holdfast.fs.remote_view.deleted_objects import Leftovers
from holdfast.store import Tree
from holdfast.zones import NameKind, NameTable

UUID = "0a1b2c3d-0000-4000-8000-00000000000f"
NAME = f".5.delta.{UUID}.tmp"


@pytest.fixture
def root_fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "checkpoints").mkdir()
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def leftovers(root_fd: int, **added: str) -> Leftovers:
    names = NameTable({NameKind[kind]: [pattern] for kind, pattern in added.items()}, FORMATS.name_kinds)
    return Leftovers(Tree(root_fd), names)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (NAME, True),
        (f".5.delta.{UUID}.TID12.tmp", True),
        (f".{NAME}.crc", True),
        (f"._metadata.inprogress.{UUID}", True),
        (f".part-0-0.inprogress.{UUID}", False),  # Flink's file sink comes back for it
        (".5.delta.crc", False),
        ("notes.tmp", False),
        (f"5.delta.{UUID}.tmp", False),
        ("temp-5", False),
    ],
)
def test_names_of_one_attempt_are_told_from_those_that_somebody_may_come_back_for(
    root_fd: int, name: str, is_one: bool
) -> None:
    assert leftovers(root_fd).has_name(b"checkpoints/q/" + name.encode()) is is_one


def test_a_name_that_is_configured_to_be_an_object_is_none(root_fd: int) -> None:
    assert not leftovers(root_fd, REPLACEABLE="q/*.tmp").has_name(b"checkpoints/q/" + NAME.encode())


def test_what_was_touched_later_is_left_out_and_so_is_what_is_no_file(root_fd: int, tmp_path: Path) -> None:
    path, found = tmp_path / "checkpoints" / NAME, leftovers(root_fd)
    path.write_bytes(b"x")
    os.utime(path, (1, 1))
    (path.parent / f".6{NAME}").mkdir()
    (path.parent / f".7{NAME}").symlink_to(path)
    at, changed_ns = b"checkpoints/" + NAME.encode(), path.stat().st_ctime_ns
    assert [each for each, _ in found.below(b"checkpoints", changed_ns)] == [at]
    assert list(found.below(b"checkpoints", changed_ns - 1)) == []
    assert found.at(at, changed_ns) is not None
    assert found.at(at, changed_ns - 1) is None
    assert found.at(at + b"/nothing", changed_ns) is None
