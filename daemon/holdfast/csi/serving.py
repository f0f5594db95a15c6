"""gRPC services on Unix sockets, from the descriptions of their methods that the messages' modules have."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from holdfast.control.client import RefusedError
from holdfast.errors import ConfigurationError, DaemonUnreachableError, HoldfastError, MountpointError

Calls = Mapping[str, Callable[[Any], Any]]
"""The functions that answer requests, by the method's name. A method that is not there is answered with UNIMPLEMENTED."""
_THREADS = 8
_LONGEST_PATH = 107
"""The number of bytes in the path of a Unix socket (unix(7))."""
_log = logging.getLogger("holdfast.csi")


class CallError(Exception):
    """A request is answered with an error of gRPC's, by the name of its status."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid(message: str) -> CallError:
    """Return the error for a request that will never be right."""
    return CallError("INVALID_ARGUMENT", message)


def serve(path: Path, *services: tuple[Any, Calls]) -> grpc.Server:
    """Serve on the socket ``path``, each service by its description; nobody but root may connect.

    Raises ``ConfigurationError`` for a path that no socket can have.
    """
    server = grpc.server(ThreadPoolExecutor(_THREADS))
    for description, calls in services:
        methods = {
            method.name: _handler(method, calls[method.name]) for method in description.methods if method.name in calls
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(description.full_name, methods)])
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise ConfigurationError(f"{path} is too long a path for a socket; {_LONGEST_PATH} bytes will do")
    with suppress(FileNotFoundError):
        path.unlink()
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    finally:
        os.umask(before)
    server.start()
    return server


def _handler(method: Any, call: Callable[[Any], Any]) -> Any:
    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

    def guarded(asked: Any, context: grpc.ServicerContext) -> Any:
        try:
            return call(asked)
        except (CallError, HoldfastError, OSError) as problem:
            status, message = status_of(problem), str(problem)
        _log.log(logging.INFO if status == "UNAVAILABLE" else logging.WARNING, "%s: %s: %s", method.name, status, message)
        return context.abort(getattr(grpc.StatusCode, status), message)  # which raises

    return grpc.unary_unary_rpc_method_handler(
        guarded, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
    )


def status_of(problem: Exception) -> str:
    """Return the status that tells kubelet what to make of an error: it tries again after all, later after some."""
    if isinstance(problem, CallError):
        return problem.status
    if isinstance(problem, DaemonUnreachableError | MountpointError):
        return "UNAVAILABLE"
    if isinstance(problem, RefusedError):
        by_code = {
            "configuration": "INVALID_ARGUMENT",
            "foreign-workdir": "PERMISSION_DENIED",
            "directory-busy": "UNAVAILABLE",
        }
        return by_code.get(problem.failure.code, "FAILED_PRECONDITION")
    return "INTERNAL"
