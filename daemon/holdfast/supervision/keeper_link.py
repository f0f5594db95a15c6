"""The daemon's connection to a ``keeper``, which holds its mount while there is no daemon.

The keeper may be replaced while the daemon lives: the new one holds nothing until it has been given the mount. So the daemon
looks every second, and takes only what the keeper itself says it holds for held.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import trio

from holdfast.errors import StoreInUseError
from holdfast.supervision.held_descriptors import MOST_DESCRIPTORS, Message, parsed
from holdfast.supervision.keeper import KEEP, NOTIFY, VERSION
from holdfast.supervision.service_manager import ServiceManager

_log = logging.getLogger("holdfast")
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_MESSAGE_BYTES = 4096


class _SilentError(Exception):
    """The keeper is not there, does not answer, or does not speak this daemon's version; the message says which."""


class _RefusedError(_SilentError):
    """The keeper has refused a request."""


class KeeperLink:
    """The connection to the keeper in ``directory``."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._store = ServiceManager({"NOTIFY_SOCKET": str(Path(directory) / NOTIFY)})
        self._channel: socket.socket | None = None
        self._keeper = ""
        self._wanted: tuple[str, int] | None = None
        self._held: frozenset[str] = frozenset()
        self.problem = ""
        """Why the keeper does not hold the mount; empty if it does, and before it was asked."""

    @property
    def is_holding(self) -> bool:
        """True if the keeper has said, at the last look, that it holds this daemon's mount."""
        return self._wanted is not None and self._wanted[0] in self._held

    def fetch(self) -> dict[str, int]:
        """Return the descriptors that the keeper holds, by name; the caller owns them. Blocks for some seconds at most.

        A keeper that is not there holds nothing. Raises ``StoreInUseError`` if a living daemon has fetched them.
        """
        try:
            return self._connect()
        except _RefusedError as refusal:
            self._lose(str(refusal))
            raise StoreInUseError(f"the keeper in {self.directory} serves another daemon: {refusal}") from None
        except _SilentError as silence:
            self._lose(str(silence))
            return {}

    def want(self, name: str, fd: int) -> None:
        """Have the mount held from now on, by whichever keeper is there. ``fd`` stays open until ``let_go``."""
        self._wanted = name, fd
        self._look()

    def let_go(self, name: str) -> None:
        """Make the keeper close a descriptor."""
        if self._wanted is not None and self._wanted[0] == name:
            self._wanted = None
        self._store.let_go(name)

    def close(self) -> None:
        """End the connection: to the keeper this daemon has ended."""
        self._lose("")

    async def run(self) -> None:
        """Look every second which keeper is there, and what it holds."""
        while True:
            await trio.sleep(_LOOK_SECONDS)
            await trio.to_thread.run_sync(self._look)

    def _look(self) -> None:
        """Ask the keeper what it holds, and give it the mount if it lacks that. Blocks for some seconds at most."""
        was_holding, had_asked = self.is_holding, bool(self.problem) or self.is_holding
        try:
            self._ask_and_give()
        except _SilentError as silence:
            self._lose(str(silence))
        if self._wanted is not None and (self.is_holding != was_holding or not had_asked):
            if self.is_holding:
                _log.info("the keeper %s in %s holds the mount", self._keeper, self.directory)
            else:
                _log.warning("the mount ends with this daemon: %s", self.problem)

    def _ask_and_give(self) -> None:
        if self._channel is None:
            for fd in self._connect().values():
                os.close(fd)
        else:
            self._note(self._asked("LIST=1"))
        if self._wanted is not None and not self.is_holding:
            name, fd = self._wanted
            self._store.tell(f"FDSTORE=1\nFDNAME={name}", fd)
            self._note(self._asked("LIST=1"))
        self.problem = "" if self.is_holding else f"the keeper in {self.directory} does not take it"

    def _connect(self) -> dict[str, int]:
        """Connect to the keeper that is there now; return what it holds. Raises ``_SilentError``."""
        with ExitStack() as undo:
            channel = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            channel.settimeout(_ANSWER_SECONDS)
            try:
                channel.connect(str(Path(self.directory) / KEEP))
            except OSError as problem:
                raise _SilentError(f"no keeper answers in {self.directory} ({problem.strerror or problem})") from None
            self._channel = channel
            hello, _ = self._received()
            if hello.get("OLDEST", "1") != "1":
                raise _SilentError(f"the keeper in {self.directory} no longer speaks version {VERSION} of the protocol")
            self._keeper = hello.get("KEEPER", "")
            answer, descriptors = self._exchanged("FETCH=1")
            self._note(answer)
            undo.pop_all()
        names = [name for name in answer.get("NAMES", "").split(":") if name]
        return dict(zip(names, descriptors, strict=False))

    def _asked(self, request: str) -> Message:
        answer, descriptors = self._exchanged(request)
        for fd in descriptors:
            os.close(fd)
        return answer

    def _exchanged(self, request: str) -> tuple[Message, list[int]]:
        assert self._channel is not None
        try:
            self._channel.send(f"{request}\nVERSION={VERSION}".encode())
        except OSError as problem:
            raise _SilentError(f"the keeper in {self.directory} has ended ({problem.strerror or problem})") from None
        answer, descriptors = self._received()
        if "ERROR" in answer:
            raise _RefusedError(answer["ERROR"])
        return answer, descriptors

    def _received(self) -> tuple[Message, list[int]]:
        assert self._channel is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE_BYTES, MOST_DESCRIPTORS)
        except OSError as problem:
            raise _SilentError(f"the keeper in {self.directory} does not answer ({problem.strerror or problem})") from None
        if not data:
            raise _SilentError(f"the keeper in {self.directory} has ended")
        return parsed(data), descriptors

    def _note(self, answer: Message) -> None:
        self._held = frozenset(answer.get("NAMES", "").split(":"))

    def _lose(self, problem: str) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel, self._held, self.problem = None, frozenset(), problem
