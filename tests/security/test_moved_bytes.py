"""Bytes that the kernel moves by itself, past read(2) and write(2): splice, tee, vmsplice, sendfile, copy_file_range."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NodeFactory
from tests.security.stores import refused, workdir_of
from tests.support.daemons.node import Node, wait_until
from tests.support.users.privileges import ALICE, MALLORY

_LIBC = ctypes.CDLL(None, use_errno=True)
DATA = b"bytes of Mallory's, " * 100
Move = Callable[[int, int], object]


def by_pipe(source: int, target: int) -> None:
    reader, writer = os.pipe()
    assert os.splice(source, writer, len(DATA)) == len(DATA)
    os.splice(reader, target, len(DATA))


def by_tee(source: int, target: int) -> None:
    first, second = os.pipe(), os.pipe()
    assert os.splice(source, first[1], len(DATA)) == len(DATA)
    assert _LIBC.tee(first[0], second[1], ctypes.c_size_t(len(DATA)), 0) == len(DATA)
    os.splice(second[0], target, len(DATA))


def by_vmsplice(source: int, target: int) -> None:
    """Give the pages of a mapping away."""
    reader, writer = os.pipe()
    _LIBC.mmap.restype = ctypes.c_void_p
    start = _LIBC.mmap(None, ctypes.c_size_t(len(DATA)), mmap.PROT_READ, mmap.MAP_SHARED, source, ctypes.c_long(0))
    vector = struct.pack("=QQ", start, len(DATA))
    assert _LIBC.vmsplice(writer, vector, ctypes.c_size_t(1), 0) == len(DATA)
    os.splice(reader, target, len(DATA))


MOVES: dict[str, Move] = {
    "splice": by_pipe,
    "tee": by_tee,
    "vmsplice": by_vmsplice,
    "sendfile": lambda source, target: os.sendfile(target, source, 0, len(DATA)),
    "copy_file_range": lambda source, target: os.copy_file_range(source, target, len(DATA)),
}


@pytest.fixture(params=[True, False], ids=["passthrough", "daemon-io"])
def node(make_node: NodeFactory, request: pytest.FixtureRequest) -> Node:
    return make_node(mount__passthrough=request.param).start()


@pytest.mark.parametrize("move", MOVES)
def test_bytes_that_the_kernel_moves_into_an_object_are_sent(node: Node, remote_files: Path, move: str) -> None:
    """Gain: an object here that differs from the one in the store, and from its digest."""
    (node.checkpoints / "open").mkdir()
    (node.checkpoints / "open").chmod(0o777)
    (node.checkpoints / "open/old").write_bytes(b"old" * 1000)
    (node.checkpoints / "open/old").chmod(0o666)
    source = workdir_of(node, MALLORY, "driver_m") / "tmp/source"

    def moves() -> None:
        source.write_bytes(DATA)
        for name, flags in (("new", os.O_CREAT), ("old", 0)):
            reading, writing = os.open(source, os.O_RDONLY), os.open(node.checkpoints / "open" / name, os.O_WRONLY | flags)
            MOVES[move](reading, writing)
            os.close(writing)
            os.close(reading)

    MALLORY.do(moves)
    assert (remote_files / "open/new").read_bytes() == DATA
    assert (remote_files / "open/old").read_bytes() == (node.checkpoints / "open/old").read_bytes()
    assert (remote_files / "open/old").read_bytes().startswith(DATA)


def test_what_is_open_for_reading_alone_stays_as_it_is(node: Node) -> None:
    """Gain: bytes of Mallory's in what she may read: the kernel has the very pages in its cache."""
    theirs = workdir_of(node, ALICE, "driver_a") / "readable"
    secret = b"what everybody may read" * 200
    ALICE.do(lambda: theirs.write_bytes(secret))
    source = workdir_of(node, MALLORY, "driver_m") / "tmp/source"

    def attack() -> None:
        source.write_bytes(DATA)
        target = os.open(theirs, os.O_RDONLY)
        for move in MOVES.values():
            reading = os.open(source, os.O_RDONLY)
            assert refused(partial(move, reading, target)) == errno.EBADF
        assert refused(lambda: mmap.mmap(target, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)) == errno.EACCES
        reader, writer = os.pipe()
        os.write(writer, bytes(1 << 16))  # pipes reuse what they know of a page (CVE-2022-0847)
        os.read(reader, 1 << 16)
        os.splice(target, writer, 1, offset_src=4)
        os.write(writer, DATA)

    MALLORY.do(attack)
    assert theirs.read_bytes() == secret
    with suppress(OSError), node.client() as client:
        assert all(step.problem is None for step in client.verify(str(theirs)))


def test_a_mapping_goes_on_when_rights_are_taken_away_and_nothing_new_is_opened(node: Node) -> None:
    """As everywhere in Linux, what is mapped stays mapped; each open is checked anew, whatever the kernel has cached."""
    (node.checkpoints / "open").mkdir()
    shared = node.checkpoints / "open/state"
    shared.write_bytes(b"state" * 1000)
    home = workdir_of(node, MALLORY, "driver_m")
    names = [shared, home / "localState/open/state"]

    def keeps() -> None:
        with shared.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        for name in names:
            assert name.read_bytes() == mapping[:]
        (home / "tmp/mapped").touch()
        wait_until((home / "tmp/taken").exists)
        assert mapping[:5] == b"state"
        for name in names:
            assert refused(partial(os.open, name, os.O_RDONLY)) in (errno.EACCES, errno.ENOENT)

    with ThreadPoolExecutor() as thread:
        keeping = thread.submit(MALLORY.do, keeps)
        wait_until((home / "tmp/mapped").exists)
        shared.parent.chmod(0o700)
        (home / "tmp/taken").touch()
        keeping.result()
