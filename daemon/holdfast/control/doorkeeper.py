"""The process that has users' connections on a kernel that can't keep descriptors out of them (before Linux 6.16).

Whoever reads a message with descriptors (SCM_RIGHTS in unix(7)), or closes a socket in which one waits, closes what the
descriptors lead to, and that takes as long as its owner likes: the last close of a TCP socket may linger, a file system in
user space may never answer. Here that holds up one thread, which has that one connection. The daemon gets one end of a
connection of its own for it, and what the kernel said of the user.

This file is also that process's program, and so imports only the standard library.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections import defaultdict, deque
from contextlib import suppress

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_CREDENTIALS_BYTES = 12  # struct ucred
_MOST_GROUPS_BYTES = 1024  # as much as Python asks the kernel for
_READ_BYTES = 65_536
_STACK_BYTES = 262_144
_THREADS_EACH_USER = 128
"""More connections than the daemon lets a user have; those above it wait here, open and unread."""
_LAST_BYTES_MS = 10_000
"""For how long a client may not take what the daemon has said before it closed."""
_EXHAUSTED_PAUSE_MS = 100


class Doorkeeper:
    """Accepts the connections of ``listener`` in a process of its own; ``channel`` brings them."""

    def __init__(self, listener: socket.socket) -> None:
        self.channel, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        with there:
            descriptors = (listener.fileno(), there.fileno())
            command = [sys.executable, "-I", "-S", __file__, *map(str, descriptors)]
            # It ends when the channel is closed. A session of its own: Ctrl-C is for the daemon only.
            self._process = subprocess.Popen(
                command, pass_fds=descriptors, stdin=subprocess.DEVNULL, env={}, start_new_session=True
            )

    def next(self) -> tuple[bytes, socket.socket | None] | None:
        """Return the next connection with its user's ``credentials``; without it if there is no descriptor left for it.

        None if the process was killed. Raises ``BlockingIOError``.
        """
        try:
            message, descriptors, _, _ = socket.recv_fds(self.channel, _CREDENTIALS_BYTES + _MOST_GROUPS_BYTES, 1)
        except ConnectionResetError:
            return None
        if not message:
            return None
        return message, socket.socket(fileno=descriptors[0]) if descriptors else None

    def close(self) -> None:
        """Make the process end, without waiting for it."""
        self.channel.close()
        self._process.poll()


def credentials(connection: socket.socket) -> bytes:
    """Return what the kernel recorded of who made ``connection``: struct ucred, then the supplementary groups."""
    user = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS_BYTES)
    with suppress(OSError):  # more groups than fit, or a kernel before 4.13: then there is only the primary one
        return user + connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _MOST_GROUPS_BYTES)
    return user


class _Connections:
    """The connections that there are, each in a thread, and of each user those that wait for one."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._running: defaultdict[bytes, int] = defaultdict(int)
        self._waiting: defaultdict[bytes, deque[socket.socket]] = defaultdict(deque)
        self._open: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> None:
        """Serve a connection in a thread, now or when its user has fewer."""
        user = credentials(connection)
        with self._lock:
            self._open.add(connection)
            self._waiting[user].append(connection)
            if self._running[user] >= _THREADS_EACH_USER:
                return
            self._running[user] += 1
        try:
            threading.Thread(target=self._run, args=(user,), daemon=True).start()
        except RuntimeError:  # the system has no more: the next connection of this user tries again
            with self._lock:
                self._running[user] -= 1

    def shut_down(self) -> None:
        """Tell every client that its connection is over, also where a thread that is held up keeps it open."""
        with self._lock:
            for connection in self._open:
                _shut_down(connection)

    def _run(self, user: bytes) -> None:
        while connection := self._next(user):
            self._serve(connection, user)
            _shut_down(connection)
            with self._lock:
                self._open.discard(connection)
            connection.close()  # may take for ever

    def _next(self, user: bytes) -> socket.socket | None:
        with self._lock:
            if self._waiting[user]:
                return self._waiting[user].popleft()
            del self._waiting[user]
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]
            return None

    def _serve(self, connection: socket.socket, user: bytes) -> None:
        with suppress(OSError):
            here, there = socket.socketpair()
            with here:
                with there:
                    socket.send_fds(self._channel, [user], [there.fileno()])
                _copy(connection, here)


def _copy(client: socket.socket, daemon: socket.socket) -> None:
    """Copy in both directions until the daemon has closed its end and the client has what it said. Raises ``OSError``."""
    client.setblocking(False)
    daemon.setblocking(False)
    to_daemon = to_client = b""
    may_ask = True  # until the client says that it asks nothing more
    has_closed = False  # the daemon, though there may be more to read of what it has said
    while True:
        poll = select.poll()
        poll.register(client, _wanted(reads=may_ask and not to_daemon, writes=bool(to_client)))
        if not (has_closed and to_client):
            poll.register(daemon, _wanted(reads=not to_client, writes=bool(to_daemon)))
        events = dict(poll.poll(_LAST_BYTES_MS if has_closed else None))
        at_client, at_daemon = events.get(client.fileno(), 0), events.get(daemon.fileno(), 0)
        if not events or (at_client & select.POLLHUP and not at_client & select.POLLIN):
            return
        if at_client & select.POLLOUT:
            to_client = to_client[client.send(to_client) :]
        if at_client & select.POLLIN:
            to_daemon = client.recv(_READ_BYTES)
            if not to_daemon:
                may_ask = False
                daemon.shutdown(socket.SHUT_WR)
        if at_daemon & select.POLLHUP:
            has_closed, may_ask, to_daemon = True, False, b""
        elif to_daemon and at_daemon & select.POLLOUT:
            to_daemon = to_daemon[daemon.send(to_daemon) :]
        if at_daemon & (select.POLLIN | select.POLLHUP) and not to_client:
            to_client = daemon.recv(_READ_BYTES)
            if not to_client:
                return


def _wanted(*, reads: bool, writes: bool) -> int:
    return (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the client was faster
        connection.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Run until the daemon ends."""
    listener, channel = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    listener.setblocking(False)
    threading.stack_size(_STACK_BYTES)
    connections = _Connections(channel)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while not any(fd == channel.fileno() for fd, _ in poll.poll()):
        try:
            connections.add(listener.accept()[0])
        except BlockingIOError:
            continue
        except OSError:  # no descriptor is left: the client waits
            select.poll().poll(_EXHAUSTED_PAUSE_MS)
    _shut_down(listener)  # a thread that is held up would keep it open, and the next daemon take it for a daemon's
    connections.shut_down()
    os._exit(0)


if __name__ == "__main__":
    main()
