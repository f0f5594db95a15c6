"""Text from others (names of files and processes, answers of stores) made fit for one line of a terminal or a log.

Control characters, among them escape sequences and line breaks, and what reorders or hides text (bidirectional overrides,
zero-width characters) are written as Python writes them in a literal.
"""

from __future__ import annotations

import io
from typing import TextIO


def printable(text: str) -> str:
    """Return ``text`` with all that is no letter, digit, sign or plain space escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def printable_lines(text: str) -> str:
    """Return ``text`` like ``printable``, but with its line breaks."""
    return "\n".join(printable(line) for line in text.split("\n"))


def shown(name: bytes) -> str:
    """Return a name as messages can hold it, with escapes for bytes that are not UTF-8."""
    return name.decode(errors="backslashreplace")


def is_utf8(text: str) -> bool:
    """Say whether a path, as Python has it, consists of UTF-8 alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class PrintableStream(io.TextIOBase):
    """A text stream that escapes what is written to it, line by line: for what libraries write to stderr."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``, escaped."""
        self._stream.write(printable_lines(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream behind this one."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor behind it."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Say whether a terminal is behind it."""
        return self._stream.isatty()
