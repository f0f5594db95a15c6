"""Open descriptors of backing directories, by the directory's node id: those used last are kept open.

A directory that is kept open may be answered for without Python, from its descriptor (``DirectoryReplies``).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Protocol

_MOST_DESCRIPTORS = 2048


class DirectoryReplies(Protocol):
    """Answers requests about directories from their descriptors (``kernel.Connection``)."""

    def serve_directory_from(self, node: int, fd: int, seconds: float, *, whole: bool) -> None:
        """Answer for the directory with this node id from its descriptor, until told to stop.

        The kernel may keep the answers for ``seconds``. ``whole``: a name that is not in it does not exist.
        """

    def stop_serving_directory(self, node: int) -> None:
        """Stop answering from its descriptor, if that was being done."""


class DescriptorCache:
    """``O_PATH`` descriptors, each closed when it has not been used for long, or with its directory."""

    def __init__(self, replies: DirectoryReplies) -> None:
        self._replies = replies
        self._descriptors: OrderedDict[int, int] = OrderedDict()

    def get(self, node_id: int) -> int | None:
        """Return the descriptor of a directory, if it is open; it stays this object's."""
        fd = self._descriptors.get(node_id)
        if fd is not None:
            self._descriptors.move_to_end(node_id)
        return fd

    def keep(self, node_id: int, fd: int) -> None:
        """Take over the descriptor of a directory."""
        self._descriptors[node_id] = fd
        if len(self._descriptors) > _MOST_DESCRIPTORS:
            oldest_id, oldest = self._descriptors.popitem(last=False)
            self._close(oldest_id, oldest)

    def serve(self, node_id: int, fd: int, seconds: float, *, whole: bool) -> None:
        """Let requests about the directory be answered from its descriptor (``DirectoryReplies``) while it is open."""
        self._replies.serve_directory_from(node_id, fd, seconds, whole=whole)

    def forget(self, node_id: int) -> None:
        """Close the descriptor of a directory, if it is open."""
        fd = self._descriptors.pop(node_id, None)
        if fd is not None:
            self._close(node_id, fd)

    def close(self) -> None:
        """Close all descriptors."""
        for node_id, fd in self._descriptors.items():
            self._close(node_id, fd)
        self._descriptors.clear()

    def _close(self, node_id: int, fd: int) -> None:
        self._replies.stop_serving_directory(node_id)
        os.close(fd)
