"""Doors: the ways by which connections come in, each with the user who made it."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import trio

from holdfast.control.callers import Caller, caller_of, caller_told
from holdfast.control.doorkeeper import Doorkeeper

SO_PASSRIGHTS = 83
"""The option that lets users send descriptors over a Unix socket (asm-generic/socket.h of Linux 6.16). Python lacks it."""
_log = logging.getLogger("holdfast.control")
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_EXHAUSTED_PAUSE_SECONDS = 0.1
_AGAIN_SECONDS = 1.0


class Door(Protocol):
    """A source of connections."""

    async def accept(self) -> tuple[socket.socket, Caller]:
        """Return the next connection, which does not block, and who has made it."""

    def close(self) -> None:
        """End what was started for it. The listening socket stays open."""


class OpenDoor:
    """The connections that ``listener`` accepts. ``identify`` raises ``OSError`` if the peer is gone."""

    def __init__(self, listener: socket.socket, name: str, identify: Callable[[socket.socket], Caller]) -> None:
        self._listener = listener
        self._name = name
        self._identify = identify
        self._is_exhausted = False

    async def accept(self) -> tuple[socket.socket, Caller]:
        """Return the next connection."""
        while True:
            await trio.lowlevel.wait_readable(self._listener)
            try:
                connection = self._listener.accept()[0]
            except BlockingIOError:
                continue
            except OSError as problem:
                if problem.errno not in _EXHAUSTED:
                    raise
                if not self._is_exhausted:
                    _log.warning("can't accept connections on %s: %s", self._name, problem.strerror)
                self._is_exhausted = True
                await trio.sleep(_EXHAUSTED_PAUSE_SECONDS)
                continue
            self._is_exhausted = False
            try:
                caller = self._identify(connection)
            except OSError:  # gone already
                connection.close()
                continue
            connection.setblocking(False)
            return connection, caller

    def close(self) -> None:
        """Do nothing: nothing was started."""


class KeptDoor:
    """The connections to ``listener`` that a ``Doorkeeper`` has."""

    def __init__(self, listener: socket.socket, name: str) -> None:
        self._listener = listener
        self._name = name
        self._keeper = Doorkeeper(listener)

    async def accept(self) -> tuple[socket.socket, Caller]:
        """Return the next connection. A process that was killed is followed by another."""
        while True:
            await trio.lowlevel.wait_readable(self._keeper.channel)
            try:
                found = self._keeper.next()
            except BlockingIOError:
                continue
            if found is None:
                _log.warning("the process that accepts connections on %s has ended; starting it again", self._name)
                self._keeper.close()
                self._keeper = await self._started_again()
                continue
            credentials, connection = found
            if connection is None:
                _log.warning("can't accept a connection on %s: no descriptor is left", self._name)
                await trio.sleep(_EXHAUSTED_PAUSE_SECONDS)
                continue
            connection.setblocking(False)
            return connection, caller_told(credentials)

    def close(self) -> None:
        """End the process."""
        self._keeper.close()

    async def _started_again(self) -> Doorkeeper:
        is_told = False
        while True:
            await trio.sleep(_AGAIN_SECONDS)
            try:
                return Doorkeeper(self._listener)
            except OSError as problem:  # no process, no memory or no descriptor is left
                if not is_told:
                    _log.warning("can't start it; trying again: %s", problem.strerror)
                is_told = True


@dataclass(frozen=True, slots=True)
class PodsDoor:
    """The connections that come by ``door`` from pods."""

    door: Door

    async def accept(self) -> tuple[socket.socket, Caller]:
        """Return the next connection."""
        connection, caller = await self.door.accept()
        return connection, replace(caller, is_in_pod=True)

    def close(self) -> None:
        """End what was started for it."""
        self.door.close()


def keep_descriptors_out(listener: socket.socket) -> None:
    """Have the kernel refuse messages with descriptors to ``listener`` and what it accepts, if it can (Linux 6.16)."""
    try:
        listener.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    except OSError as problem:
        if problem.errno != errno.ENOPROTOOPT:
            raise


def door_of(listener: socket.socket, name: str) -> Door:
    """Return the door for a Unix socket that anybody may connect to: no descriptor of a user's comes to the daemon by it."""
    try:
        are_kept_out = listener.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS) == 0
    except OSError:
        are_kept_out = False
    return OpenDoor(listener, name, caller_of) if are_kept_out else KeptDoor(listener, name)
