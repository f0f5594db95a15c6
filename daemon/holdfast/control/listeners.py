"""Unix sockets. Binding replaces a dead daemon's socket, and nothing else."""

from __future__ import annotations

import grp
import logging
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.control.doors import keep_descriptors_out
from holdfast.errors import ConfigurationError, StoreInUseError

_log = logging.getLogger("holdfast.control")
_EVERYBODY = 0o666
_CREDENTIALS = struct.Struct("iII")  # struct ucred
_ANSWER_SECONDS = 1.0
_TOO_LONG = "the path is too long for a socket; 107 bytes will do"


@contextmanager
def listening(path: Path, mode: int, group: str) -> Iterator[socket.socket]:
    """Listen on ``path``; remove the socket at the end. Unless ``mode`` lets everybody in, the socket belongs to ``group``.

    Raises ``ConfigurationError`` if no socket can be made there, and ``StoreInUseError`` if a daemon answers.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with _explained(path):
            _make_room(path)
            keep_descriptors_out(listener)
            listener.bind(str(path))
            ours = os.lstat(path)
        try:
            with _explained(path):
                _admit(path, mode, group)
            listener.listen()
            listener.setblocking(False)
            yield listener
        finally:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.lstat(path), ours):
                    path.unlink()


def _admit(path: Path, mode: int, group: str) -> None:
    path.chmod(mode)
    if os.geteuid() != 0 or mode == _EVERYBODY:
        return
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except KeyError:
        _log.warning("there is no group %s: only root may use %s", group, path)


def _make_room(path: Path) -> None:
    """Remove the socket of a dead daemon."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or not _is_abandoned(path):
        raise _impossible(path, "something else stands there")
    path.unlink()


def _is_abandoned(path: Path) -> bool:
    """Say whether no process listens on a socket. Raises ``StoreInUseError`` if a daemon may."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except (TimeoutError, BlockingIOError):
            pass  # its backlog is full
        except OSError:
            return False  # another kind of socket, or another user's
        else:
            listened, _, _ = _CREDENTIALS.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if _has_ended(listened):
                return True  # its doorkeeper is about to end too
    raise StoreInUseError(f"another daemon answers on {path}; give this one a socket in another directory with --socket")


def _has_ended(pid: int) -> bool:
    """Say whether the process that listened is gone. One in another process namespace is 0, and counts as there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise _impossible(path, problem.strerror or _TOO_LONG) from None


def _impossible(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"control.socket: can't listen on {path}: {reason}; set control.socket (--socket)")
