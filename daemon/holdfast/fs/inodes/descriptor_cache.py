"""Open descriptors of backing directories, by node id, least recently used first out.

While a descriptor is open, requests about its directory may be answered from it without Python (``DirectoryReplies``).
"""

from __future__ import annotations

import os
import resource
from collections import OrderedDict

from holdfast.fs.inodes.kernel import DirectoryReplies

_MOST_DESCRIPTORS = 2048
_PART_OF_ALL = 8
"""The cache gets one in this many of the descriptors that the daemon may have, if these are few."""
_NO_NODE = 0


class DescriptorCache:
    """An LRU cache of ``O_PATH`` descriptors. A descriptor is closed on eviction or when its directory is removed."""

    def __init__(self, replies: DirectoryReplies) -> None:
        self._replies = replies
        self._descriptors: OrderedDict[int, int] = OrderedDict()
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(_MOST_DESCRIPTORS, limit // _PART_OF_ALL)
        self.last_id, self.last_fd = _NO_NODE, -1
        """The directory of the last ``get``, and its descriptor."""

    def get(self, node_id: int) -> int | None:
        """Return the descriptor of a directory if it is open. The cache keeps ownership."""
        fd = self._descriptors.get(node_id)
        if fd is not None:
            self._descriptors.move_to_end(node_id)
            self.last_id, self.last_fd = node_id, fd
        return fd

    def keep(self, node_id: int, fd: int) -> None:
        """Take ownership of the descriptor of a directory."""
        self._descriptors[node_id] = fd
        self.last_id = _NO_NODE
        if len(self._descriptors) > self._most:
            oldest_id, oldest = self._descriptors.popitem(last=False)
            self._close(oldest_id, oldest)

    def serve(self, node_id: int, fd: int, seconds: float, zone: int, *, whole: bool) -> None:
        """Let requests about the directory be answered from ``fd`` (``DirectoryReplies``) until it is closed."""
        self._replies.serve_directory_from(node_id, fd, seconds, zone, whole=whole, of_store=False)

    def serve_for_a_while(self, node_id: int, fd: int, seconds: float, zone: int) -> None:
        """Let requests about a store's directory be answered from ``fd`` for ``seconds``, or until it is closed."""
        self._replies.serve_directory_from(node_id, fd, seconds, zone, whole=False, of_store=True)

    def forget(self, node_id: int) -> None:
        """Close the descriptor of a directory, if it is open."""
        fd = self._descriptors.pop(node_id, None)
        if fd is not None:
            self.last_id = _NO_NODE
            self._close(node_id, fd)

    def close(self) -> None:
        """Close all descriptors."""
        for node_id, fd in self._descriptors.items():
            self._close(node_id, fd)
        self._descriptors.clear()
        self.last_id = _NO_NODE

    def _close(self, node_id: int, fd: int) -> None:
        self._replies.stop_serving(node_id)
        os.close(fd)
