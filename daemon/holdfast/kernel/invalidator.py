"""Invalidating what the kernel caches, from a process of its own: names (FUSE_NOTIFY_INVAL_ENTRY), listings and content
(FUSE_NOTIFY_INVAL_INODE), and whole nodes (FUSE_NOTIFY_PRUNE).

To drop a name the kernel takes the lock of its directory, which a system call may hold that waits for the daemon's answer
there, or for something that never comes: users can hold the locks of directories that they may list for as long as they
like. The same holds for the pages of a listing, which are locked while they are copied to a user, and for those of a file,
which are while they are read from the daemon. A thread that waits for such a lock can't be killed. If it were the daemon's,
a killed daemon would not end until the next one has answered, and that one can't start before this one has ended. So another
process waits. It has the mount's descriptor and nothing else, and starts and ends with the daemon. For each directory one of
its threads waits, so that those of many directories can be held before names in others have to wait.

This file is also that process's program, and so imports only the standard library.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from queue import SimpleQueue

_PARENT = struct.Struct("=Q")
_NOTICE = struct.Struct("=IiQQII")
"""``fuse_out_header`` and ``fuse_notify_inval_entry_out`` (linux/fuse.h)."""
_INODE_NOTICE = struct.Struct("=IiQQqq")
"""``fuse_out_header`` and ``fuse_notify_inval_inode_out``."""
_PRUNE_NOTICE = struct.Struct("=IiQIIQ")
"""``fuse_out_header`` and ``fuse_notify_prune_out``; the node ids follow."""
_INVALIDATE_INODE = 2
_INVALIDATE_ENTRY = 3
_PRUNE = 9
_NO_PARENT = 0
"""The number that stands for a directory's node id in a message with node ids to prune instead of a name."""
_NO_NAME = b""
"""Stands for the content of the node itself."""
_MOST_PRUNED = 500
_LARGEST_MESSAGE_BYTES = 4096
_PAUSE_SECONDS = 1.0
_MOST_THREADS = 1000
"""The number of directories that can be held before names in others have to wait. A thread takes 17 KiB of memory."""
_THREADS_KEPT = 8
_STACK_BYTES = 1 << 16


class Invalidator:
    """Invalidates names in the mount with the descriptor ``device``. Safe to use from any thread."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.starts = 0
        """The number of times the process was started. When it is killed, messages that were sent to it may be lost."""
        self._queue: SimpleQueue[tuple[int, bytes, socket.socket | None] | None] = SimpleQueue()
        self._channel = self._start()
        threading.Thread(target=self._send_all, name="invalidator", daemon=True).start()

    def invalidate(self, parent: int, name: bytes) -> None:
        """Invalidate a name in the directory with the node id ``parent``, soon: this returns at once."""
        self._queue.put((parent, name, None))

    def ask(self, parent: int, name: bytes) -> socket.socket:
        """Invalidate a name; return a socket, to be closed, that gets a byte when the kernel no longer has the name.

        It ends without one if that stays unknown, because the process was killed. Raises ``OSError``.
        """
        here, there = socket.socketpair()
        if self._closed.is_set():
            there.close()
        else:
            self._queue.put((parent, name, there))
        return here

    def invalidate_content(self, node: int) -> None:
        """Invalidate the cached content of a file soon: this returns at once."""
        self._queue.put((node, _NO_NAME, None))

    def prune(self, nodes: Sequence[int]) -> None:
        """Make the kernel forget these nodes soon, except those that it uses. This returns at once."""
        for first in range(0, len(nodes), _MOST_PRUNED):
            ids = nodes[first : first + _MOST_PRUNED]
            self._queue.put((_NO_PARENT, struct.pack(f"={len(ids)}Q", *ids), None))

    def close(self) -> None:
        """Make the process end, without waiting for it."""
        self._closed.set()
        self._queue.put(None)
        with self._lock:
            self._channel.close()

    def _send_all(self) -> None:
        while (notice := self._queue.get()) is not None:
            parent, name, answer_to = notice
            with answer_to or nullcontext():
                while not self._closed.is_set():
                    try:
                        self._send(_PARENT.pack(parent) + name, [answer_to.fileno()] if answer_to else [])
                        break
                    except OSError:  # the process is gone, and a new one can't be started now
                        self._closed.wait(_PAUSE_SECONDS)

    def _send(self, message: bytes, answer_to: list[int]) -> None:
        with self._lock:
            try:
                socket.send_fds(self._channel, [message], answer_to)
            except OSError:  # the process was killed
                if self._closed.is_set():
                    raise
                self._channel.close()
                self._channel = self._start()
                socket.send_fds(self._channel, [message], answer_to)

    def _start(self) -> socket.socket:
        from holdfast.system.helper_programs import started

        self.starts += 1
        return started(__file__, descriptors=[self._device])[0]


def notice(parent: int, name: bytes) -> bytes:
    """Return the FUSE_NOTIFY_INVAL_ENTRY message to write to the mount's descriptor."""
    length = _NOTICE.size + len(name) + 1
    return _NOTICE.pack(length, _INVALIDATE_ENTRY, 0, parent, len(name), 0) + name + b"\0"


def inode_notice(node: int, offset: int = 0) -> bytes:
    """Return the FUSE_NOTIFY_INVAL_INODE message: attributes, and the content from ``offset`` on unless that is negative."""
    return _INODE_NOTICE.pack(_INODE_NOTICE.size, _INVALIDATE_INODE, 0, node, offset, 0)


def prune_notice(ids: bytes) -> bytes:
    """Return the FUSE_NOTIFY_PRUNE message for packed node ids."""
    count = len(ids) // _PARENT.size
    return _PRUNE_NOTICE.pack(_PRUNE_NOTICE.size + len(ids), _PRUNE, 0, count, 0, 0) + ids


class _Writing:
    """Writes messages to the mount's descriptor: those about one directory one after the other, by one thread at a time."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._changed = threading.Condition()
        self._left: dict[int, OrderedDict[tuple[bytes, int | None], None]] = {}
        """The messages to write for each directory, in order, with the descriptors to answer to. A directory stays while a
        thread works on its last message."""
        self._free: deque[int] = deque()
        """The directories among them that no thread is working on."""
        self._threads = self._idle = 0

    def add(self, message: bytes, answer_to: int | None) -> None:
        """Write a message soon, and then a byte to the descriptor ``answer_to``."""
        (directory,) = _PARENT.unpack_from(message)
        with self._changed:
            if directory in self._left:
                self._left[directory][message, answer_to] = None
                return
            self._left[directory] = OrderedDict([((message, answer_to), None)])
            self._free.append(directory)
            if len(self._free) > self._idle and self._threads < _MOST_THREADS:
                with suppress(RuntimeError):  # the system has no more: others will have the time
                    threading.Thread(target=self._run, daemon=True).start()
                    self._threads += 1
                    self._idle += 1
            self._changed.notify()

    def _run(self) -> None:
        is_wanted = True
        while is_wanted:
            with self._changed:
                self._changed.wait_for(lambda: self._free)
                self._idle -= 1
                directory = self._free.popleft()
            while notice := self._next(directory):
                self._write(*notice)
            with self._changed:
                is_wanted = self._idle < _THREADS_KEPT
                if is_wanted:
                    self._idle += 1
                else:
                    self._threads -= 1

    def _next(self, directory: int) -> tuple[bytes, int | None] | None:
        with self._changed:
            left = self._left[directory]
            if not left:
                del self._left[directory]
                return None
            return left.popitem(last=False)[0]

    def _write(self, message: bytes, answer_to: int | None) -> None:
        for each in _notices_of(message):
            with suppress(OSError):  # the kernel does not know the name, or the mount is gone
                os.write(self._device, each)
        if answer_to is not None:
            with suppress(BrokenPipeError):  # nobody waits any more
                os.write(answer_to, b"1")
            os.close(answer_to)


def _notices_of(message: bytes) -> list[bytes]:
    """Return what to write. With a name goes the listing of its directory: it may have names that the kernel lacks."""
    (node,) = _PARENT.unpack_from(message)
    what = message[_PARENT.size :]
    if node == _NO_PARENT:
        return [prune_notice(what)]
    return [inode_notice(node)] if what == _NO_NAME else [notice(node, what), inode_notice(node)]


def main() -> None:
    """Run until the daemon ends."""
    channel, device = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    threading.stack_size(_STACK_BYTES)
    writing = _Writing(device)
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _LARGEST_MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)
        writing.add(message, descriptors[0] if descriptors else None)


if __name__ == "__main__":
    main()
