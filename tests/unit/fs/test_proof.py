"""What proves that a file has the bytes of an object, when the index is lost."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.digest import Checksum, fingerprint_of_buffer, fingerprint_of_file
from holdfast.fs.integrity.proof import Proof, proof
from holdfast.remote import ObjectInfo
from holdfast.store import note_digest
from holdfast.telemetry import EventLog
from holdfast.transfer import HashingThreads
from tests.support.stores.scripted_access import ScriptedAccess

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


class Access(ScriptedAccess):
    """A store that has a checksum of its own, or none."""

    def __init__(self, own: Checksum | None) -> None:
        super().__init__(EventLog(lambda: 0.0))
        self.own = own
        self.questions = 0

    async def checksum(self, info: ObjectInfo) -> Checksum | None:
        self.questions += 1
        return self.own


async def found(
    file: int,
    *,
    etag: str = "",
    metadata: dict[str, str] | None = None,
    modified_ns: int = MODIFIED_NS,
    access: Access | None = None,
) -> Proof:
    info = ObjectInfo("key", len(DATA), etag, modified_ns, metadata or {})
    return await proof(file, fingerprint_of_file(file), info, access or Access(None), HashingThreads())


async def test_size_and_time_alone_prove_nothing(file: int) -> None:
    assert await found(file) is Proof.NONE


async def test_the_digest_in_the_store_does(file: int) -> None:
    metadata = fingerprint_of_buffer(DATA).metadata()
    assert await found(file, metadata=metadata, modified_ns=1) is Proof.SAME
    spoil(file)
    assert await found(file, metadata=metadata) is Proof.DIFFERENT


async def test_the_digest_noted_on_the_file_does(file: int) -> None:
    note_digest(file, fingerprint_of_buffer(DATA).digest)
    assert await found(file) is Proof.SAME
    assert await found(file, modified_ns=1) is Proof.DIFFERENT
    spoil(file)
    assert await found(file) is Proof.DIFFERENT


async def test_a_noted_digest_says_nothing_of_a_file_that_was_changed_since(file: int) -> None:
    note_digest(file, fingerprint_of_buffer(DATA).digest)
    os.utime(file, ns=(1, 1))
    assert await found(file, modified_ns=1) is Proof.NONE


@pytest.mark.promise("vouched-copies")
@pytest.mark.parametrize("form", ['"{}"', "{}"])
async def test_an_etag_that_is_the_md5_does(file: int, form: str) -> None:
    etag = form.format(hashlib.md5(DATA).hexdigest())
    assert await found(file, etag=etag) is Proof.SAME
    spoil(file)
    assert await found(file, etag=etag) is Proof.NONE


async def test_an_etag_of_an_object_in_parts_does_not(file: int) -> None:
    assert await found(file, etag=f'"{hashlib.md5(DATA).hexdigest()}-1"') is Proof.NONE


async def test_another_size_is_another_file(file: int) -> None:
    os.ftruncate(file, 3)
    os.utime(file, ns=(MODIFIED_NS, MODIFIED_NS))
    assert await found(file) is Proof.DIFFERENT


async def test_a_checksum_that_the_store_has_does(file: int) -> None:
    access = Access(Checksum("crc32", zlib.crc32(DATA).to_bytes(4, "big")))
    assert await found(file, access=access) is Proof.SAME
    spoil(file)
    assert await found(file, access=access) is Proof.DIFFERENT


async def test_the_store_is_asked_for_its_checksum_only_if_nothing_else_says_anything(file: int) -> None:
    access = Access(None)
    assert await found(file, modified_ns=1, access=access) is Proof.DIFFERENT
    assert await found(file, etag=hashlib.md5(DATA).hexdigest(), access=access) is Proof.SAME
    assert await found(file, metadata=fingerprint_of_buffer(DATA).metadata(), access=access) is Proof.SAME
    assert access.questions == 0
    assert await found(file, etag=hashlib.md5(b"encrypted").hexdigest(), access=access) is Proof.NONE
    assert access.questions == 1
