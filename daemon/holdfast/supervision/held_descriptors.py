"""Descriptors that are held for a daemon, by name, and the messages that ask for it.

The messages are those of systemd's file descriptor store (sd_notify(3)): lines ``KEY=VALUE`` in a datagram, with the
descriptors as ancillary data. The supervisor and the keeper both receive them.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
from collections.abc import Iterator
from contextlib import suppress

MOST_DESCRIPTORS = 16
_MESSAGE_BYTES = 4096
_OUT_OF_THE_WAY = 100
"""The lowest number of held descriptors, so that they can't clash with those for a daemon, which begin at 3."""

Message = dict[str, str]


def messages(channel: socket.socket) -> Iterator[tuple[Message, list[int]]]:
    """Yield the messages that wait in a socket that does not block, with their descriptors, which the caller owns."""
    with suppress(BlockingIOError):
        while True:
            data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, MOST_DESCRIPTORS)
            yield parsed(data), descriptors


def parsed(data: bytes) -> Message:
    """Parse the lines of a message."""
    return dict(line.partition("=")[::2] for line in data.decode(errors="replace").splitlines())


def private_socket(path: str, kind: socket.SocketKind) -> socket.socket:
    """Return a socket at ``path`` that does not block, for its user alone: whoever writes to it can have mounts held."""
    made = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    umask = os.umask(0o177)
    try:
        made.bind(path)
    except BaseException:
        made.close()
        raise
    finally:
        os.umask(umask)
    return made


def out_of_the_way(fd: int) -> int:
    """Return a duplicate of a descriptor that is not in the way of those for a daemon."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)


class HeldDescriptors(dict[str, int]):
    """The descriptors by name."""

    def take(self, message: Message, descriptors: list[int]) -> None:
        """Do what a message asks for, and close those of its descriptors that are not to be held."""
        name = message.get("FDNAME", "stored")
        if "FDSTORE" in message and descriptors and ":" not in name and (name in self or len(self) < MOST_DESCRIPTORS):
            self.let_go(name)
            self[name] = out_of_the_way(descriptors[0])
        if "FDSTOREREMOVE" in message:
            self.let_go(name)
        for fd in descriptors:
            os.close(fd)

    def let_go(self, name: str) -> None:
        """Close a descriptor if it is held."""
        if name in self:
            os.close(self.pop(name))

    def let_all_go(self) -> None:
        """Close all of them."""
        for name in list(self):
            self.let_go(name)

    def dead(self) -> set[str]:
        """Return the names of those with nothing behind them any more: their file system is gone."""
        poll = select.poll()
        for fd in self.values():
            poll.register(fd, 0)
        ended = {fd for fd, _ in poll.poll(0)}
        return {name for name, fd in self.items() if fd in ended}
