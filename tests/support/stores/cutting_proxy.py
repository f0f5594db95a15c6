"""A TCP proxy that ends, stops or slows the answers of any server, whatever protocol it speaks.

A fault holds from when it is asked for until ``heal``, for connections that there are and for new ones. Each connection
has its own count of the bytes that a fault lets through. All methods may be called from any thread.
"""

from __future__ import annotations

import enum
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from tests.support.stores.servers import reserved_port

_CHUNK_BYTES = 2**16
_SECONDS_A_BYTE = 0.05


class _Kind(enum.Enum):
    NONE = enum.auto()
    STALL = enum.auto()
    CLOSE = enum.auto()
    TRICKLE = enum.auto()


class _Fault:
    """What becomes of answers; another one replaces it."""

    def __init__(self, kind: _Kind, after_bytes: int) -> None:
        self.kind = kind
        self.after_bytes = after_bytes
        self.over = threading.Event()


class CuttingProxy:
    """A proxy to ``port`` of the loopback. Use it as a context manager.

    ``exchanged`` are bytes of answers and what is sent in their place, of the same length.
    """

    def __init__(self, port: int, exchanged: Mapping[bytes, bytes] | None = None) -> None:
        self._upstream = ("127.0.0.1", port)
        self._exchanged = dict(exchanged or {})
        self._lock = threading.Lock()
        self._fault = _Fault(_Kind.NONE, 0)
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._reservation = reserved_port()
        self.port: int = self._reservation.getsockname()[1]

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._close()
        self._reservation.close()

    def stall_after(self, size_bytes: int) -> None:
        """Send nothing more after so many bytes of answers, and keep the connection open."""
        self._set(_Fault(_Kind.STALL, size_bytes))

    def close_after(self, size_bytes: int) -> None:
        """End the connection after so many bytes of answers."""
        self._set(_Fault(_Kind.CLOSE, size_bytes))

    def trickle(self) -> None:
        """Send answers byte by byte, twenty in a second."""
        self._set(_Fault(_Kind.TRICKLE, 0))

    def refuse(self) -> None:
        """End all connections, and refuse new ones."""
        self._close()

    def heal(self) -> None:
        """Pass on what comes, and what was held back."""
        self._set(_Fault(_Kind.NONE, 0))
        if self._listener is None:
            self._listen()

    def _set(self, fault: _Fault) -> None:
        with self._lock:
            before, self._fault = self._fault, fault
        before.over.set()

    def _listen(self) -> None:
        self._listener = listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(128)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _close(self) -> None:
        listener, self._listener = self._listener, None
        with self._lock:
            sockets = [*self._sockets, *([listener] if listener is not None else [])]
        for each in sockets:
            with suppress(OSError):  # it has ended
                each.shutdown(socket.SHUT_RDWR)
        if listener is not None:
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(self._upstream)
            except OSError:
                return
            with server:
                pair = {client, server}
                with self._lock:
                    self._sockets |= pair
                asking = threading.Thread(target=self._pass_questions, args=(client, server), daemon=True)
                asking.start()
                with suppress(OSError):
                    self._pass_answers(server, client)
                for each in pair:
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                asking.join()
                with self._lock:
                    self._sockets -= pair

    def _pass_questions(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _pass_answers(self, server: socket.socket, client: socket.socket) -> None:
        counted, passed = self._fault, 0
        while data := server.recv(_CHUNK_BYTES):
            for here, there in self._exchanged.items():
                data = data.replace(here, there)
            while data:
                fault = self._fault
                if fault is not counted:
                    counted, passed = fault, 0
                if fault.kind is _Kind.NONE:
                    client.sendall(data)
                    break
                if fault.kind is _Kind.TRICKLE:
                    client.sendall(data[:1])
                    data = data[1:]
                    fault.over.wait(_SECONDS_A_BYTE)
                    continue
                now, data = data[: fault.after_bytes - passed], data[fault.after_bytes - passed :]
                client.sendall(now)
                passed += len(now)
                if data and fault.kind is _Kind.CLOSE:
                    return
                if data:
                    fault.over.wait()
