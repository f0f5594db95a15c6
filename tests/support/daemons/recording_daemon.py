"""holdfastd that records what happens to cached files: in the file ``HOLDFAST_TEST_TRACE``, a line of JSON for each event.

``{"op": "write" | "read" | "delete", "path": …, "bytes": …}``: a file became a copy of an object (stored or fetched here),
was opened, or is gone. ``python -m tests.support.daemons.recording_daemon`` takes holdfastd's arguments.
"""

from __future__ import annotations

import json
import os
import sys
from functools import wraps
from typing import IO, Any

from holdfast import daemon
from holdfast.index import Entries, Entry, EntryState

TRACE = "HOLDFAST_TEST_TRACE"


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


def record(recorder: _Recorder) -> None:
    """Let the index tell the recorder."""
    put, used, discard = Entries.put, Entries.used, Entries.discard

    @wraps(put)
    def put_recorded(self: Any, inode: int, entry: Entry) -> None:
        put(self, inode, entry)
        recorder.put(entry)

    @wraps(used)
    def used_recorded(self: Any, inode: int, time_ns: int) -> None:
        used(self, inode, time_ns)
        recorder.used(self.get(inode))

    @wraps(discard)
    def discard_recorded(self: Any, inode: int) -> None:
        recorder.gone(self.get(inode))
        discard(self, inode)

    Entries.put, Entries.used, Entries.discard = put_recorded, used_recorded, discard_recorded  # type: ignore[method-assign]


if __name__ == "__main__":
    with open(os.environ[TRACE], "a") as trace:
        record(_Recorder(trace))
        sys.exit(daemon.main())
