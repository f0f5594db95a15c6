"""Signs of life of a call to a store: they tell a call that takes long from one that hangs in its library.

A call that was given up raises ``RemoteUnavailableError`` at its next sign: what it was about to do is done by another by
then, or no longer wanted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.errors import RemoteUnavailableError

_BYTES_A_REQUEST = 16 * 2**20
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class CallLife:
    """The life of one call: ``at`` is the time of its last sign (monotonic), ``requests`` what the next may take."""

    at: float = field(default_factory=time.monotonic)
    requests: int = 0
    is_given_up: bool = False

    def lead(self, function: Callable[[], _T]) -> _T:
        """Call ``function``, whose signs of life are this call's."""
        _CALL.set(self)
        return function()


_CALL: ContextVar[CallLife | None] = ContextVar("call to a store", default=None)


def sign_of_life(bytes_ahead: int = 0) -> None:
    """Say that the call of this thread goes on. ``bytes_ahead``: so many are sent before its next sign.

    Raises ``RemoteUnavailableError`` if it was given up.
    """
    call = _CALL.get()
    if call is None:
        return
    if call.is_given_up:
        raise RemoteUnavailableError("the request came back too late, after it was given up", of_store=False)
    call.at, call.requests = time.monotonic(), bytes_ahead // _BYTES_A_REQUEST
