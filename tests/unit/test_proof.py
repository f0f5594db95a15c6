"""What proves that a file has the bytes of an object, when the index is lost."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.digest import fingerprint_of_buffer, fingerprint_of_file
from holdfast.fs.integrity.proof import Proof, proof
from holdfast.remote import ObjectInfo
from holdfast.store import note_digest

DATA = b"precious bytes"
MODIFIED_NS = 10**18


@pytest.fixture
def file(disk: Path) -> Iterator[int]:
    """A copy of the object: its bytes, its time."""
    path = disk / "copy"
    path.write_bytes(DATA)
    os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))
    fd = os.open(path, os.O_RDWR)
    yield fd
    os.close(fd)
    path.unlink()


def spoil(file: int) -> None:
    """Let the file have zeros, as after a power cut: its size and its times had been written out, its bytes had not."""
    os.pwrite(file, bytes(len(DATA)), 0)
    os.utime(file, ns=(MODIFIED_NS, MODIFIED_NS))


def found(file: int, *, etag: str = "", metadata: dict[str, str] | None = None, modified_ns: int = MODIFIED_NS) -> Proof:
    info = ObjectInfo("key", len(DATA), etag, modified_ns, metadata or {})
    return proof(file, fingerprint_of_file(file), info)


def test_size_and_time_alone_prove_nothing(file: int) -> None:
    assert found(file) is Proof.NONE


def test_the_digest_in_the_store_does(file: int) -> None:
    metadata = fingerprint_of_buffer(DATA).metadata()
    assert found(file, metadata=metadata, modified_ns=1) is Proof.SAME
    spoil(file)
    assert found(file, metadata=metadata) is Proof.DIFFERENT


def test_the_digest_noted_on_the_file_does(file: int) -> None:
    note_digest(file, fingerprint_of_buffer(DATA).digest)
    assert found(file) is Proof.SAME
    assert found(file, modified_ns=1) is Proof.DIFFERENT
    spoil(file)
    assert found(file) is Proof.DIFFERENT


def test_a_noted_digest_says_nothing_of_a_file_that_was_changed_since(file: int) -> None:
    note_digest(file, fingerprint_of_buffer(DATA).digest)
    os.utime(file, ns=(1, 1))
    assert found(file, modified_ns=1) is Proof.NONE


@pytest.mark.parametrize("form", ['"{}"', "{}"])
def test_an_etag_that_is_the_md5_does(file: int, form: str) -> None:
    etag = form.format(hashlib.md5(DATA).hexdigest())
    assert found(file, etag=etag) is Proof.SAME
    spoil(file)
    assert found(file, etag=etag) is Proof.NONE


def test_an_etag_of_an_object_in_parts_does_not(file: int) -> None:
    assert found(file, etag=f'"{hashlib.md5(DATA).hexdigest()}-1"') is Proof.NONE


def test_another_size_is_another_file(file: int) -> None:
    os.ftruncate(file, 3)
    os.utime(file, ns=(MODIFIED_NS, MODIFIED_NS))
    assert found(file) is Proof.DIFFERENT
