"""The samples of real checkpoints under ``tests/data/checkpoints`` (its README says how they were made)."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

DIRECTORY = Path(__file__).parents[2] / "data" / "checkpoints"
_NOT_OF_THE_CHECKPOINT = {"listing.txt", "expected.txt"}


@dataclass(frozen=True)
class SampleFile:
    size_bytes: int
    mtime_ns: int
    content: bytes | None
    """None where only the name, the size and the time were kept."""


@dataclass(frozen=True)
class Sample:
    """Files by their names, directories (without a slash at their ends), and what the engine says that metadata names."""

    files: dict[bytes, SampleFile]
    directories: dict[bytes, int]
    expected: dict[bytes, set[str]]

    def open(self, name: bytes) -> BinaryIO:
        content = self.files[name].content
        assert content is not None, name
        return io.BytesIO(content)

    def named(self, ending: bytes) -> Iterator[bytes]:
        return (name for name in sorted(self.files) if name.endswith(ending))


@cache
def sample(name: str) -> Sample:
    files: dict[bytes, SampleFile] = {}
    directories: dict[bytes, int] = {}
    with tarfile.open(DIRECTORY / f"{name}.tar.gz") as archive:
        members = {member.name: member for member in archive.getmembers()}
        texts = {each: _content(archive, members[each]).decode() for each in _NOT_OF_THE_CHECKPOINT & members.keys()}
        for line in texts.get("listing.txt", "").splitlines():
            path, size, mtime = line.encode().rsplit(b" ", 2)
            if path.endswith(b"/"):
                directories[path[:-1]] = int(mtime)
            else:
                files[path] = SampleFile(int(size), int(mtime), None)
        for path_text, member in members.items():
            path, mtime_ns = path_text.encode(), int(member.mtime * 1_000_000_000)
            if member.isdir():
                directories[path] = mtime_ns
            elif path_text not in texts:
                content = _content(archive, member)
                files[path] = SampleFile(len(content), mtime_ns, content)
    return Sample(files, directories, _expected(texts.get("expected.txt", "")))


def names() -> list[str]:
    return sorted(path.name.removesuffix(".tar.gz") for path in DIRECTORY.glob("*.tar.gz"))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _expected(text: str) -> dict[bytes, set[str]]:
    result: dict[bytes, set[str]] = {}
    lines: set[str] = set()
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "metadata":
            lines = result[rest.encode()] = set()
        else:
            lines.add(line)
    return result
