"""Sizes and modes as people write them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.units import ByteSize, FileMode, TcpAddress

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("500000000", 500_000_000),
        ("512MiB", 512 * 2**20),
        ("20GB", 20 * 10**9),
        ("20 gib", 20 * 2**30),
        ("1.5 KiB", 1536),
        (" 7k ", 7000),
        ("3T", 3 * 10**12),
        ("1b", 1),
        ("9007199254740993", 2**53 + 1),
        ("9223372036854775807", LARGEST),
    ],
)
def test_sizes_with_and_without_units(text: str, size_bytes: int) -> None:
    assert ByteSize.parse(text) == size_bytes


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "-5",
        "5 PB",
        "1e9",
        "1.5.5",
        "5Mi B",
        "0x10",
        "9" * 400,
        "9223372036854775808",
        -1,
        2**63,
        1.5,
        True,
        None,
        [],
    ],
)
def test_what_is_no_size_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(ValueError, match=r"is not a size: write .* as in 500000000, 512MiB or 20GB"):
        ByteSize.parse(value)


@given(st.integers(0, LARGEST))
def test_an_exact_size_is_read_back_as_it_was(size_bytes: int) -> None:
    assert ByteSize.parse(ByteSize(size_bytes).exact()) == size_bytes


@given(st.integers(0, 2**20), st.sampled_from(["", "k", "K", "ki", "MiB", "gb", "T"]))
def test_a_unit_is_a_factor(number: int, unit: str) -> None:
    assert ByteSize.parse(f"{number}{unit}") == number * ByteSize.parse(f"1{unit}")


@given(st.text())
def test_any_text_is_a_size_or_an_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= ByteSize.parse(text) <= LARGEST


def test_sizes_are_shown_in_the_unit_that_people_read() -> None:
    shown = [str(ByteSize(size)) for size in (0, 1023, 1024, 1536, 2**30, 3 * 2**41)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "6.0 TiB"]


def test_exact_sizes_take_the_largest_unit_that_loses_nothing() -> None:
    assert [ByteSize(size).exact() for size in (0, 1000, 1024, 1536, 2**30)] == ["0", "1000", "1KiB", "1536", "1GiB"]


@pytest.mark.parametrize(("text", "mode"), [("0644", 0o644), ("755", 0o755), ("0o600", 0o600), ("02775", 0o2775), ("0", 0)])
def test_modes_are_octal(text: str, mode: int) -> None:
    assert FileMode.parse(text) == mode


@pytest.mark.parametrize("value", ["", "8", "0888", "rw-r--r--", "0x1ff", "-644", "17777", "6_4_4", " 644", 420, None])
def test_what_is_no_mode_is_refused_with_what_is_allowed(value: object) -> None:
    with pytest.raises(ValueError, match="write octal digits in quotes"):
        FileMode.parse(value)


@given(st.integers(0, 0o7777))
def test_a_mode_is_read_back_as_it_is_shown(mode: int) -> None:
    assert FileMode.parse(str(FileMode(mode))) == mode


@pytest.mark.parametrize(
    ("written", "meant", "parts"),
    [
        (":9464", "127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("10.0.0.7:80", "10.0.0.7:80", ("10.0.0.7", 80)),
        ("[::1]:9464", "[::1]:9464", ("::1", 9464)),
        ("[0::0]:1", "[::]:1", ("::", 1)),
    ],
)
def test_addresses_are_read_as_they_are_written(written: str, meant: str, parts: tuple[str, int]) -> None:
    address = TcpAddress.parse(written)
    assert (address, address.parts) == (meant, parts)


@pytest.mark.parametrize(
    "written", ["9464", "host:9464", "127.0.0.1", "127.0.0.1:0", ":65536", "::1:9464", "1.2.3:9", 9464, None]
)
def test_what_is_no_address_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        TcpAddress.parse(written)


def test_no_address_is_one_that_is_empty() -> None:
    assert not TcpAddress.parse("")
