"""Counting FUSE requests by kind, from outside: the kernel's tracepoint ``fuse:fuse_request_send`` (Linux 6.10 and later).

So the requests of peers are counted in the same way as ours. FORGET is not seen: the kernel sends it by another way.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_EVENT = re.compile(r"fuse_request_send: connection (\d+) req \d+ opcode \d+ \((?:FUSE_)?(\w+)\)")
_LOST = re.compile(r"\[LOST (\d+) EVENTS\]")
_BUFFER_KIB = 32 * 1024


class RequestCounter:
    """Counts the requests that an action makes. There can be several at once, also in other processes."""

    def __init__(self, instance: Path) -> None:
        self._instance = instance

    @classmethod
    @contextmanager
    def made(cls) -> Iterator[RequestCounter | None]:
        """Make a trace of its own until the block ends; None where the kernel or one's rights don't allow it."""
        with tempfile.TemporaryDirectory(prefix="holdfast-trace-") as directory:
            command = ["mount", "-t", "tracefs", "none", directory]
            if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
                yield None
                return
            try:
                with _instance(Path(directory)) as instance:
                    yield cls(instance) if instance else None
            finally:
                subprocess.run(["umount", directory], check=True)

    def count(self, directory: Path, action: Callable[[], object]) -> Counter[str] | None:
        """Return the requests by kind that ``action`` makes to the file system of ``directory``; None if some went by."""
        (self._instance / "trace").write_text("")
        (self._instance / "tracing_on").write_text("1")
        try:
            action()
        finally:
            (self._instance / "tracing_on").write_text("0")
        return parsed((self._instance / "trace").read_text(errors="replace"), os.minor(directory.stat().st_dev))


def parsed(trace: str, connection: int) -> Counter[str] | None:
    """Count the requests of one connection in a trace, by kind; None when events were lost."""
    if _LOST.search(trace):
        return None
    return Counter(kind for number, kind in _EVENT.findall(trace) if int(number) == connection)


@contextmanager
def _instance(tracing: Path) -> Iterator[Path | None]:
    instance = tracing / "instances" / f"holdfast-bench-{os.getpid()}"
    event = instance / "events" / "fuse" / "fuse_request_send" / "enable"
    instance.mkdir()
    try:
        if not event.exists():
            yield None
            return
        (instance / "tracing_on").write_text("0")
        (instance / "buffer_size_kb").write_text(str(_BUFFER_KIB))
        event.write_text("1")
        yield instance
    finally:
        instance.rmdir()
