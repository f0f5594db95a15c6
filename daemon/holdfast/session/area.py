"""The session's directory: which mount it belongs to, and where its parts are.

``mount`` is written last when a mount starts and removed first when it ends: without it everything else is ignored.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.errors import ConfigurationError, StoreInUseError, TakeoverError
from holdfast.session.execution import ExecutionMark
from holdfast.session.open_table import OpenTable
from holdfast.session.records import SessionRecords, full
from holdfast.session.unlinks import UnlinkTable
from holdfast.system.directory_lock import lock_directory

_FORMAT = 2
_READABLE_FORMATS = (1, _FORMAT)
"""The readable formats. In 1, an open file has no count of running programs, and no orphan has its own directory."""
_UNREADABLE = "what is kept of the mount in {} can't be read: it is of another version, or damaged"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The mount that a session belongs to.

    ``mountpoint`` has no symbolic links, ``asked_for`` is the mountpoint as configured; ``device`` is the mount's st_dev,
    which is unique among the mounts that exist at one time; ``store`` is the local store's id.
    """

    mountpoint: str
    asked_for: str
    device: int
    store: str
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class SessionTables:
    """The parts of a session."""

    opens: OpenTable
    records: SessionRecords
    unlinks: UnlinkTable
    executed: ExecutionMark
    draining: Path
    """A file that exists while the node is being drained."""
    hang: Path
    """A note about the daemon before this one, if that hung and was replaced."""

    def close(self) -> None:
        """Close the files; they stay as they are."""
        self.opens.close()
        self.records.close()
        self.unlinks.close()
        self.executed.close()


class SessionArea:
    """The session in ``directory``. ``open_tables`` opens its tables; ``begin`` makes it the session of a new mount.

    It belongs to one daemon at a time, the one that has claimed it (``claim``), until that daemon ends.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._claimed = -1
        self.exchange = directory / "start"
        """The file in which the C module keeps the INIT exchange with the kernel."""
        self._identity = directory / "mount"

    @classmethod
    def beside(cls, control_socket: Path) -> SessionArea:
        """Return the session of the daemon with this control socket."""
        return cls(control_socket.with_suffix(".session"))

    def claim(self) -> None:
        """Claim the existing session, if there is one.

        Raises ``StoreInUseError`` if it belongs to a living daemon, ``ConfigurationError`` if it can't be opened.
        """
        with self._explained():
            if self._claimed < 0 and self.directory.exists():
                self._lock()

    def read(self) -> Identity | None:
        """Return which mount the existing session belongs to; None if there is none. Raises ``TakeoverError``."""
        try:
            identity = msgspec.json.decode(self._identity.read_bytes(), type=Identity)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            raise TakeoverError(_UNREADABLE.format(self.directory)) from None
        if identity.format not in _READABLE_FORMATS:
            raise TakeoverError(_UNREADABLE.format(self.directory))
        return identity

    def begin(self) -> None:
        """Empty the directory for a mount that is about to be made; create it if necessary.

        Raises ``SessionFullError``, ``ConfigurationError``, and ``StoreInUseError`` if it belongs to a living daemon.
        """
        with self._explained():
            while self._claimed < 0:
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock()
            self._empty()

    def sign(self, identity: Identity) -> None:
        """Record which mount this session belongs to, once the mount exists. Raises like ``begin``."""
        unfinished = self._identity.with_suffix(".new")
        with self._explained():
            unfinished.write_bytes(msgspec.json.encode(identity))
            unfinished.rename(self._identity)

    def sign_anew(self, identity: Identity) -> None:
        """Record this version's format in a kept session, so that no earlier version misreads it. Raises like ``begin``."""
        if identity.format != _FORMAT:
            self.sign(msgspec.structs.replace(identity, format=_FORMAT))

    def disown(self) -> None:
        """Invalidate the session, whichever mount it belongs to. Raises ``ConfigurationError`` and ``SessionFullError``."""
        with self._explained():
            self._identity.unlink(missing_ok=True)

    def open_tables(self) -> SessionTables:
        """Open the tables, with the content that was left there or empty.

        Raises ``TakeoverError`` if they can't be read, ``SessionFullError`` or ``ConfigurationError`` if not written.
        """
        with self._explained(), ExitStack() as opened:
            opens = OpenTable(self.directory / "opens")
            opened.callback(opens.close)
            unlinks = UnlinkTable(self.directory / "removals")
            opened.callback(unlinks.close)
            executed = ExecutionMark(self.directory / "executed")
            opened.callback(executed.close)
            records = SessionRecords(self.directory / "records")
            opened.pop_all()
        return SessionTables(opens, records, unlinks, executed, self.directory / "draining", self.directory / "hang")

    def end(self) -> None:
        """Remove everything: the mount is gone."""
        self._empty()
        with suppress(OSError):
            self.directory.rmdir()
        self.release()

    def release(self) -> None:
        """Release the claim; the content stays."""
        if self._claimed >= 0:
            os.close(self._claimed)
            self._claimed = -1

    def _empty(self) -> None:
        self.disown()
        for path in self.directory.glob("*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _lock(self) -> None:
        """Claim the directory, unless it is removed meanwhile. Raises ``OSError`` and ``StoreInUseError``."""
        try:
            fd = lock_directory(self.directory)
        except BlockingIOError:
            raise StoreInUseError(
                f"another daemon uses {self.directory}; give this one a socket in another directory with --socket"
            ) from None
        if os.fstat(fd).st_nlink:
            self._claimed = fd
        else:
            os.close(fd)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                raise full(self.directory) from None
            raise ConfigurationError(
                f"control.socket: can't write to {self.directory}, where the state of the mount is kept: "
                f"{problem.strerror}; make it a directory that this user may write to, or set control.socket (--socket)"
            ) from None
