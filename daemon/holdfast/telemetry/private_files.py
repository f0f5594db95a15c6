"""Files of the daemon's that name files of users: log and event journal. Root and the daemon's group may read them.

A message is one line of the log, whatever names and answers of stores are in it.
"""

from __future__ import annotations

import errno
import logging
import logging.handlers
import os
import stat as stat_module
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.system.text import printable, printable_lines

MODE = 0o640
_INDENT = " "  # no line of a traceback looks like the beginning of a message


def withdraw(file: Path) -> None:
    """Take the rights of others from a file that an earlier version has written, if there is one.

    A device such as ``/dev/null`` keeps its rights: it has nothing of the daemon's, and all users of the machine need it.
    """
    with suppress(OSError):  # there is none, or it is another user's: whoever writes to it reports that
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat_module.S_ISCHR(mode):
                os.fchmod(fd, mode & MODE)
        finally:
            os.close(fd)


class PrivateLogFile(logging.handlers.RotatingFileHandler):
    """A log file of at most ``max_bytes``, and the one before it as ``NAME.1``. Raises ``OSError``.

    What the disk does not take is lost, and told of on stderr: once, until it takes a line again.
    """

    def __init__(self, file: Path, max_bytes: int) -> None:
        self._fails = self._is_told = False
        withdraw(file)
        withdraw(file.with_name(f"{file.name}.1"))
        super().__init__(file, maxBytes=max_bytes, backupCount=1)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._fails = False
        super().emit(record)
        self._is_told = self._fails

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 logging's name
        """Tell of a line that could not be written."""
        problem = sys.exc_info()[1]
        if not isinstance(problem, OSError):
            super().handleError(record)
            return
        self._fails = True
        if not self._is_told and sys.stderr is not None:
            sys.stderr.write(f"holdfastd: can't write to the log {self.baseFilename}: {problem.strerror}\n")

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not hold up the start
        if os.stat(os.path.dirname(self.baseFilename)).st_mode & stat_module.S_IWOTH:
            flags |= os.O_NOFOLLOW  # it would lead to whichever file of root's its maker chose
        fd = os.open(self.baseFilename, flags, MODE)
        if os.fstat(fd).st_uid not in (0, os.geteuid()):  # in a directory like /tmp: it would be theirs to read
            os.close(fd)
            raise PermissionError(errno.EPERM, "it belongs to another user", self.baseFilename)
        os.set_blocking(fd, True)
        return open(fd, "a", encoding=self.encoding, errors=self.errors)


class LineFormatter(logging.Formatter):
    """Escapes control characters and line breaks in messages; indents tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 logging's name
        """Return the message with its time, level and logger, on one line."""
        return printable(super().formatMessage(record))

    def formatException(  # noqa: N802 logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | Any
    ) -> str:
        """Return a traceback on indented lines."""
        return _INDENT + printable_lines(super().formatException(ei)).replace("\n", f"\n{_INDENT}")
