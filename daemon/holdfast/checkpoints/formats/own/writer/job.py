"""The checkpoints of one job of a plain process: listing them, beginning the next one, and dropping old ones."""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from holdfast.checkpoints.formats.own.metadata import OwnMetadata, read_own_metadata
from holdfast.checkpoints.formats.own.writer.checkpoint import Checkpoint, metadata_file
from holdfast.checkpoints.manifests import Unreadable
from holdfast.errors import CheckpointError, UnreadableManifestError

_CHECKPOINT = re.compile(r"chk-(0|[1-9][0-9]{0,18})")
_EXCLUSIVE = re.compile(r"chk-(0|[1-9][0-9]{0,18})-.+")


class Job:
    """The checkpoints in ``checkpoints/NAME`` of the mount that ``workdir``, a working directory, lies in.

    Only the process that holds the working directory commits. ``checkpoints`` is another directory to keep jobs in.
    """

    def __init__(self, workdir: Path, name: str, checkpoints: Path | None = None) -> None:
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise CheckpointError(f"{name!r} is no name for a job: one or more components of a path")
        self.directory = (checkpoints or workdir.parent.parent / "checkpoints") / name
        self.local = workdir / "localState" / name
        self._read: dict[int, OwnMetadata] = {}
        self._begun: WeakSet[Checkpoint] = WeakSet()

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first.

        Raises ``UnreadableManifestError`` for metadata that can't be read: an older state is never handed out silently.
        """
        there = [number for number in self._numbers("", _CHECKPOINT) if metadata_file(self.directory, number).exists()]
        self._read = {number: metadata for number, metadata in self._read.items() if number in there}
        return [Checkpoint(self, self._metadata(number), is_complete=True) for number in sorted(there)]

    def newest(self) -> Checkpoint | None:
        """Return the newest complete checkpoint; None when there is none. Raises as ``all`` does."""
        found = self.all()
        return found[-1] if found else None

    def begin(self) -> Checkpoint:
        """Begin the next checkpoint. Its number is above all that were ever seen here, failed ones included."""
        newest = self.newest()
        seen = [*self._numbers("", _CHECKPOINT), *self._numbers("exclusive", _EXCLUSIVE)]
        base = self._read[newest.id] if newest is not None else None
        self.local.mkdir(parents=True, exist_ok=True)
        checkpoint = Checkpoint(self, OwnMetadata(max(seen, default=0) + 1, ()), base, is_complete=False)
        self._begun.add(checkpoint)
        return checkpoint

    def drop(self, checkpoint: int) -> None:
        """Drop a complete checkpoint: its metadata, then what only it has. What it shared is left to a sweep."""
        metadata = self._metadata(checkpoint)
        metadata_file(self.directory, checkpoint).unlink()
        self._read.pop(checkpoint, None)
        for file in metadata.files:
            if file.name.startswith("exclusive/"):
                (self.directory / file.name).unlink(missing_ok=True)
        with suppress(OSError):  # something else was left in it
            (self.directory / f"chk-{checkpoint}").rmdir()

    def retain(self, count: int) -> None:
        """Drop all complete checkpoints but the newest ``count``."""
        if count < 1:
            raise CheckpointError("at least one checkpoint has to be retained")
        for checkpoint in self.all()[:-count]:
            self.drop(checkpoint.id)

    def committed(self, metadata: OwnMetadata) -> None:
        """Keep local copies of a complete checkpoint's files, for a restart, and of those under way; remove all others."""
        self._read[metadata.checkpoint] = metadata
        needed = {file.name for file in metadata.files}
        needed.update(file.name for each in self._begun if not each.is_complete for file in each.files)
        for directory in ("shared", "exclusive"):
            for file in self._names(self.local / directory):
                if f"{directory}/{file}" not in needed:
                    (self.local / directory / file).unlink(missing_ok=True)

    def forget_local(self) -> None:
        """Remove this node's copies."""
        shutil.rmtree(self.local, ignore_errors=True)

    def _metadata(self, number: int) -> OwnMetadata:
        known = self._read.get(number)
        if known is None:
            file = metadata_file(self.directory, number)
            with file.open("rb") as stream:
                result = read_own_metadata(stream, file.stat().st_size)
            if isinstance(result, Unreadable):
                raise UnreadableManifestError(f"{file}: {result}")
            known = self._read[number] = result
        return known

    def _numbers(self, directory: str, pattern: re.Pattern[str]) -> list[int]:
        matches = (pattern.fullmatch(name) for name in self._names(self.directory / directory))
        return [int(match[1]) for match in matches if match is not None]

    @staticmethod
    def _names(directory: Path) -> list[str]:
        try:
            return [entry.name for entry in directory.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
