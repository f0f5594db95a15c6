"""Work whose result several want at the same time: whoever comes while it is being done shares the next one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from copy import copy
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from holdfast.errors import HoldfastError

_K = TypeVar("_K", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Doing:
    """The work for one key: how often it was begun, and which was the last to end, and how."""

    lock: trio.Lock = field(default_factory=trio.Lock)
    interested: int = 0
    begun: int = 0
    ended: int = 0
    problem: HoldfastError | None = None


class SharedWork(Generic[_K]):
    """Does work by key, one at a time for each. What was begun before somebody came may be too old for him."""

    def __init__(self) -> None:
        self._doing: dict[_K, _Doing] = {}

    async def made(self, key: _K, make: Callable[[], Awaitable[None]]) -> None:
        """Return when a ``make`` for this key has ended that began after this call. Raises as ``make`` does.

        Those who wait for the same ``make`` get its ``HoldfastError`` too. If it is cancelled, or has any other error, the
        next of them does its own.
        """
        doing = self._doing.setdefault(key, _Doing())
        doing.interested += 1
        try:
            wanted = doing.begun + 1
            try:
                doing.lock.acquire_nowait()
            except trio.WouldBlock:
                await doing.lock.acquire()
            try:
                if doing.ended < wanted:
                    doing.begun += 1
                    await self._make(doing, make)
            finally:
                doing.lock.release()
            if doing.problem is not None:
                raise copy(doing.problem)
        finally:
            doing.interested -= 1
            if not doing.interested:
                del self._doing[key]

    async def _make(self, doing: _Doing, make: Callable[[], Awaitable[None]]) -> None:
        doing.problem = None
        try:
            await make()
        except HoldfastError as problem:
            doing.problem = problem.with_traceback(None)
        doing.ended = doing.begun
