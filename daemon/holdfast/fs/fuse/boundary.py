"""The one place where errors become replies to the kernel: an errno, counted, and logged once where it is news."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import pyfuse3

from holdfast.errors import HoldfastError
from holdfast.telemetry import Counters

_log = logging.getLogger("holdfast.fs")
_P = ParamSpec("_P")
_T = TypeVar("_T")

_NEWS = {errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS}


class HasCounters(Protocol):
    """What an object with replying methods must have."""

    counters: Counters


_S = TypeVar("_S", bound=HasCounters)


def replies(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Let ``method`` raise what it likes: the kernel gets an errno.

    ``HoldfastError`` and ``OSError`` carry theirs. Anything else is a fault of Holdfast's: EIO, and a traceback in the log.
    """

    @wraps(method)
    async def replying(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return await method(self, *args, **kwargs)
        except (HoldfastError, OSError) as problem:
            number = problem.errno or errno.EIO
            if number in _NEWS:
                _log.warning("%s: %s", method.__name__, problem)
            raise pyfuse3.FUSEError(number) from None
        except pyfuse3.FUSEError:
            raise
        except Exception:  # noqa: BLE001 the boundary is where all else ends
            self.counters.internal_errors += 1
            _log.exception("%s failed: this is a fault of Holdfast's, please report it", method.__name__)
            raise pyfuse3.FUSEError(errno.EIO) from None

    return replying
