"""Requests that were begun outside of a task and had to wait: a task of pyfuse3's goes on with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from holdfast.system.waits import resumed

_T = TypeVar("_T")
_Operation = Coroutine[Any, Any, Any]


class BegunRequests:
    """The suspended operations of requests, by the request's number."""

    def __init__(self) -> None:
        self._suspended: dict[int, _Operation] = {}

    def keep(self, request: int, operation: _Operation) -> None:
        """Keep the suspended operation of a request until a task calls ``resume``."""
        self._suspended[request] = operation

    def resume(self, request: int, begin: Callable[[], Coroutine[Any, Any, _T]]) -> Callable[[], Awaitable[_T]]:
        """Return the function to await once the request has its turn: it goes on with the operation that was begun.

        If there is none, or it has ended and is to be tried again, the function calls ``begin`` for a new one.
        """
        begun = self._suspended.pop(request, None)
        return begin if begun is None else partial(_once, [begun], begin)


def _once(begun: list[_Operation], begin: Callable[[], Coroutine[Any, Any, _T]]) -> Awaitable[_T]:
    return resumed(begun.pop()) if begun else begin()
