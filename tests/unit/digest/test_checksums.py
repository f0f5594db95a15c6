"""Checksums as S3 has them: their values, and what is made of the headers that carry them."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from holdfast.digest import CHECKSUM_ALGORITHMS, Checksum
from holdfast.remote.s3_checksums import checksum_in

CHECK = b"123456789"
VALUES = {
    "crc32": "cbf43926",
    "crc32c": "e3069283",
    "crc64nvme": "ae8b14860a799888",
    "md5": "25f9e794323b453885f5181f1b624d0b",
    "sha1": "f7c3bc1d808e04732adf679965ccc34ca7ae3441",
    "sha256": "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
    "sha512": "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274a"
    "d27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
    "xxhash64": "8cb841db40e6ae83",
}
"""The catalogues' values for the nine digits."""


def fits(algorithm: str, value: bytes, data: bytes, directory: Path) -> bool:
    path = directory / "file"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return Checksum(algorithm, value).fits(fd)
    finally:
        os.close(fd)


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


@pytest.mark.parametrize("algorithm", VALUES)
def test_the_value_is_the_one_that_everybody_computes(algorithm: str, tmp_path: Path) -> None:
    value = bytes.fromhex(VALUES[algorithm])
    assert fits(algorithm, value, CHECK, tmp_path)
    assert not fits(algorithm, value, CHECK[::-1], tmp_path)
    assert not fits(algorithm, value[::-1], CHECK, tmp_path)


@pytest.mark.parametrize("algorithm", CHECKSUM_ALGORITHMS)
def test_a_value_of_another_length_fits_nothing(algorithm: str, tmp_path: Path) -> None:
    assert not fits(algorithm, b"", b"", tmp_path)
    assert not fits(algorithm, bytes(1000), bytes(1000), tmp_path)


def test_a_large_file_is_read_to_its_end(tmp_path: Path) -> None:
    large = b"\1" * (3 * 2**20 + 1)
    assert fits("crc32", bytes.fromhex("a8bec1a5"), large, tmp_path)
    assert not fits("crc32", bytes.fromhex("a8bec1a5"), large[:-1] + b"\2", tmp_path)


@pytest.mark.parametrize("kind", [{}, {"x-amz-checksum-type": "FULL_OBJECT"}])
def test_a_checksum_of_the_whole_object_counts(kind: dict[str, str]) -> None:
    assert checksum_in({"x-amz-checksum-crc32": "y/Q5Jg==", **kind}) == Checksum("crc32", bytes.fromhex("cbf43926"))


def test_of_several_the_strongest_counts() -> None:
    headers = {f"x-amz-checksum-{name}": encoded(bytes.fromhex(VALUES[name])) for name in ("crc32", "sha256", "crc64nvme")}
    assert checksum_in(headers) == Checksum("sha256", bytes.fromhex(VALUES["sha256"]))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-amz-checksum-type": "FULL_OBJECT"},
        {"x-amz-checksum-algorithm": "CRC32"},
        {"x-amz-checksum-crc16": "y/Q="},
        {"x-amz-checksum-crc32": "y/Q5Jg==", "x-amz-checksum-type": "COMPOSITE"},
        {"x-amz-checksum-crc32": "y/Q5Jg==", "x-amz-checksum-type": "NEWER"},
        {"x-amz-checksum-crc32": "y/Q5Jg==-3"},
        {"x-amz-checksum-crc32": "y/Q5Jg==-3", "x-amz-checksum-type": "FULL_OBJECT"},
        {"x-amz-checksum-crc32": "y/Q5Jg"},
        {"x-amz-checksum-crc32": "cbf43926 "},
        {"x-amz-checksum-crc32": "ÿ" * 10},
        {"x-amz-checksum-sha256": "?", "x-amz-checksum-crc32": "y/Q5Jg=="},
    ],
)
def test_anything_else_is_no_checksum(headers: dict[str, str]) -> None:
    assert checksum_in(headers) is None
