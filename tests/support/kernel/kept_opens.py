"""Open files that a daemon's death does not lose: what the kernel keeps of them, kept beside it in a file.

Invariants, at each moment at which the daemon may be killed:
- an id that the kernel may still be told of in an open reply is in the file;
- an id that is in the file as an open node's is not closed;
- an OPEN or RELEASE counts once, however often it is sent: its number is kept with the count.

At most one id is lost: one that was registered and not yet written down. Nobody uses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.kernel import Connection

_NUMBERS = 4096
"""More than there can be requests in flight, so that a number is still there when its request is sent again."""


@dataclass
class Opened:
    """An open node: its descriptor, how many handles there are, and its backing id if the kernel serves it."""

    fd: int
    handles: int
    backing_id: int | None


class KeptOpens:
    """All open nodes. ``reopen`` gives a descriptor of a node that an earlier daemon opened."""

    def __init__(self, connection: Connection, file: Path, reopen: Callable[[int], int]) -> None:
        self._connection = connection
        self._file = file
        self._opened: dict[int, Opened] = {}
        self._numbers: list[int] = []
        self._closing: tuple[int, int] | None = None
        if file.exists():
            nodes, self._numbers, self._closing = json.loads(file.read_text())
            for node, (handles, backing_id) in nodes.items():
                self._opened[int(node)] = Opened(reopen(int(node)), handles, backing_id)

    def __len__(self) -> int:
        return len(self._opened)

    def __contains__(self, node: int) -> bool:
        return node in self._opened

    def __getitem__(self, node: int) -> Opened:
        return self._opened[node]

    @property
    def ids(self) -> int:
        """How many nodes the kernel serves."""
        return len([opened for opened in self._opened.values() if opened.backing_id is not None])

    def open(self, request: int, node: int, path: Path, *, passthrough: bool) -> Opened:
        """Count one handle more."""
        opened = self._opened.get(node)
        if opened is None:
            fd = os.open(path, os.O_RDWR)
            opened = self._opened[node] = Opened(fd, 0, self._connection.register(node, fd) if passthrough else None)
        if self._is_new(request):
            opened.handles += 1
            self._keep()
        return opened

    def release(self, request: int, node: int) -> bool:
        """Count one handle less; say whether it was the last."""
        if not self._is_new(request):
            return False
        opened = self._opened[node]
        opened.handles -= 1
        if opened.handles == 0:
            del self._opened[node]
            self._closing = (node, opened.backing_id) if opened.backing_id is not None else None
        self._keep()
        self.finish()
        if opened.handles == 0:
            os.close(opened.fd)
        return opened.handles == 0

    def finish(self) -> None:
        """Close the id of the node released last. To be called after a takeover: the daemon before may not have done it."""
        if self._closing is not None:
            self._connection.unregister(*self._closing)
            self._closing = None

    def _is_new(self, request: int) -> bool:
        number = self._connection.number(request)
        if number in self._numbers:
            return False
        self._numbers = [*self._numbers[-_NUMBERS:], number] if number else []
        return True

    def _keep(self) -> None:
        nodes = {node: (opened.handles, opened.backing_id) for node, opened in self._opened.items()}
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps((nodes, self._numbers, self._closing)))
        unfinished.rename(self._file)
