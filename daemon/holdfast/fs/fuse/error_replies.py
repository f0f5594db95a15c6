"""Replies to all requests of pyfuse3's: an errno for each error, logged if it is unusual. Their durations are observed."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import pyfuse3
from pyfuse3 import EntryAttributes

from holdfast.errors import HoldfastError, LimitReachedError
from holdfast.fs.fuse.request_observer import RequestObserver
from holdfast.kernel import Opcode
from holdfast.telemetry import OBSERVED, Counters

_log = logging.getLogger("holdfast.fs")
_P = ParamSpec("_P")
_T = TypeVar("_T")

_NEWS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}


class Replying(Protocol):
    """The attributes that an object with replying methods must have."""

    counters: Counters
    observer: RequestObserver


_S = TypeVar("_S", bound=Replying)


def replies(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Decorate a request method, named after its opcode, so that every exception becomes an errno, and observe it.

    ``HoldfastError`` and ``OSError`` carry theirs. Anything else is a bug of Holdfast: EIO, and a traceback in the log.
    """
    operation = method.__name__.lstrip("_")
    opcode = Opcode[operation.upper()]

    @wraps(method)
    async def replying(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        observation = self.observer.begin(opcode, args)
        number, data_bytes = 0, 0
        OBSERVED.set(observation.notes)
        try:
            result = await self.observer.executed(method(self, *args, **kwargs))
            number, data_bytes = _shown(opcode, result)
            return result
        except pyfuse3.FUSEError as refusal:
            number = refusal.errno
            raise
        except Exception as problem:  # noqa: BLE001 the boundary is where all else ends
            number = errno_of(problem, operation, self.counters)
            raise pyfuse3.FUSEError(number) from None
        finally:
            OBSERVED.set(None)
            observation.end(number, data_bytes)

    return replying


def _shown(opcode: Opcode, result: object) -> tuple[int, int]:
    """Return what is shown of a request that succeeded: the errno, for a LOOKUP that found nothing, and bytes of data."""
    if opcode is Opcode.LOOKUP and isinstance(result, EntryAttributes) and result.st_ino == 0:
        return errno.ENOENT, 0
    if opcode is Opcode.READ and isinstance(result, bytes | bytearray | memoryview):
        return 0, len(result)
    return 0, result if opcode is Opcode.WRITE and isinstance(result, int) else 0


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
