"""Doubt about an index: the errors that say that it is damaged, the note that it may be, and the verification.

LMDB trusts its file. A damaged page may end the process that reads it (a failed assertion, SIGBUS), or keep it reading for
ever. So an index that may be damaged is verified before LMDB opens it: every page, read as a plain file.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import lmdb
from lmdb import verify

DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.DbsFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.ProblemError,
    lmdb.VersionMismatchError,
)
"""Raised for a file that is not an intact index. Other errors don't mean that the index is damaged."""
_PROOFS = (lmdb.CorruptedError, lmdb.CursorFullError, lmdb.PageFullError, lmdb.PageNotFoundError)
"""Never raised for an intact index, whatever its disk does."""

_verify = cast("Callable[[Path], list[str]]", verify.verify)
_NAME = "doubted"
_LONGEST_REASON_BYTES = 500
_log = logging.getLogger("holdfast.index")


class Doubt:
    """The file ``doubted`` beside the index: there while LMDB opens it, and once an error has said that it is damaged.

    A daemon that LMDB ends leaves it behind, and so it is there for the next start. The file is not synced: after a reboot
    the index is verified anyway.
    """

    def __init__(self, directory: Path) -> None:
        self._file = directory / _NAME

    def is_noted(self) -> bool:
        """Say whether the index is doubted."""
        return os.path.lexists(self._file)

    def reason(self) -> str:
        """Return the error that has proved that the index is damaged; empty if none has."""
        try:
            with self._file.open("rb") as file:
                return file.read(_LONGEST_REASON_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def note(self, problem: lmdb.Error | None = None) -> bool:
        """Have the next start doubt the index, because of ``problem`` if there is one; say whether the disk takes that."""
        reason = str(problem).encode() if isinstance(problem, _PROOFS) else b""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_TRUNC if reason else 0)
        try:
            fd = os.open(self._file, flags, 0o600)
            try:
                os.write(fd, reason[:_LONGEST_REASON_BYTES])
            finally:
                os.close(fd)
        except OSError as refusal:
            _log.warning("can't note in %s that the index is to be verified: %s", self._file, refusal.strerror)
        return self.is_noted()

    def clear(self) -> None:
        """Forget the doubt. If that fails, the next start verifies the index once more."""
        try:
            self._file.unlink(missing_ok=True)
        except OSError as problem:
            _log.warning("can't remove %s: %s; each start verifies the index until it is gone", self._file, problem.strerror)


def why_damaged(file: Path) -> str | None:
    """Verify every page of the index in ``file``, without LMDB; return what is wrong first, or None. Raises ``OSError``.

    A million files take 4 s.
    """
    try:
        problems = _verify(file)
    except OSError:
        raise
    except MemoryError:  # which says nothing of the index
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from None
    except Exception as problem:  # noqa: BLE001 what can't even be verified is no index, whatever the verification stumbles over
        return str(problem) or type(problem).__name__
    return problems[0] if problems else None
