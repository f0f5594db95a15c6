"""Replies for errors, in one place: an errno, counted, and logged once if it is unusual."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import pyfuse3

from holdfast.errors import HoldfastError, LimitReachedError
from holdfast.telemetry import Counters

_log = logging.getLogger("holdfast.fs")
_P = ParamSpec("_P")
_T = TypeVar("_T")

_NEWS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}


class HasCounters(Protocol):
    """The attribute that an object with replying methods must have."""

    counters: Counters


_S = TypeVar("_S", bound=HasCounters)


def replies(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Decorate a request method so that every exception becomes an errno.

    ``HoldfastError`` and ``OSError`` carry theirs. Anything else is a bug of Holdfast: EIO, and a traceback in the log.
    """

    @wraps(method)
    async def replying(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await method(self, *args, **kwargs)
        except pyfuse3.FUSEError:
            raise
        except Exception as problem:  # noqa: BLE001 the boundary is where all else ends
            raise pyfuse3.FUSEError(errno_of(problem, method.__name__, self.counters)) from None

    return replying


def errno_of(problem: Exception, operation: str, counters: Counters) -> int:
    """Return the errno for ``problem``. Call it in the except clause, for the traceback."""
    if isinstance(problem, HoldfastError | OSError):
        number = problem.errno or errno.EIO
        if number in _NEWS and not isinstance(problem, LimitReachedError):  # an event tells of a limit, once
            _log.warning("%s: %s", operation, problem)
        return number
    counters.internal_errors += 1
    _log.exception("%s failed: this is a fault of Holdfast's, please report it", operation)
    return errno.EIO
