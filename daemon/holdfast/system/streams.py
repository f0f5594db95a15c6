"""The standard streams of a program: there, and able to take whatever it prints."""

from __future__ import annotations

import codecs
import io
import os
import sys
from contextlib import suppress

_HANDLER = "holdfast-plain"
_PLAIN = {"→": "->", "…": "...", "–": "-", "µ": "u", "×": "x", "▼": "v", "“": '"', "”": '"', "’": "'"}
"""Signs of messages and tables as other characters, where the encoding of the terminal has no such signs."""


def prepare() -> None:
    """Make sure that there are streams, and that no character is an error. A closed output is an error when written to."""
    sys.stdin = sys.stdin or os.fdopen(os.open(os.devnull, os.O_RDONLY))
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")  # EBADF, as for the closed descriptor itself
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    codecs.register_error(_HANDLER, _in_plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=_HANDLER)


def finish() -> None:
    """Write what is left in the buffers, or let it go nowhere: a failure was told, and is not told again at the exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            drop(stream.fileno())


def drop(fd: int) -> None:
    """Let what is written to ``fd`` go nowhere from now on."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, fd)
        os.close(nowhere)


def _in_plain(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    sign = problem.object[problem.start]
    return _PLAIN.get(sign, ascii(sign)[1:-1]), problem.start + 1
