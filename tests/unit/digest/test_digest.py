"""Fingerprints: the same for buffers and files, whole and in chunks, and on their way through an object's metadata."""

from __future__ import annotations

import array
import itertools
import os
from pathlib import Path

import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.digest import (
    ChunkHasher,
    Fingerprint,
    Hasher,
    chunk_bytes_for,
    chunk_count,
    digest_of,
    fingerprint_of_buffer,
    fingerprint_of_file,
    position_of,
)
from holdfast.digest.hashing import METADATA_CHUNKS, METADATA_DIGEST

MIB = 2**20
SIZES = [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB, 20 * MIB]
SOME_BYTES = bytes(range(256)) * (20 * MIB // 256)
A_DIGEST = digest_of(b"holdfast")


# --- golden values: they are on the disk, in object stores, and in the kernel's hands over a restart ------------------


@pytest.mark.parametrize(
    ("name", "position"),
    [
        (b"", 811105335370900784),
        (b"a", 4157258607972684679),
        (b"offsets", 3334015806165758751),
        ("käse".encode(), 3525801019415197676),
        (b"x" * 255, 791038031555604327),
    ],
)
def test_positions_of_names_never_change(name: bytes, position: int) -> None:
    assert position_of(name) == position


@given(st.binary(max_size=255))
def test_a_position_leaves_room_in_a_signed_offset(name: bytes) -> None:
    assert 0 <= position_of(name) < 2**62


def test_digests_never_change() -> None:
    assert digest_of(b"").hex() == "99aa06d3014798d86001c324468d497f"
    assert digest_of(b"holdfast").hex() == "d725ef720e130d9fdf1a3c122ca59e45"


def test_metadata_never_changes() -> None:
    assert fingerprint_of_buffer(b"holdfast").metadata() == {"holdfast-digest": "xxh3-128:d725ef720e130d9fdf1a3c122ca59e45"}
    assert fingerprint_of_buffer(bytes(9 * MIB)).metadata() == {
        "holdfast-digest": "xxh3-128:45c37e31a48c2fa9c10d5dacd2c3147b",
        "holdfast-chunks": "6IGiXjfjexmRh4C5BVC/NA==",
    }


# --- geometry ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**62))
@example(8 * MIB * 64)
@example(8 * MIB * 64 + 1)
def test_there_are_at_most_64_chunks_each_a_power_of_two(size_bytes: int) -> None:
    chunk = chunk_bytes_for(size_bytes)
    count = chunk_count(size_bytes)
    assert chunk & (chunk - 1) == 0
    assert chunk >= 8 * MIB
    assert 1 <= count <= 64
    assert count * chunk >= size_bytes
    assert (count - 1) * chunk < size_bytes or size_bytes == 0
    assert chunk == 8 * MIB or count > 32, "no chunk is larger than it must be"


@given(st.integers(0, 2**62), st.integers(0, 2**62))
def test_a_larger_file_has_no_smaller_chunks(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert chunk_bytes_for(small) <= chunk_bytes_for(large)


# --- hashing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", SIZES)
def test_buffers_files_and_single_chunks_agree(size_bytes: int, tmp_path: Path) -> None:
    data = SOME_BYTES[:size_bytes]
    fingerprint = fingerprint_of_buffer(data)
    path = tmp_path / "file"
    path.write_bytes(data)
    with path.open("rb") as file:
        file.seek(size_bytes // 2)
        assert fingerprint_of_file(file.fileno()) == fingerprint
        assert file.tell() == size_bytes // 2
    assert fingerprint.digest == xxhash.xxh3_128_digest(data)
    chunk = chunk_bytes_for(size_bytes)
    assert len(fingerprint.chunks) == (chunk_count(size_bytes) if size_bytes > chunk else 0)
    for number, digest in enumerate(fingerprint.chunks):
        hasher = ChunkHasher()
        hasher.update(data[number * chunk : number * chunk + 5])
        hasher.update(data[number * chunk + 5 : (number + 1) * chunk])
        assert hasher.finish() == Fingerprint(b"", (digest,))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 20 * MIB), max_size=8))
def test_it_does_not_matter_how_the_bytes_come(cuts: list[int]) -> None:
    hasher = Hasher(len(SOME_BYTES))
    places = [0, *sorted(cuts), len(SOME_BYTES)]
    for start, end in itertools.pairwise(places):
        hasher.update(memoryview(SOME_BYTES)[start:end])
    assert hasher.finish() == fingerprint_of_buffer(SOME_BYTES)


def test_buffers_of_numbers_are_taken_as_their_bytes() -> None:
    numbers = array.array("Q", range(9 * MIB // 8))
    assert fingerprint_of_buffer(numbers) == fingerprint_of_buffer(numbers.tobytes())


def test_a_file_with_a_hole_has_the_digest_of_zeros(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 9 * MIB)
    with path.open("rb") as file:
        assert fingerprint_of_file(file.fileno()) == fingerprint_of_buffer(bytes(9 * MIB))


# --- metadata ---------------------------------------------------------------------------------------------------------


@st.composite
def fingerprints(draw: st.DrawFn) -> tuple[Fingerprint, int]:
    size_bytes = draw(st.integers(0, 2**50))
    count = chunk_count(size_bytes)
    chunks = draw(st.lists(st.binary(min_size=8, max_size=8), min_size=count, max_size=count)) if count > 1 else []
    return Fingerprint(draw(st.binary(min_size=16, max_size=16)), tuple(chunks)), size_bytes


@given(fingerprints())
def test_metadata_is_read_back_as_it_was_written(case: tuple[Fingerprint, int]) -> None:
    fingerprint, size_bytes = case
    assert Fingerprint.from_metadata(fingerprint.metadata(), size_bytes) == fingerprint


@given(fingerprints())
def test_metadata_fits_into_what_stores_allow(case: tuple[Fingerprint, int]) -> None:
    token = {"holdfast-put": "0" * 16}
    fields = {**case[0].metadata(), **token}
    assert sum(len(key) + len(value) for key, value in fields.items()) < 2048
    assert all(text.isascii() and text.isprintable() for pair in fields.items() for text in pair)


@given(st.text(), st.text(), st.integers(0, 2**50))
def test_hostile_metadata_is_no_fingerprint_and_no_error(digest: str, chunks: str, size_bytes: int) -> None:
    assert Fingerprint.from_metadata({METADATA_DIGEST: digest, METADATA_CHUNKS: chunks}, size_bytes) is None


@given(st.text() | st.text("0123456789abcdefABCDEF \n", min_size=28, max_size=36))
def test_a_digest_that_is_none_counts_as_none(text: str) -> None:
    found = Fingerprint.from_metadata({METADATA_DIGEST: f"xxh3-128:{text}"}, 1)
    assert found is None or found.metadata()[METADATA_DIGEST] == f"xxh3-128:{text}"


@given(st.text() | st.binary(max_size=600).map(lambda data: Fingerprint(b"", (data,)).metadata()[METADATA_CHUNKS]))
def test_damaged_chunk_digests_leave_the_digest_of_the_whole(text: str) -> None:
    size_bytes = 20 * MIB
    found = Fingerprint.from_metadata({METADATA_DIGEST: f"xxh3-128:{A_DIGEST.hex()}", METADATA_CHUNKS: text}, size_bytes)
    assert found is not None
    assert found.digest == A_DIGEST
    assert len(found.chunks) in (0, 3)


def test_chunk_digests_that_do_not_fit_the_size_are_left_out() -> None:
    fields = fingerprint_of_buffer(SOME_BYTES).metadata()
    whole = Fingerprint.from_metadata(fields, len(SOME_BYTES))
    assert whole is not None
    assert len(whole.chunks) == 3
    for size_bytes in (0, 1, 8 * MIB, 40 * MIB):
        assert Fingerprint.from_metadata(fields, size_bytes) == Fingerprint(whole.digest)


def test_an_object_without_metadata_or_of_another_algorithm_has_no_fingerprint() -> None:
    assert Fingerprint.from_metadata({}, 5) is None
    assert Fingerprint.from_metadata({METADATA_DIGEST: f"sha-256:{A_DIGEST.hex()}"}, 5) is None
    assert Fingerprint.from_metadata({METADATA_DIGEST: f"xxh3-128:{A_DIGEST.hex()[:-2]}"}, 5) is None


def test_a_file_that_grows_meanwhile_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, reads, preadv = tmp_path / "file", list[int](), os.preadv
    path.write_bytes(b"x" * 100)

    def grows(fd: int, buffers: list[memoryview], offset: int) -> int:
        os.truncate(path, 2**43)
        reads.append(offset)
        assert len(reads) < 10
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", grows)
    with path.open("rb") as file:
        assert fingerprint_of_file(file.fileno()) != fingerprint_of_buffer(b"x" * 100)
