"""A bound on the number of nodes: the kernel is asked to forget those that it keeps only because it has memory to spare.

The kernel holds a reference to each name that it has in its cache, and while it does, the node stays in the table. After a
``find`` over a million names that would be a gigabyte. A node that was forgotten costs one LOOKUP when it is used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from holdfast.fs.inodes.kernel import KernelNotifications
from holdfast.fs.inodes.node import ROOT_ID, Node
from holdfast.fs.inodes.node_table import NodeTable

_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_NODES_AT_ONCE = 1000
"""The number of nodes looked at in one step of the loop: about a millisecond."""


@dataclass(eq=False)
class NodeLimit:
    """Keeps the table at about ``most`` nodes while ``run`` runs; those in use stay, however many they are."""

    _nodes: NodeTable
    _kernel: KernelNotifications
    _most: int
    _asked_for: list[int] = field(init=False, default_factory=list)

    async def run(self) -> None:
        """Shrink the table when it has too many, each second, or less often while the kernel forgets nothing."""
        pause = _PAUSE_SECONDS
        while True:
            await self._nodes.wait_above(self._most)
            self._asked_for = []
            await self.shrink(len(self._nodes) - self._most + self._most // 8)
            await trio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS) if self._was_in_vain() else _PAUSE_SECONDS

    async def shrink(self, count: int) -> None:
        """Ask the kernel to forget the ``count`` oldest nodes."""
        for done in range(0, count, _NODES_AT_ONCE):
            oldest = self._nodes.oldest(min(_NODES_AT_ONCE, count - done))
            unused = [node for node in oldest if node.id != ROOT_ID and node.opened is None]
            ids = [node.id for node in unused]
            if not self._kernel.prune(ids):
                self._drop_names(unused)
            self._asked_for = self._asked_for or ids
            await trio.lowlevel.checkpoint()

    def _was_in_vain(self) -> bool:
        """Say whether most of the nodes that the kernel was asked to forget are still there, by the first of them."""
        kept = sum(self._nodes.known(node_id) is not None for node_id in self._asked_for)
        return 2 * kept > len(self._asked_for)

    def _drop_names(self, nodes: list[Node]) -> None:
        """Drop the names of files, for a kernel that can't be asked which nodes it uses. It would disturb directories."""
        for node in nodes:
            for parent, name in node.names() if not node.is_directory else ():
                self._kernel.invalidate(parent.id, name)
