"""Reads manifests in a process of its own with little memory, as the daemon does: over a store's object, and from a file.

``python -m tests.support.checkpoints.limited_reader DIRECTORY BYTES`` takes lines, each a kind, reads ``DIRECTORY/manifest``
as one of that kind, and answers by ``read`` or the trouble. It may take BYTES more of address space than it has at the
start: past that it dies of ``MemoryError``.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from holdfast.checkpoints.formats import FORMATS
from holdfast.checkpoints.formats.spark.manifests import CHANGELOG, COMMIT, OFFSETS, SNAPSHOT
from holdfast.checkpoints.manifests import Manifest, ManifestKind, Unreadable
from holdfast.checkpoints.sweeps.object_stream import ObjectStream
from holdfast.remote.file_store import FileStore

KINDS = {kind.name: kind for kind in (*FORMATS.manifests, SNAPSHOT, CHANGELOG, COMMIT, OFFSETS)}


class LimitedReader:
    """That process, as a test sees it. When it has died there is another one for the next test."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> LimitedReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def read(self, kind: ManifestKind, data: bytes) -> str:
        """Return ``read``, or the value of the trouble. It fails if the process does."""
        (self._directory / "manifest").write_bytes(data)
        if self._process is None:
            command = [
                sys.executable,
                "-m",
                "tests.support.checkpoints.limited_reader",
                str(self._directory),
                str(self._limit_bytes),
            ]
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind.name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise AssertionError(f"reading {kind.name} ended the process:\n{self._end()[-3000:]}")
        return answer

    def _end(self) -> str:
        """End the process; return what it said of its death."""
        process, self._process = self._process, None
        if process is None:
            return ""
        process.kill()
        return process.communicate()[1]


def main(directory: Path, limit_bytes: int) -> None:
    """Serve until stdin ends."""
    store = FileStore(directory)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for line in sys.stdin:
        kind = KINDS[line.strip()]
        path = directory / "manifest"
        with path.open("rb") as file:
            from_file = _outcome(kind.read(file, path.stat().st_size))
        if path.stat().st_size:
            stream = ObjectStream(store, "manifest")
            from_store = _outcome(kind.read(cast(BinaryIO, stream), stream.size_bytes))
            assert from_store == from_file
        sys.stdout.write(f"{from_file}\n")
        sys.stdout.flush()


def _outcome(manifest: Manifest) -> str:
    return manifest.trouble.value if isinstance(manifest, Unreadable) else "read"


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
