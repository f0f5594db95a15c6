"""One checkpoint of a plain process: files are added while it is under way; it counts once it is committed.

In the directory of the job, in the store's zone of the mount::

    shared/<uuid>             what later checkpoints may refer to: SSTs
    exclusive/chk-7-<uuid>    what only this one has
    taskowned/<uuid>          what the process itself deletes; no sweep touches it
    chk-7/_metadata           what the checkpoint consists of

The same names in ``localState/`` hold this node's copies. Order: local copies, objects, metadata. A crash before the
metadata leaves files without references; a sweep takes them.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Protocol, Self

from holdfast.checkpoints.formats.own.metadata import OwnFile, OwnMetadata, own_metadata
from holdfast.checkpoints.formats.own.writer import transfers
from holdfast.errors import CheckpointError, WriteOnceError

_PARALLEL = 8
_SHARED, _EXCLUSIVE, _TASK_OWNED = "shared", "exclusive", "taskowned"


class Place(Protocol):
    """The directories of a job's checkpoints: in the store's zone, and in ``localState/``."""

    directory: Path
    local: Path

    def committed(self, metadata: OwnMetadata) -> None:
        """Take note that a checkpoint is complete."""
        ...


class Checkpoint:
    """A checkpoint under way, as a context manager, or a complete one (``is_complete``).

    ``base`` is the checkpoint before it: what it shares is not sent again. Leaving the block without ``commit`` aborts.
    """

    def __init__(self, place: Place, metadata: OwnMetadata, base: OwnMetadata | None = None, *, is_complete: bool) -> None:
        self.id = metadata.checkpoint
        self.is_complete = is_complete
        self._place = place
        self._files = {file.path: file for file in metadata.files}
        self._base = base
        self._known = {file.digest: file for file in base.files if _is_in(file, _SHARED)} if base else {}
        self._unsent: dict[str, OwnFile] = {}
        self._may_be_committed = False
        """True once the metadata was sent, until an answer says that it is not there."""

    @property
    def files(self) -> tuple[OwnFile, ...]:
        """Its files; ``path`` is the name that a file has for the process, ``name`` that of the object."""
        return tuple(self._files.values())

    @property
    def sent_bytes(self) -> int:
        """The number of bytes that a commit sends: those of the files that the store does not have yet."""
        return sum(file.size_bytes for file in self._unsent.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.is_complete:
            self.abort()

    # --- while it is under way ----------------------------------------------------------------------------------------

    def add_shared(self, source: Path, path: str | None = None) -> OwnFile:
        """Add a file that never changes again, and that later checkpoints may have too; ``path`` is its name here.

        It is hard-linked into ``localState/``. If the checkpoint before this one has the same bytes, they are not sent
        again. Raises ``CheckpointError`` for a name that is taken or leads elsewhere, ``OSError``.
        """
        name = f"{_SHARED}/{uuid.uuid4()}"
        file = self._added(source, path, name, lasting=True)
        known = self._known.get(file.digest)
        if known is None or known.size_bytes != file.size_bytes:
            return file
        shared = OwnFile(known.name, file.size_bytes, file.digest, file.path)
        (self._place.local / name).replace(self._place.local / known.name)
        self._unsent.pop(file.path)
        self._files[file.path] = shared
        return shared

    def add_exclusive(self, source: Path, path: str | None = None) -> OwnFile:
        """Add a file that only this checkpoint has, as it is now. Raises as ``add_shared`` does."""
        return self._added(source, path, f"{_EXCLUSIVE}/chk-{self.id}-{uuid.uuid4()}", lasting=False)

    def add_task_owned(self, source: Path, path: str | None = None) -> OwnFile:
        """Add a file that outlives its checkpoints: only the process itself deletes it. Raises as ``add_shared`` does."""
        return self._added(source, path, f"{_TASK_OWNED}/{uuid.uuid4()}", lasting=False)

    def commit(self) -> Self:
        """Send what the store does not have, then the metadata: after that the checkpoint is complete, before it is nothing.

        Raises ``WriteOnceError`` when another process has committed a checkpoint of this number, ``OSError`` when something
        can't be sent: then it can be tried again.
        """
        if self.is_complete:
            raise CheckpointError(f"checkpoint {self.id} is complete already")
        place = self._place
        _side_by_side(self._send, list(self._unsent.values()))
        metadata = OwnMetadata(self.id, self.files)
        temporary = place.local / f"chk-{self.id}.metadata"
        temporary.write_bytes(own_metadata(metadata))
        target = metadata_file(place.directory, self.id)
        self._may_be_committed = True
        try:
            transfers.place(temporary, target, f"._metadata.inprogress.{uuid.uuid4()}")
        except OSError as problem:
            if problem.errno != errno.EEXIST:
                raise
            if target.read_bytes() == own_metadata(metadata):  # sent before, and the answer was lost
                return self._completed(metadata)
            self._may_be_committed = False
            raise WriteOnceError(f"another process has committed checkpoint {self.id} to {place.directory}") from None
        finally:
            temporary.unlink(missing_ok=True)
        return self._completed(metadata)

    def abort(self) -> None:
        """Give the checkpoint up: what was made for it goes, here and in the store, as far as it can be reached.

        If a commit failed and may yet have succeeded, everything in the store stays; a sweep finds out what is needed.
        """
        directories = [self._place.local] if self._may_be_committed else [self._place.local, self._place.directory]
        for file in self._unsent.values():
            for directory in directories:
                with suppress(OSError):  # not sent yet, or left to a sweep
                    (directory / file.name).unlink()
        self._unsent.clear()
        self._files.clear()

    # --- when it is complete ------------------------------------------------------------------------------------------

    def restore(self, into: Path) -> None:
        """Make all its files in the directory ``into``, under the names that they had for the process.

        Shared files are hard-linked if they are here, and fetched otherwise: they must not be written to. The others are
        copies. Raises ``CheckpointError`` when it is not complete, or names what leads elsewhere; ``FileExistsError``.
        """
        if not self.is_complete:
            raise CheckpointError(f"checkpoint {self.id} is not complete")
        into.mkdir(parents=True, exist_ok=True)
        local, remote = self._place.local, self._place.directory
        targets = {file.name: into / _checked(file.path) for file in self.files}
        _side_by_side(
            lambda file: transfers.restore(
                local / file.name, remote / file.name, targets[file.name], lasting=_is_in(file, _SHARED)
            ),
            self.files,
        )

    # --- inside -------------------------------------------------------------------------------------------------------

    def _added(self, source: Path, path: str | None, name: str, *, lasting: bool) -> OwnFile:
        path = _checked(path or source.name)
        if self.is_complete:
            raise CheckpointError(f"checkpoint {self.id} is complete: nothing can be added")
        if path in self._files:
            raise CheckpointError(f"checkpoint {self.id} has a file {path} already")
        size_bytes, digest = transfers.capture(source, self._place.local / name, lasting=lasting)
        file = self._files[path] = self._unsent[path] = OwnFile(name, size_bytes, digest, path)
        return file

    def _completed(self, metadata: OwnMetadata) -> Self:
        self.is_complete = True
        self._send_what_went_with_the_base()
        self._unsent.clear()
        self._place.committed(metadata)
        return self

    def _send(self, file: OwnFile) -> None:
        transfers.send(self._place.local / file.name, self._place.directory / file.name)

    def _send_what_went_with_the_base(self) -> None:
        """If the checkpoint before was dropped meanwhile, a sweep may have taken what they share: send that again."""
        if self._base is None or metadata_file(self._place.directory, self._base.checkpoint).exists():
            return
        shared = [file for file in self.files if _is_in(file, _SHARED) and file.path not in self._unsent]
        _side_by_side(self._send, [file for file in shared if not (self._place.directory / file.name).exists()])


def metadata_file(directory: Path, checkpoint: int) -> Path:
    """Return where the metadata of a checkpoint is."""
    return directory / f"chk-{checkpoint}" / "_metadata"


def _is_in(file: OwnFile, directory: str) -> bool:
    return file.name.startswith(f"{directory}/")


def _checked(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise CheckpointError(f"{path!r} is no name for a file of a checkpoint: it leads elsewhere")
    return str(PurePosixPath(path))


def _side_by_side(work: Callable[[OwnFile], None], files: Iterable[OwnFile]) -> None:
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for _ in pool.map(work, files):
            pass
