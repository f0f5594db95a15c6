"""Two drivers on one checkpoint: the second one's error, told in a sentence.

The mount creates the names of a checkpoint's logs once, so that one of two drivers wins each batch. The query of the other
one ends, harmlessly, with one of several errors of Spark's and Java's. None of them says what has happened.
"""

from __future__ import annotations

import re
from typing import TextIO

_IDENTIFIER = re.compile(r"^Identifier: (?!\[id)(\S+) \[id", re.MULTILINE)
_SIGNS = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
    "FileAlreadyExistsException",
    "(File exists)",
)
_LOG_FILE = re.compile(r"(/[^\s:]*)/((?:offsets|commits|sources/\d+)/\d+(?:\.compact)?|metadata)(?=[\s,.:;)]|$)")
_BATCH = re.compile(r"Multiple streaming jobs detected for (\d+)")
_LOCATION = re.compile(r"checkpointLocation=(?:file:/*(?=/))?([^\],\s]+)")


def explanation(error: str, query: str | None) -> str | None:
    """Return the sentence for a query's error; None if it is about something else. ``query`` is its name, if it has one."""
    if not any(sign in error for sign in _SIGNS):
        return None
    file, batch, location = (pattern.search(error) for pattern in (_LOG_FILE, _BATCH, _LOCATION))
    if not (file or batch):
        return None  # another file of the program's that exists
    checkpoint = file[1] if file else location[1] if location else ""
    first_with = file[2] if file else f"batch {batch[1]}" if batch else ""
    return (
        f"holdfast: the query {query or 'without a name'} has ended: another driver, here or on another node, works on the "
        f"same checkpoint{checkpoint and f' {checkpoint}'}, and was first with {first_with}. That one goes on, and nothing "
        "is damaged. Start this query again when the other one has ended, or give it a checkpoint of its own"
    )


class SecondDriverErrors:
    """Tells of each query once, on ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._names: dict[str, str | None] = {}
        self._told: set[str] = set()

    def started(self, run_id: str, name: str | None) -> None:
        """Remember what the query of a run is called."""
        self._names[run_id] = name

    def ended(self, run_id: str, error: str | None) -> None:
        """Look at why the query has ended."""
        self.tell(error or "", self._names.pop(run_id, None))

    def tell(self, error: str, query: str | None) -> None:
        """Tell why a query has ended if it is for another driver, and has not been told."""
        named = _IDENTIFIER.search(error)
        sentence = explanation(error, query or (named[1] if named else None))
        if sentence is not None and sentence not in self._told:
            self._told.add(sentence)
            self._stream.write(f"{sentence}\n")
            self._stream.flush()
