"""Waits until the kernel has dropped names, but not for ever.

To drop a name the kernel takes the lock of its directory. Whoever may list the directory can hold that for as long as it
likes, for example by listing it into memory that its own file system does not provide. So nobody waits for a directory
longer than ``PATIENCE_SECONDS``, and not at all if somebody has waited in vain and it is still held.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from holdfast.kernel import Invalidator

PATIENCE_SECONDS = 10.0
"""The longest wait for the lock of a directory: longer than most requests hold it, unless the store is slow."""
_SHORT_SECONDS = 1.0
"""The longest wait that is put down to a busy machine."""
_DIRECTORIES_AT_ONCE = 100
"""The limit of directories at a time; each takes two descriptors."""
_NAMES_AT_ONCE = 100
_TRIES = 3
"""The number of tries. If the process is killed, the first ends without an answer, and names are lost with the second, which
starts it again."""
_log = logging.getLogger("holdfast.kernel")


@dataclass(eq=False)
class NameDrops:
    """Drops names by ``invalidator``, which drops those of one directory in the order in which it is told of them."""

    _invalidator: Invalidator
    _late: dict[int, socket.socket] = field(init=False, default_factory=dict)
    """The answers that did not come in time, by directory. Until one comes, nobody waits for its directory any more."""

    async def drop(self, names: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Drop names, given with the node ids of their directories. Return those that are not known to be dropped."""
        by_directory: dict[int, list[bytes]] = {}
        for parent, name in names:
            by_directory.setdefault(parent, []).append(name)
        directories = iter(by_directory.items())
        kept: list[tuple[int, bytes]] = []

        async def work() -> None:
            for directory, inside in directories:
                kept.extend((directory, name) for name in await self._drop_in(directory, inside))

        async with trio.open_nursery() as nursery:
            for _ in range(min(_DIRECTORIES_AT_ONCE, len(by_directory))):
                nursery.start_soon(work)
        return kept

    async def _drop_in(self, directory: int, names: list[bytes]) -> list[bytes]:
        """Drop names in a directory, one after the other; return those that are left when it takes too long.

        The kernel drops these when the lock is free.
        """
        patience = PATIENCE_SECONDS
        for first in range(0, len(names), _NAMES_AT_ONCE):
            began = trio.current_time()
            some = names[first : first + _NAMES_AT_ONCE]
            if self._is_held(directory) or not await self._drop_some(directory, some, began + patience):
                for name in names[first:]:
                    self._invalidator.invalidate(directory, name)
                return names[first:]
            waited = trio.current_time() - began
            if waited > _SHORT_SECONDS:
                patience -= waited
        return []

    async def _drop_some(self, directory: int, names: list[bytes], deadline: float) -> bool:
        """Say whether the kernel has dropped all of these names by the time ``deadline``."""
        for _ in range(_TRIES):
            starts = self._invalidator.starts
            for name in names[:-1]:
                self._invalidator.invalidate(directory, name)
            try:
                with self._invalidator.ask(directory, names[-1]) as answer:
                    with trio.move_on_at(deadline):
                        await trio.lowlevel.wait_readable(answer)
                        if answer.recv(1) and self._invalidator.starts == starts:
                            return True
                        continue
                    self._became_held(directory, answer.dup())
            except OSError as problem:
                _log.warning("it is not known whether the kernel has dropped names: %s", problem)
            return False
        return False

    def _became_held(self, directory: int, late: socket.socket) -> None:
        if directory in self._late:  # another call waited too
            self._late[directory].close()
        else:
            _log.warning("names in the directory with inode number %d stay cached: a process holds its lock", directory)
        self._late[directory] = late

    def _is_held(self, directory: int) -> bool:
        late = self._late.get(directory)
        if late is None:
            return False
        try:
            late.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        late.close()
        del self._late[directory]
        return False

    def close(self) -> None:
        """Stop waiting for answers."""
        for late in self._late.values():
            late.close()
        self._late.clear()
