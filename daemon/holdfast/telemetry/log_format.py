"""Lines of the log: one for each message, whatever names and answers of stores are in it."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

from holdfast.system.text import printable, printable_lines

_INDENT = " "  # no line of a traceback looks like the beginning of a message


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
