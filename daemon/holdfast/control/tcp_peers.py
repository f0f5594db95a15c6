"""The peer of a TCP connection: a user of this machine, as the kernel knows it, or an address.

The kernel is asked for the peer's socket alone (sock_diag(7)), which takes 50 µs however many sockets there are.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from holdfast.control.callers import Caller

_SOCK_DIAG = 4  # linux/netlink.h
_BY_FAMILY = 20  # linux/sock_diag.h
_REQUEST = 1  # NLM_F_REQUEST
_HEAD = struct.Struct("=IHHII")  # nlmsghdr
_ASKED = struct.Struct("=BBBxI")  # inet_diag_req_v2, up to the socket's addresses
_PORTS = struct.Struct("!HH")
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFF_FFFF, 0xFFFF_FFFF)
_FOUND = struct.Struct("=xB66xI")  # inet_diag_msg: state and user
_ESTABLISHED = 1
_NOBODY = 65_534


@dataclass(frozen=True, slots=True)
class TcpCaller(Caller):
    """A caller over TCP. ``address`` is empty for a user of this machine, whose ``uid`` is known."""

    address: str = ""

    @property
    def counts_as(self) -> int | str:
        """The user of this machine, or else the address, against whose limit its connections count."""
        return self.address or self.uid


def tcp_caller(connection: socket.socket) -> TcpCaller:
    """Return who made ``connection``, an accepted TCP socket. Raises ``OSError`` if it is gone."""
    host, port = connection.getpeername()[:2]
    uid = _local_user(connection.family, (host, port), connection.getsockname()[:2])
    if uid is None:
        return TcpCaller(_NOBODY, _NOBODY, frozenset(), host)
    return TcpCaller(uid, _NOBODY, frozenset())


def _local_user(family: int, peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """Return the owner of the socket at ``peer`` that is connected to ``here``; None if it is on another machine."""
    addresses = b"".join(socket.inet_pton(family, host.partition("%")[0]).ljust(16, b"\0") for host, _ in (peer, here))
    wanted = _PORTS.pack(peer[1], here[1]) + addresses + _ANY_COOKIE
    message = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFF_FFFF) + wanted
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _SOCK_DIAG) as kernel:
            kernel.send(_HEAD.pack(_HEAD.size + len(message), _BY_FAMILY, _REQUEST, 0, 0) + message)
            answer = kernel.recv(1024)
    except OSError:  # a kernel without it: then addresses count
        return None
    if _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    state, uid = _FOUND.unpack_from(answer, _HEAD.size)
    return int(uid) if state == _ESTABLISHED else None  # the kernel no longer knows whose a closed one was
