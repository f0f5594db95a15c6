"""A trace of what happens to cached files. It is no fault: the daemon is as it is, and only watched.

Each event is a line of JSON, ``{"op": "write" | "read" | "delete", "path": …, "bytes": …}``: a file became a copy of an
object (stored or fetched here), was opened, or is gone.
"""

from __future__ import annotations

import json
import os
from functools import wraps
from typing import IO, Any

from holdfast.index import Entries, Entry, EntryState
from holdfast.system.file_id import FileId
from tests.support.daemons.faults.switches import replace

TRACE = "HOLDFAST_TEST_TRACE"
"""Names the file that gets the trace."""


class _Recorder:
    """Writes the trace. A version of a file is known by its path and digest."""

    def __init__(self, trace: IO[str]) -> None:
        self._trace = trace
        self._known: dict[str, bytes] = {}

    def put(self, entry: Entry) -> None:
        if entry.state is EntryState.CLEAN and entry.names:
            path = os.fsdecode(entry.names[0].path)
            if self._known.get(path) != entry.digest:
                self._known[path] = entry.digest
                self._note("write", path, entry.size_bytes)

    def used(self, entry: Entry | None) -> None:
        if entry is not None and entry.names:
            self._note("read", os.fsdecode(entry.names[0].path), entry.size_bytes)

    def gone(self, entry: Entry | None) -> None:
        if entry is not None and entry.names:
            path = os.fsdecode(entry.names[0].path)
            self._known.pop(path, None)
            self._note("delete", path, entry.size_bytes)

    def _note(self, what: str, path: str, size_bytes: int) -> None:
        self._trace.write(json.dumps({"op": what, "path": path, "bytes": size_bytes}) + "\n")
        self._trace.flush()


def trace_cached_files() -> None:
    """Let the index tell what happens to cached files, in the file that ``TRACE`` names."""
    recorder = _Recorder(open(os.environ[TRACE], "a"))  # noqa: SIM115 until the process ends
    put, used, discard = Entries.put, Entries.used, Entries.discard

    @wraps(put)
    def put_recorded(self: Any, inode: FileId, entry: Entry) -> None:
        put(self, inode, entry)
        recorder.put(entry)

    @wraps(used)
    def used_recorded(self: Any, inode: FileId, time_ns: int) -> None:
        used(self, inode, time_ns)
        recorder.used(self.get(inode))

    @wraps(discard)
    def discard_recorded(self: Any, inode: FileId) -> None:
        recorder.gone(self.get(inode))
        discard(self, inode)

    replace(Entries, "put", put_recorded)
    replace(Entries, "used", used_recorded)
    replace(Entries, "discard", discard_recorded)
