"""Bytes that a disk, or a person, has spoilt: the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

_PAGE_BYTES = 4096


def spoilt(random: Random, data: bytes, pieces: Sequence[bytes]) -> bytes:
    """Return ``data`` with some bytes changed, cut out, doubled, or replaced by some of ``pieces``; perhaps cut short."""
    result = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(result) + 1)
        match random.choice(("change", "cut", "double", "insert", "replace", "end")):
            case "change" if at < len(result):
                result[at] ^= 1 << random.randrange(8)
            case "cut":
                del result[at : at + random.randint(1, 20)]
            case "double":
                result[at:at] = result[at : at + random.randint(1, 60)]
            case "insert":
                result[at:at] = random.choice(pieces)
            case "replace":
                result[at : at + 10] = random.choice(pieces)
            case "end" if random.random() < 0.3:
                del result[at:]
    return bytes(result)


def spoilt_pages(random: Random, data: bytes) -> bytes:
    """Return a file of pages in which some were flipped, lost, swapped, or never written."""
    result = bytearray(data)
    pages = len(result) // _PAGE_BYTES
    first, second = (slice(at * _PAGE_BYTES, (at + 1) * _PAGE_BYTES) for at in random.choices(range(pages), k=2))
    match random.choice(("flip", "head", "zero", "ones", "swap", "end")):
        case "flip":
            for _ in range(random.randint(1, 20)):
                result[random.randrange(len(result))] ^= 1 << random.randrange(8)
        case "head":
            for _ in range(random.randint(1, 4)):
                result[first.start + random.randrange(64)] ^= 1 << random.randrange(8)
        case "zero":
            result[first] = bytes(_PAGE_BYTES)
        case "ones":
            result[first] = b"\xff" * _PAGE_BYTES
        case "swap":
            result[first], result[second] = result[second], result[first]
        case "end":
            del result[random.randrange(len(result)) :]
    return bytes(result)


def replace_key(file: Path, old: bytes, new: bytes) -> None:
    """Exchange a key of an LMDB file for another of the same length, in its place: the records are not in order then."""
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new))
