"""The names by which others know this node: the configured ones, the host's names, the addresses of its interfaces."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass

from holdfast.config import HoldingsSection
from holdfast.holdings.report import is_host, is_node_name

_SIOCGIFADDR = 0x8915
_SHARED = {"127.0.0.1", "127.0.1.1", "::1", "localhost"}
"""The names and addresses that every machine has for itself; Debian's installer writes 127.0.1.1 into /etc/hosts."""
_MOST_HOSTS = 64


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """This node's names: ``node`` for people and keys, and ``hosts``, where Spark's executors on it may say they are.

    ``rack`` is the name of what fails together with it; "" if none is configured.
    """

    node: str
    hosts: tuple[str, ...]
    cores: int
    rack: str = ""


def node_name(section: HoldingsSection) -> str:
    """Return the name of this node: the configured one, or the host's."""
    host = socket.gethostname()
    return section.node or (host if is_node_name(host) else "node")


def identity_of_host(section: HoldingsSection) -> NodeIdentity:
    """Find the identity of this node. It may ask a name server: call it in a thread."""
    host = socket.gethostname()
    found = dict.fromkeys([*section.hosts, host, *_names_and_addresses(host), *_addresses_of_interfaces()])
    hosts = tuple(name for name in found if name in section.hosts or (is_host(name) and name not in _SHARED))
    return NodeIdentity(node_name(section), hosts[:_MOST_HOSTS], len(os.sched_getaffinity(0)), section.rack)


def _names_and_addresses(host: str) -> list[str]:
    found: list[str] = []
    with suppress(OSError):  # no name server, or none that knows us
        for _, _, _, canonical, address in socket.getaddrinfo(host, None, flags=socket.AI_CANONNAME):
            found += [canonical, str(address[0])]
    return [name for name in found if name]


def _addresses_of_interfaces() -> list[str]:
    """Return the IPv4 address of each interface (netdevice(7)). Those of IPv6 come from the name server."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name.encode()[:15]))
            with suppress(OSError):  # it has none
                fcntl.ioctl(asking, _SIOCGIFADDR, request)
                found.append(socket.inet_ntoa(request[20:24].tobytes()))
    return found
