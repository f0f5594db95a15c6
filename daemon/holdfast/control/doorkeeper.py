"""The process that has users' connections on a kernel that can't keep descriptors out of them (before Linux 6.16).

Whoever reads a message with descriptors (SCM_RIGHTS in unix(7)), or closes a socket in which one waits, closes what the
descriptors lead to, and that takes as long as its owner likes: the last close of a TCP socket may linger, a file system in
user space may never answer. Here that holds up one thread, which has that one connection. The daemon gets one end of a
connection of its own for it, and what the kernel said of the user.

A user has so many threads, and so many connections that wait for one. What is above that is shut down at once, and closed by
a process that ends with it: where a process ends, no socket lingers.

This file is also that process's program, and so imports only the standard library.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

_SO_PEERGROUPS = 59  # asm-generic/socket.h; Python has no name for it
_CREDENTIALS_BYTES = 12  # struct ucred
_UID = slice(4, 8)  # in struct ucred; before it is the pid, of which a user has as many as it likes
_MOST_GROUPS_BYTES = 1024  # as much as Python asks the kernel for
_READ_BYTES = 65_536
_STACK_BYTES = 262_144
_MOST_ENDING = 16
"""The limit of processes that may be held up at once as they end and close a connection."""
_LAST_BYTES_MS = 10_000
"""The time limit for a client to take more of what the daemon said before it closed."""
_EXHAUSTED_PAUSE_MS = 100


class Doorkeeper:
    """Accepts the connections of ``listener`` in a process of its own; ``channel`` brings them. Raises ``OSError``."""

    def __init__(self, listener: socket.socket) -> None:
        from holdfast.system.helper_programs import started

        self.channel, self._process = started(__file__, descriptors=[listener.fileno()])
        self.channel.setblocking(False)

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


def uid_of(told: bytes) -> int:
    """Return the user in ``credentials``."""
    return int.from_bytes(told[_UID], sys.byteorder)


@dataclass(frozen=True)
class Share:
    """Limits on the number of something that users may have. Root has its own, which nobody else can use up."""

    each_user: int
    users: int
    root: int

    def has_room(self, uid: int, held: Mapping[int, int]) -> bool:
        """Say whether a user may have one more. No user may have more than is left: whoever comes next finds some."""
        own = held.get(uid, 0)
        if uid == 0:
            return own < self.root
        left = self.users - sum(held.values()) + held.get(0, 0)
        return own < min(self.each_user, left)


_THREADS = Share(each_user=80, users=192, root=96)
"""The limits of threads: more than the daemon lets a user have (``Caps``), and far fewer than a service may have tasks."""
_WAITING = Share(each_user=128, users=1024, root=1024)


class _Connections:
    """The connections that are served, each in a thread, and those of each user that wait for a thread, open and unread."""

    def __init__(self, channel: socket.socket, closer: socket.socket) -> None:
        self._channel = channel
        self._closer = closer
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()
        self._waiting: defaultdict[int, deque[tuple[bytes, socket.socket]]] = defaultdict(deque)
        self._open: set[socket.socket] = set()

    def add(self, connection: socket.socket) -> None:
        """Serve a connection in a thread, now or when its user has fewer; end it if too many wait."""
        told = credentials(connection)
        uid = uid_of(told)
        with self._lock:
            may_run = _THREADS.has_room(uid, self._running)
            is_next = may_run and uid not in self._waiting
            may_stay = is_next or _WAITING.has_room(uid, {user: len(queue) for user, queue in self._waiting.items()})
            if may_stay:
                self._open.add(connection)
                self._waiting[uid].append((told, connection))
            self._running[uid] += may_run
        if not may_stay:
            self._end(connection)
        if not may_run:
            return
        try:
            threading.Thread(target=self._run, args=(uid,), daemon=True).start()
        except RuntimeError:  # the system has no more: the next connection of this user tries again
            with self._lock:
                self._running[uid] -= 1

    def shut_down(self) -> None:
        """Tell every client that its connection is over, also where a thread that is held up keeps it open."""
        with self._lock:
            for connection in self._open:
                _shut_down(connection)

    def _end(self, connection: socket.socket) -> None:
        _shut_down(connection)
        try:
            socket.send_fds(self._closer, [b"\0"], [connection.fileno()], socket.MSG_DONTWAIT)
        except OSError:  # all that close are held up
            with self._lock:
                self._open.add(connection)  # to close it here could hold up everybody
        else:
            connection.close()  # not the last close

    def _run(self, uid: int) -> None:
        while found := self._next(uid):
            uid, told, connection = found
            self._serve(connection, told)
            _shut_down(connection)
            with self._lock:
                self._open.discard(connection)
            connection.close()  # may take for ever

    def _next(self, uid: int) -> tuple[int, bytes, socket.socket] | None:
        """Return what a thread that has served this user serves next: a connection of this or of another user."""
        with self._lock:
            self._running[uid] -= 1
            for user in sorted(self._waiting, key=lambda user: user != uid):
                if _THREADS.has_room(user, self._running):
                    self._running[user] += 1
                    told, connection = self._waiting[user].popleft()
                    if not self._waiting[user]:
                        del self._waiting[user]
                    return user, told, connection
            self._running += Counter()  # forgets users who have none
            return None

    def _serve(self, connection: socket.socket, told: bytes) -> None:
        with suppress(OSError):
            here, there = socket.socketpair()
            with here:
                with there:
                    socket.send_fds(self._channel, [told], [there.fileno()])
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


def _start_closer(*not_for_it: socket.socket) -> socket.socket:
    """Start the process that closes what is sent over the socket returned. No thread may be running yet."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        there.close()
        return here
    for other in (*not_for_it, here):
        other.close()
    living = 0
    while True:
        message, descriptors, _, _ = socket.recv_fds(there, 1, 1)
        if not message:
            os._exit(0)
        for descriptor in descriptors:
            _close_by_ending(descriptor)
            living += 1
        while living and os.waitpid(-1, 0 if living == _MOST_ENDING else os.WNOHANG)[0]:
            living -= 1


def _close_by_ending(descriptor: int) -> None:
    """Let a process end that has the last copy of ``descriptor``."""
    reader, writer = os.pipe()
    if _forked() == 0:
        os.close(writer)
        os.read(reader, 1)  # until this process alone has the descriptor
        os._exit(0)
    for number in (descriptor, reader, writer):
        os.close(number)


def _forked() -> int:
    while True:
        try:
            return os.fork()
        except OSError:  # the system has no more processes
            select.poll().poll(_EXHAUSTED_PAUSE_MS)


def main() -> None:
    """Run until the daemon ends."""
    channel, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    listener.setblocking(False)
    threading.stack_size(_STACK_BYTES)
    connections = _Connections(channel, _start_closer(listener, channel))
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
