"""A compressed file of Flink's changelog backend is as long as its chunks say, and a damaged one is refused."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoints.examination import examined
from holdfast.checkpoints.formats.flink.changelog_file import read_changelog_file
from holdfast.checkpoints.manifests import Manifest, Trouble, Unreadable, WholeLength
from holdfast.checkpoints.reachability import restores
from tests.support.checkpoints.roots import Root
from tests.support.flink.changelog import BEGIN, CHECKSUM, FULL, LAST, WHOLE, WHOLE_BYTES, chunk, job


def read(data: bytes) -> Manifest:
    return read_changelog_file(io.BytesIO(data), len(data))


def test_the_chunks_say_how_long_the_file_is_uncompressed() -> None:
    assert read(WHOLE) == WholeLength(WHOLE_BYTES)
    assert read(BEGIN) == WholeLength(1)


def test_a_file_that_is_not_compressed_has_its_own_length() -> None:
    assert read(b"\x00changes") == WholeLength(8)
    assert read(b"") == WholeLength(0)


@given(st.integers(1, len(WHOLE) - 1))
def test_a_file_that_was_cut_short_is_refused_or_shorter(kept_bytes: int) -> None:
    found = read(WHOLE[:kept_bytes])
    assert isinstance(found, Unreadable) or (isinstance(found, WholeLength) and found.size_bytes < WHOLE_BYTES)


@pytest.mark.parametrize(
    ("rest", "trouble"),
    [
        (b"\x00", Trouble.TRUNCATED),  # less than a chunk's head
        (chunk(0, FULL + b"x")[:-1], Trouble.TRUNCATED),
        (b"\x00\xff\xff\xff" + CHECKSUM + FULL, Trouble.TRUNCATED),
        (b"\x00\x03\x00\x00" + b"\x00" * 8, Trouble.MALFORMED),  # shorter than its checksum
        (chunk(0, b""), Trouble.MALFORMED),  # no length
        (chunk(0, b"\x80") + chunk(1, b"y"), Trouble.MALFORMED),  # a length that does not end within its chunk
        (chunk(0, b"\x81\x80\x04" + b"x"), Trouble.MALFORMED),  # a byte more than a chunk may have
        (chunk(0, b"\xff\xff\xff\x7f"), Trouble.MALFORMED),
        (chunk(1, b"y" * 65_537), Trouble.MALFORMED),
        (chunk(0, b"\x00"), Trouble.MALFORMED),  # of nothing
        (chunk(0xFE, b"padding"), Trouble.MALFORMED),  # Flink never pads
        (chunk(2, b"unknown"), Trouble.MALFORMED),
        (chunk(1, b"y") * (2**18 + 1), Trouble.TOO_LARGE),
    ],
)
def test_hostile_chunks_are_refused(rest: bytes, trouble: Trouble) -> None:
    found = read(BEGIN + rest)
    assert isinstance(found, Unreadable)
    assert found.trouble is trouble


def test_a_compressed_file_needs_the_identifier() -> None:
    found = read(b"\x01" + WHOLE[2:])
    assert isinstance(found, Unreadable)
    assert found.trouble is Trouble.MALFORMED


@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    assert isinstance(read(BEGIN + data), WholeLength | Unreadable)


@pytest.mark.parametrize(
    ("stored", "is_good"),
    [
        (WHOLE, True),
        (WHOLE[:-1], False),
        (WHOLE[: -len(LAST)], False),  # without its last chunk
        (b"", False),
        (b"\x00" + WHOLE[1:], False),
        (b"\x00" * WHOLE_BYTES, True),
        (b"\x00" * (WHOLE_BYTES - 1), False),
    ],
)
def test_a_checkpoint_can_be_restored_if_its_changelog_is_whole(stored: bytes, is_good: bool) -> None:
    root = Root()
    for name, content in job(stored).items():
        root.write(f"{'a' * 32}/{name}", content)
    (found,) = examined(restores(root.listing()), root.open)
    assert found.is_good is is_good, found.faults
